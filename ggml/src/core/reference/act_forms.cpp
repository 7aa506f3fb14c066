#include <algorithm>
#include <cmath>

#include "ggml/quant.h"
#include "ggml/reference.h"

namespace ggml {

namespace {

constexpr std::size_t kBlock = 32;
constexpr std::size_t kSuperBlock = 256;

// d = amax / 127, kept as f16; the codes are computed with the unrounded factor, ties to even.
void round_q8(std::span<float> block) noexcept {
  float amax = 0;
  for (float x : block) amax = std::max(amax, std::fabs(x));
  const float d = f16_to_f32(f32_to_f16(amax / 127.0f));
  const float inverse = amax > 0 ? 127.0f / amax : 0.0f;
  for (float& x : block) x = d * std::nearbyint(x * inverse);
}

// The element of greatest magnitude (the first one wins) becomes -127; d stays f32.
void round_q8_k(std::span<float> block) noexcept {
  float m = 0;
  for (float x : block)
    if (std::fabs(x) > std::fabs(m)) m = x;
  if (m == 0) {
    std::fill(block.begin(), block.end(), 0.0f);
    return;
  }
  const float inverse = -127.0f / m;
  const float d = 1.0f / inverse;
  for (float& x : block) x = d * std::min(127.0f, std::nearbyint(inverse * x));
}

template <class F>
void each_block(std::span<float> row, std::size_t block, F&& f) noexcept {
  for (std::size_t i = 0; i < row.size(); i += block) f(row.subspan(i, std::min(block, row.size() - i)));
}

}  // namespace

void round_activations(ActType act, std::span<float> row) noexcept {
  switch (act) {
    case ActType::f32:
      return;
    case ActType::f16:
      for (float& x : row) x = f16_to_f32(f32_to_f16(x));
      return;
    case ActType::bf16:
      for (float& x : row) x = bf16_to_f32(f32_to_bf16(x));
      return;
    case ActType::q8_0:
    case ActType::q8_1:
      return each_block(row, kBlock, round_q8);
    case ActType::q8_k:
      return each_block(row, kSuperBlock, round_q8_k);
  }
}

}  // namespace ggml
