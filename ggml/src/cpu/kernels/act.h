#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/kernels.h"

/// The integer activation forms as they lie in memory; see ActView for how pieces make up rows.
namespace ggml::cpu {

/// 256 rounded activations. 384 bytes are six cache lines, so pieces of an aligned buffer stay aligned.
///
/// q8_0, q8_1: d[g], s[g] and zsum[g] belong to the 32 elements of group g; zsum[8..15] are 0.
///   s = d * sum(q), exact but for one rounding, so that a minimum meets the very values that the codes meet; for q8_1
///   it is rounded to half, as the form stores it.
/// q8_k: d[g] are all the same; s[g] = sum(q) of 32, as float and without d; zsum[t] belong to 16 elements each.
/// zsum = -128 * sum(q): kernels with unsigned codes start or end their integer sums with it (or with a smaller
/// power of two of it, by a shift), which takes out the codes' zero point exactly.
struct ActPiece {
  std::int8_t q[kActPiece];
  float d[8];
  float s[8];
  std::int32_t zsum[16];
};
static_assert(sizeof(ActPiece) == 384);

inline constexpr int kZeroPoint = 128;  // zsum's factor

}  // namespace ggml::cpu
