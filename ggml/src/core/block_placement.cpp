#include "core/block_placement.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

namespace ggml {

namespace {

enum class Fit : std::uint8_t { first, tightest };

// Places block `i` among the already placed ones whose lifetimes meet its own (sorted by offset).
std::size_t place(const MemoryBlock& block, const std::vector<const MemoryBlock*>& placed, Fit fit) {
  std::size_t cursor = 0, best = 0, best_gap = SIZE_MAX;
  for (const MemoryBlock* other : placed) {
    if (other->last < block.first || block.last < other->first) continue;
    if (other->offset > cursor) {
      const std::size_t gap = other->offset - cursor;
      if (gap >= block.bytes && gap < best_gap) {
        best = cursor;
        best_gap = gap;
        if (fit == Fit::first) return best;
      }
    }
    cursor = std::max(cursor, other->offset + other->bytes);
  }
  return best_gap == SIZE_MAX ? cursor : best;
}

std::size_t place_all(std::vector<MemoryBlock>& blocks, const std::vector<std::size_t>& order, Fit fit) {
  std::vector<const MemoryBlock*> placed;
  placed.reserve(blocks.size());
  std::size_t end = 0;
  for (std::size_t i : order) {
    MemoryBlock& block = blocks[i];
    block.offset = place(block, placed, fit);
    end = std::max(end, block.offset + block.bytes);
    const auto at = std::upper_bound(placed.begin(), placed.end(), &block,
                                     [](const MemoryBlock* a, const MemoryBlock* b) { return a->offset < b->offset; });
    placed.insert(at, &block);
  }
  return end;
}

// What sticks out at the top goes first next time: a few rounds close most of what the greedy orders leave.
void improve(std::vector<MemoryBlock>& best, std::size_t& best_end, std::vector<std::size_t> order,
             std::size_t lower_bound) {
  constexpr int kRounds = 64;
  std::vector<MemoryBlock> tried = best;
  for (int round = 0; round < kRounds && best_end > lower_bound; ++round) {
    auto end_of = [&](std::size_t i) { return tried[i].offset + tried[i].bytes; };
    const auto top = std::max_element(order.begin(), order.end(),
                                      [&](std::size_t a, std::size_t b) { return end_of(a) < end_of(b); });
    std::rotate(order.begin(), top, top + 1);
    const std::size_t end = place_all(tried, order, round % 2 == 0 ? Fit::first : Fit::tightest);
    if (end >= best_end) continue;
    best_end = end;
    best = tried;
  }
}

}  // namespace

std::size_t peak_bytes(std::span<const MemoryBlock> blocks) {
  int end = 0;
  for (const MemoryBlock& b : blocks) end = std::max(end, b.last + 1);
  std::vector<std::size_t> live(static_cast<std::size_t>(end) + 1, 0);
  for (const MemoryBlock& b : blocks)
    for (int n = b.first; n <= b.last; ++n) live[static_cast<std::size_t>(n)] += b.bytes;
  return *std::max_element(live.begin(), live.end());
}

// Greedy placement in several orders; the smallest arena wins. Large blocks first is nearly always right, the other
// orders rescue graphs with many blocks of about the same size.
std::size_t place_blocks(std::vector<MemoryBlock>& blocks) {
  if (blocks.empty()) return 0;
  const std::size_t lower_bound = peak_bytes(blocks);
  using Key = std::array<std::size_t, 3>;
  auto length = [](const MemoryBlock& b) {
    return static_cast<std::size_t>(b.last) - static_cast<std::size_t>(b.first) + 1;
  };
  auto birth = [](const MemoryBlock& b) { return static_cast<std::size_t>(b.first); };
  auto key = [&](const MemoryBlock& b, int kind) -> Key {
    switch (kind) {
      case 0:
        return {~b.bytes, ~length(b), birth(b)};
      case 1:
        return {~(b.bytes * length(b)), ~b.bytes, birth(b)};
      case 2:
        return {~length(b), ~b.bytes, birth(b)};
      case 3:
        return {birth(b), ~b.bytes, ~length(b)};
      default:
        return {static_cast<std::size_t>(~b.last), ~b.bytes, birth(b)};
    }
  };
  std::vector<std::size_t> order(blocks.size()), best_order;
  std::vector<MemoryBlock> best;
  std::size_t best_end = SIZE_MAX;
  for (int kind = 0; kind < 5 && best_end > lower_bound; ++kind)
    for (Fit fit : {Fit::tightest, Fit::first}) {
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return key(blocks[a], kind) < key(blocks[b], kind); });
      std::vector<MemoryBlock> tried = blocks;
      const std::size_t end = place_all(tried, order, fit);
      if (end < best_end) {
        best_end = end;
        best = std::move(tried);
        best_order = order;
      }
    }
  improve(best, best_end, best_order, lower_bound);
  blocks = std::move(best);
  return best_end;
}

}  // namespace ggml
