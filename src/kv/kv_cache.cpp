#include "kv/kv_cache.h"

#include <algorithm>
#include <climits>

#include "ggml/error.h"
#include "ggml/log.h"

namespace llama {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

KvCache::KvCache(std::span<const KvGroupSpec> groups, const StateSpec* states, int n_sequences, int max_cells,
                 std::span<ggml::Device* const> devices)
    : lengths_(static_cast<std::size_t>(n_sequences), 0), alive_(static_cast<std::size_t>(n_sequences), false) {
  groups_.reserve(groups.size());
  for (const KvGroupSpec& spec : groups)
    groups_.emplace_back(spec, n_sequences, max_cells, *devices[static_cast<std::size_t>(spec.device.v)]);
  if (states != nullptr) states_.emplace(*states, n_sequences, devices);
}

std::size_t KvCache::total_bytes() const {
  std::size_t bytes = 0;
  for (const KvGroup& group : groups_) bytes += group.total_bytes();
  return bytes + (states_ ? states_->total_bytes() : 0);
}

std::size_t KvCache::bytes_per_cell() const {
  std::size_t bytes = 0;
  for (const KvGroup& group : groups_)
    if (group.spec().kind == KvKind::full)
      bytes += group.spec().layout.block_bytes() * group.spec().layers.size() / ggml::kKvBlockTokens;
  return bytes;
}

SeqId KvCache::create() {
  for (std::size_t i = 0; i < alive_.size(); ++i) {
    if (alive_[i]) continue;
    alive_[i] = true;
    return SeqId(static_cast<std::int32_t>(i));
  }
  throw Error(ErrorCode::unavailable, strf("all %zu sequences are in use", alive_.size()),
              "wait for one to end, or raise the number of parallel sequences");
}

void KvCache::remove(SeqId seq) {
  check_alive(seq);
  roll_back(seq, 0);
  alive_[static_cast<std::size_t>(seq.v)] = false;
}

bool KvCache::is_alive(SeqId seq) const noexcept {
  return seq.v >= 0 && static_cast<std::size_t>(seq.v) < alive_.size() && alive_[static_cast<std::size_t>(seq.v)];
}

void KvCache::check_alive(SeqId seq) const {
  if (!is_alive(seq)) throw Error(ErrorCode::invalid_argument, strf("there is no sequence %d", seq.v));
}

bool KvCache::can_append(std::span<const Growth> growths) const {
  for (const KvGroup& group : groups_) {
    int wanted = 0;
    for (const Growth& growth : growths)
      wanted += group.blocks_to_append(growth.seq, length(growth.seq), growth.n_cells);
    if (wanted > group.pool().free()) return false;
  }
  return true;
}

void KvCache::append(std::span<const Growth> growths) {
  if (!can_append(growths)) {
    int n_cells = 0;
    for (const Growth& growth : growths) n_cells += growth.n_cells;
    int n_free = INT_MAX;
    for (const KvGroup& group : groups_) n_free = std::min(n_free, group.pool().free());
    throw Error(ErrorCode::exceeds_limit,
                strf("no room in the KV cache for %d tokens more of %zu sequences: %d blocks of %d tokens are free",
                     n_cells, growths.size(), n_free, ggml::kKvBlockTokens),
                "shorten the prompt, or start with a larger context size");
  }
  for (const Growth& growth : growths) {
    int& n = lengths_[static_cast<std::size_t>(growth.seq.v)];
    for (KvGroup& group : groups_) group.append(growth.seq, n, growth.n_cells);
    if (states_) states_->append(growth.seq, growth.n_cells);
    n += growth.n_cells;
  }
}

void KvCache::settle(SeqId seq) {
  for (KvGroup& group : groups_) group.forget(seq, length(seq));
  if (states_) states_->settle(seq, length(seq));
}

void KvCache::roll_back(SeqId seq, int n_cells) {
  for (KvGroup& group : groups_) group.truncate(seq, n_cells);
  if (states_) states_->roll_back(seq, n_cells);
  lengths_[static_cast<std::size_t>(seq.v)] = n_cells;
}

int KvCache::resume_point(SeqId seq, int n_cells) const {
  int n = std::clamp(n_cells, 0, length(seq));
  if (states_) n = states_->resume_point(seq, n);
  const bool all = std::all_of(groups_.begin(), groups_.end(), [&](const KvGroup& g) { return g.can_resume(seq, n); });
  return all ? n : 0;
}

void KvCache::truncate(SeqId seq, int n_cells) {
  check_alive(seq);
  if (n_cells < 0 || n_cells > length(seq))
    throw Error(ErrorCode::invalid_argument,
                strf("sequence %d has %d cells and cannot be cut to %d", seq.v, length(seq), n_cells));
  if (resume_point(seq, n_cells) != n_cells)
    throw Error(ErrorCode::unsupported,
                strf("sequence %d cannot be continued from %d of its %d cells: what a window or a recurrent layer "
                     "needs of the past is gone",
                     seq.v, n_cells, length(seq)),
                "continue from resume_point()");
  roll_back(seq, n_cells);
}

void KvCache::share_prefix(SeqId dst, SeqId src, int n_cells) {
  check_alive(dst);
  check_alive(src);
  if (dst == src || length(dst) != 0)
    throw Error(ErrorCode::invalid_argument,
                strf("sequence %d has %d cells; only an empty one can share a prefix", dst.v, length(dst)));
  if (n_cells < 0 || n_cells > length(src))
    throw Error(ErrorCode::invalid_argument,
                strf("sequence %d has %d cells; %d of them cannot be shared", src.v, length(src), n_cells));
  if (resume_point(src, n_cells) != n_cells)
    throw Error(
        ErrorCode::unsupported,
        strf("what sequence %d knew after %d cells is gone from a window or a recurrent layer", src.v, n_cells));
  if (n_cells == 0) return;
  for (KvGroup& group : groups_) group.share(dst, src, n_cells);
  if (states_) states_->share(dst, src, n_cells);
  lengths_[static_cast<std::size_t>(dst.v)] = n_cells;
}

void KvCache::check_integrity() const {
  for (std::size_t i = 0; i < lengths_.size(); ++i)
    TANDEM_ASSERT(alive_[i] || lengths_[i] == 0, "a removed sequence has cells");
  for (const KvGroup& group : groups_) group.check_integrity(lengths_);
  if (states_) states_->check_integrity(lengths_);
}

}  // namespace llama
