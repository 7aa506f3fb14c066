#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ggml {

/// Bytes that are needed from one moment to another, both included. Moments are numbers from 0 on.
struct MemoryBlock {
  std::size_t bytes = 0;
  int first = 0;
  int last = 0;
  std::size_t offset = 0;  // set by place_blocks
};

/// Gives blocks that are needed at one time separate places; returns the bytes of all together.
std::size_t place_blocks(std::vector<MemoryBlock>& blocks);
/// The lower bound: the greatest sum of bytes needed at one time.
[[nodiscard]] std::size_t peak_bytes(std::span<const MemoryBlock> blocks);

}  // namespace ggml
