#include "kv/block_pool.h"

#include <algorithm>

#include "ggml/error.h"

namespace llama {

BlockPool::BlockPool(int n_blocks) : references_(static_cast<std::size_t>(n_blocks), 0) {
  free_.reserve(references_.size());
  for (int block = n_blocks - 1; block >= 0; --block) free_.push_back(block);
}

BlockId BlockPool::take() {
  TANDEM_ASSERT(!free_.empty(), "take() from an empty pool; callers count first");
  const BlockId block(free_.back());
  free_.pop_back();
  references_[static_cast<std::size_t>(block.v)] = 1;
  untouched_from_ = std::max(untouched_from_, block.v + 1);
  return block;
}

void BlockPool::retain(BlockId block) {
  std::int32_t& count = references_[static_cast<std::size_t>(block.v)];
  TANDEM_ASSERT(count > 0, "retain() of a free block");
  ++count;
}

void BlockPool::release(BlockId block) {
  std::int32_t& count = references_[static_cast<std::size_t>(block.v)];
  TANDEM_ASSERT(count > 0, "release() of a free block");
  if (--count == 0) free_.push_back(block.v);
}

void BlockPool::check_integrity() const {
  std::vector<bool> is_free(references_.size(), false);
  for (const std::int32_t block : free_) {
    TANDEM_ASSERT(block >= 0 && block < total(), "a number in the free list is outside the pool");
    TANDEM_ASSERT(!is_free[static_cast<std::size_t>(block)], "a block is in the free list twice");
    is_free[static_cast<std::size_t>(block)] = true;
  }
  for (std::size_t block = 0; block < references_.size(); ++block) {
    TANDEM_ASSERT(references_[block] >= 0, "a reference count is negative");
    TANDEM_ASSERT(is_free[block] == (references_[block] == 0), "free list and reference counts disagree");
  }
}

}  // namespace llama
