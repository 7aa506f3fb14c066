#include <algorithm>
#include <cstring>
#include <vector>

#include "ggml/error.h"
#include "ggml/log.h"
#include "kv/kv_cache.h"

/// Context shift: a sequence loses a run of cells in its middle and the later ones move up.
namespace llama {

using ggml::Error;
using ggml::ErrorCode;
using ggml::kKvBlockTokens;
using ggml::strf;

namespace {

int first_after_shift(const BlockTable& table, int begin, int n) {
  return table.first_cell <= begin ? table.first_cell : std::max(table.first_cell, begin + n) - n;
}

/// The blocks of one layer and sequence where the host can work on them: in place, or copied from the device and back.
class HostBlocks {
 public:
  HostBlocks(const KvGroup& group, std::size_t layer, const BlockTable& table)
      : group_(group), layer_(layer), table_(table) {
    if (group.device().memory_is_host()) return;
    const std::size_t bytes = group.spec().layout.block_bytes();
    copies_.resize(table.blocks.size() * bytes);
    for (std::size_t i = 0; i < table.blocks.size(); ++i)
      if (table.blocks[i] >= 0) group.device().copy(copies_.data() + i * bytes, address(i), bytes);
  }
  [[nodiscard]] KvCells of_cell(int cell) {
    const auto i = static_cast<std::size_t>(cell / kKvBlockTokens);
    const ggml::KvLayout& layout = group_.spec().layout;
    return {layout, copies_.empty() ? address(i) : copies_.data() + i * layout.block_bytes()};
  }
  /// Blocks from the one of `cell` on go back to the device.
  void store_from(int cell) {
    if (copies_.empty()) return;
    const std::size_t bytes = group_.spec().layout.block_bytes();
    for (auto i = static_cast<std::size_t>(cell / kKvBlockTokens); i < table_.blocks.size(); ++i)
      if (table_.blocks[i] >= 0) group_.device().copy(address(i), copies_.data() + i * bytes, bytes);
  }

 private:
  [[nodiscard]] std::byte* address(std::size_t i) const {
    return group_.layer_base(layer_) + static_cast<std::size_t>(table_.blocks[i]) * group_.spec().layout.block_bytes();
  }

  const KvGroup& group_;
  std::size_t layer_;
  const BlockTable& table_;
  std::vector<std::byte> copies_;  // empty: in place
};

}  // namespace

void KvCache::check_shift(SeqId seq, int begin, int n) const {
  check_alive(seq);
  const int old_length = length(seq);
  if (begin < 0 || n <= 0 || n > old_length - begin)
    throw Error(ErrorCode::invalid_argument,
                strf("sequence %d has %d cells; it cannot lose %d of them from %d on", seq.v, old_length, n, begin));
  if (states_)
    throw Error(
        ErrorCode::unsupported,
        "a context shift has no meaning here: the model has recurrent layers, whose state cannot lose tokens from "
        "the middle of a sequence",
        "evaluate the remaining tokens again, or use a larger context");
  for (const KvGroup& group : groups_) {
    const BlockTable& table = group.table(seq);
    // Cells before first_cell are gone, so nothing may move down over the border of what is stored.
    const int first = first_after_shift(table, begin, n);
    if (group.spec().kind == KvKind::window && table.first_cell > 0 &&
        (first < table.first_block * kKvBlockTokens || first > std::max(0, old_length - n - group.spec().window + 1)))
      throw Error(
          ErrorCode::unsupported,
          strf("sequence %d cannot lose %d cells from %d on: a window of %d cells has forgotten what it would see "
               "again",
               seq.v, n, begin, group.spec().window),
          "evaluate the remaining tokens again");
    const int wanted = group.shared_blocks(seq, begin, old_length - n);
    if (wanted > group.pool().free())
      throw Error(ErrorCode::exceeds_limit,
                  strf("a context shift needs %d free KV blocks, %d are free", wanted, group.pool().free()));
  }
}

void KvCache::shift(SeqId seq, int begin, int n, std::span<const LayerRope> ropes) {
  check_shift(seq, begin, n);
  const int old_length = length(seq);
  for (KvGroup& group : groups_) {
    group.make_writable(seq, begin, old_length - n);
    const BlockTable& table = group.table(seq);
    const KvGroupSpec& spec = group.spec();
    const int first_moved = std::max(begin + n, table.first_cell);
    std::vector<float> scratch(static_cast<std::size_t>(spec.layout.dk));
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
      const LayerRope& rope = ropes[static_cast<std::size_t>(spec.layers[i].v)];
      const KeyRotation rotation(rope.params, rope.factors, -n, rope.hadamard);
      HostBlocks blocks(group, i, table);
      for (int cell = first_moved; cell < old_length; ++cell) {
        const int to = cell - n;  // ascending: nothing is overwritten before it was read
        KvCells dst = blocks.of_cell(to);
        dst.copy_cell(to % kKvBlockTokens, blocks.of_cell(cell), cell % kKvBlockTokens);
        dst.rotate_key(to % kKvBlockTokens, rotation, scratch);
      }
      blocks.store_from(first_moved - n);
    }
    group.set_first_cell(seq, first_after_shift(table, begin, n));
  }
  roll_back(seq, old_length - n);
}

}  // namespace llama
