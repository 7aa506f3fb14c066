#include "kv/kv_group.h"

#include <algorithm>

#include "ggml/error.h"

namespace llama {

using ggml::kKvBlockTokens;

namespace {

int blocks_of(int cells) {
  return (cells + kKvBlockTokens - 1) / kKvBlockTokens;
}

}  // namespace

KvGroup::KvGroup(const KvGroupSpec& spec, int n_sequences, int max_cells, ggml::Device& device)
    : spec_(spec), pool_(spec.n_blocks), tables_(static_cast<std::size_t>(n_sequences)), device_(device) {
  memory_ = device.allocate(total_bytes(), ggml::BufferKind::device);
  // Reserved in full, so that a growing sequence never allocates on the path of a token.
  for (BlockTable& table : tables_) table.blocks.reserve(static_cast<std::size_t>(blocks_of(max_cells)) + 1);
}

std::size_t KvGroup::layer_bytes() const {
  return static_cast<std::size_t>(spec_.n_blocks) * spec_.layout.block_bytes();
}

std::byte* KvGroup::layer_base(std::size_t index) const {
  return memory_->data() + index * layer_bytes();
}

BlockId KvGroup::take_clean() {
  const int untouched_from = pool_.untouched_from();
  const BlockId block = pool_.take();
  if (block.v < untouched_from) return block;
  // Attention may multiply cells that it does not see by zero; never-written memory could hold NaN there.
  const std::size_t bytes = spec_.layout.block_bytes();
  for (std::size_t layer = 0; layer < spec_.layers.size(); ++layer)
    device_.clear(layer_base(layer) + static_cast<std::size_t>(block.v) * bytes, bytes);
  return block;
}

void KvGroup::copy_on_write(std::int32_t& entry) {
  const BlockId from(entry);
  const BlockId to = pool_.take();
  const std::size_t bytes = spec_.layout.block_bytes();
  for (std::size_t layer = 0; layer < spec_.layers.size(); ++layer)
    device_.copy(layer_base(layer) + static_cast<std::size_t>(to.v) * bytes,
                 layer_base(layer) + static_cast<std::size_t>(from.v) * bytes, bytes);
  pool_.release(from);
  entry = to.v;
}

int KvGroup::shared_blocks(SeqId seq, int begin, int end) const {
  const BlockTable& t = table(seq);
  const int last = std::min(blocks_of(end), static_cast<int>(t.blocks.size()));
  int n = 0;
  for (int i = std::max(begin / kKvBlockTokens, t.first_block); i < last; ++i)
    if (pool_.references(BlockId(t.blocks[static_cast<std::size_t>(i)])) > 1) ++n;
  return n;
}

void KvGroup::make_writable(SeqId seq, int begin, int end) {
  BlockTable& t = mutable_table(seq);
  const int last = std::min(blocks_of(end), static_cast<int>(t.blocks.size()));
  for (int i = std::max(begin / kKvBlockTokens, t.first_block); i < last; ++i) {
    std::int32_t& entry = t.blocks[static_cast<std::size_t>(i)];
    if (pool_.references(BlockId(entry)) > 1) copy_on_write(entry);
  }
}

int KvGroup::blocks_to_append(SeqId seq, int length, int n) const {
  const int have = static_cast<int>(table(seq).blocks.size());
  return std::max(blocks_of(length + n) - have, 0) + shared_blocks(seq, length, length + n);
}

void KvGroup::append(SeqId seq, int length, int n) {
  make_writable(seq, length, length + n);
  BlockTable& t = mutable_table(seq);
  const auto wanted = static_cast<std::size_t>(blocks_of(length + n));
  while (t.blocks.size() < wanted) t.blocks.push_back(take_clean().v);
}

void KvGroup::forget(SeqId seq, int length) {
  if (spec_.kind != KvKind::window) return;
  BlockTable& t = mutable_table(seq);
  const int keep_from = length - spec_.window - kWindowMarginCells;
  while ((t.first_block + 1) * kKvBlockTokens <= keep_from) {
    std::int32_t& entry = t.blocks[static_cast<std::size_t>(t.first_block)];
    pool_.release(BlockId(entry));
    entry = -1;
    ++t.first_block;
    t.first_cell = std::max(t.first_cell, t.first_block * kKvBlockTokens);
  }
}

void KvGroup::truncate(SeqId seq, int length) {
  BlockTable& t = mutable_table(seq);
  const auto keep = static_cast<std::size_t>(blocks_of(length));
  while (t.blocks.size() > keep) {
    if (t.blocks.back() >= 0) pool_.release(BlockId(t.blocks.back()));
    t.blocks.pop_back();
  }
  if (length == 0) t.first_block = t.first_cell = 0;
}

int KvGroup::earliest_resume(SeqId seq) const {
  const int first = table(seq).first_cell;
  return first == 0 ? 0 : first + spec_.window - 1;
}

bool KvGroup::can_resume(SeqId seq, int length) const {
  return length == 0 || length >= earliest_resume(seq);
}

void KvGroup::share(SeqId dst, SeqId src, int n) {
  const BlockTable& from = table(src);
  BlockTable& to = mutable_table(dst);
  TANDEM_ASSERT(to.blocks.empty(), "share() into a sequence that has cells");
  to.blocks.assign(from.blocks.begin(), from.blocks.begin() + blocks_of(n));
  to.first_block = from.first_block;
  to.first_cell = from.first_cell;
  for (const std::int32_t block : to.blocks)
    if (block >= 0) pool_.retain(BlockId(block));
}

void KvGroup::check_integrity(std::span<const int> lengths) const {
  pool_.check_integrity();
  std::vector<int> seen(static_cast<std::size_t>(pool_.total()), 0);
  for (std::size_t seq = 0; seq < tables_.size(); ++seq) {
    const BlockTable& t = tables_[seq];
    TANDEM_ASSERT(static_cast<int>(t.blocks.size()) == blocks_of(lengths[seq]), "a table does not fit its length");
    TANDEM_ASSERT(t.first_block <= static_cast<int>(t.blocks.size()), "a table starts behind its end");
    TANDEM_ASSERT(t.first_cell >= t.first_block * kKvBlockTokens || t.first_cell == 0, "a forgotten block is counted");
    TANDEM_ASSERT(spec_.kind == KvKind::window || t.first_cell == 0, "a full group has forgotten cells");
    for (std::size_t i = 0; i < t.blocks.size(); ++i) {
      const bool freed = static_cast<int>(i) < t.first_block;
      TANDEM_ASSERT(freed == (t.blocks[i] < 0), "a table entry is freed in the wrong place");
      if (!freed) ++seen[static_cast<std::size_t>(t.blocks[i])];
    }
  }
  for (int block = 0; block < pool_.total(); ++block)
    TANDEM_ASSERT(seen[static_cast<std::size_t>(block)] == pool_.references(BlockId(block)),
                  "a block's reference count is not the number of tables that hold it");
}

}  // namespace llama
