#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace ggml::cuda {

/// Numbers in host memory that both sides see, a cache line each.
struct HandOverWords {
  alignas(128) volatile std::uint32_t given;   // by the card: the last ticket
  alignas(128) volatile std::uint32_t opened;  // by the host: the last number
  alignas(128) volatile std::uint32_t late;    // by the card: it waited in vain
};

struct HandOverCopy {
  std::uint8_t* to = nullptr;
  const std::uint8_t* from = nullptr;
  std::uint32_t bytes = 0;
};
inline constexpr std::size_t kMostHandOverCopies = 8;
struct HandOverCopies {
  HandOverCopy copy[kMostHandOverCopies];
  int n = 0;
};

/// Copies, then writes `ticket` to `given`; 0: it does not.
void launch_give(const HandOverCopies& copies, HandOverWords* words, std::uint32_t ticket, CUstream_st* stream);
/// Waits until `opened` has reached `number`, at most `patience_ns`, then copies.
void launch_take(const HandOverCopies& copies, HandOverWords* words, std::uint32_t number, std::uint64_t patience_ns,
                 CUstream_st* stream);

}  // namespace ggml::cuda
