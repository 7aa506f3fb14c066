#pragma once

#include <cstdint>
#include <vector>

#include "llama/types.h"

namespace llama {

/// Reference-counted block numbers of one KV group. Knows nothing of the bytes behind them. Thread-compatible.
class BlockPool {
 public:
  explicit BlockPool(int n_blocks);

  [[nodiscard]] int total() const { return static_cast<int>(references_.size()); }
  [[nodiscard]] int free() const { return static_cast<int>(free_.size()); }
  [[nodiscard]] int references(BlockId block) const { return references_[static_cast<std::size_t>(block.v)]; }
  /// Blocks from this number on were never handed out: their memory has not been written.
  [[nodiscard]] int untouched_from() const { return untouched_from_; }

  /// A block with one reference. Pre: free() > 0.
  [[nodiscard]] BlockId take();
  void retain(BlockId block);
  /// Gives one reference back; the block is free after the last.
  void release(BlockId block);
  /// Asserts that the free list and the counts agree.
  void check_integrity() const;

 private:
  std::vector<std::int32_t> references_;
  std::vector<std::int32_t> free_;  // a stack; the lowest number on top at first
  int untouched_from_ = 0;
};

}  // namespace llama
