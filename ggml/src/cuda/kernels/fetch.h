#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace ggml::cuda {

struct FetchRange {
  const std::uint32_t* from = nullptr;
  std::uint32_t* to = nullptr;
  int words = 0;
};
inline constexpr std::size_t kMaxFetchRanges = 32;
struct FetchRanges {
  FetchRange range[kMaxFetchRanges];
  int n = 0;
};
/// Copies pieces of host memory to the card.
void launch_fetch(const FetchRanges& ranges, CUstream_st* stream);

}  // namespace ggml::cuda
