#pragma once

#include <cstdint>

#include "ggml/type.h"

struct CUstream_st;

namespace ggml::cuda {

/// Blocks of a weight as they are in the file, in memory of the card, and the planes that they become (cuda/planes.h).
struct RewriteArgs {
  const std::uint8_t* blocks = nullptr;  // the first one, aligned to 16
  std::int64_t first_unit = 0;           // of it in the whole weight
  std::int64_t n_units = 0;              // whole blocks
  std::uint8_t* codes = nullptr;         // planes of the whole weight
  std::uint8_t* high = nullptr;
  std::uint8_t* scales = nullptr;
  std::uint8_t* supers = nullptr;
};

/// Whether there is a kernel that rewrites blocks of this type.
[[nodiscard]] bool can_rewrite(DType type) noexcept;
/// Pre: can_rewrite(type).
void launch_rewrite(DType type, const RewriteArgs& args, CUstream_st* stream);

}  // namespace ggml::cuda
