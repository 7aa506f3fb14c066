// The toy type's plain codec: decode, encode, sanity.
#include <algorithm>
#include <cmath>

#include "cpu/kernels/toy/toy_block.h"
#include "quant/block_codec.h"
#include "quant/search.h"

namespace ggml::quant {
namespace {

struct Toy4 {
  using Block = BlockToy4;
  static constexpr int kWeights = 32;
  static constexpr bool kHasMin = false;
  static constexpr int kReach = 8;
  static constexpr int kZero = 8;
  static void decode(const Block& block, std::int8_t* code, float* scale, float* add) {
    for (int e = 0; e < kWeights; ++e) {
      code[e] = static_cast<std::int8_t>(((block.qs[e / 2] >> 4 * (e % 2)) & 15) - kZero);
    }
    scale[0] = scale[1] = f16_to_f32(block.d);
    add[0] = add[1] = 0;
  }
  static bool sane(const Block& block) { return finite_half(block.d); }
  static void encode(const float* x, const float* /*importance*/, std::int64_t k, Block* out) {
    for (std::int64_t b = 0; b < k / kWeights; ++b) {
      const float* xb = x + b * kWeights;
      const float d = std::fabs(signed_max(xb, kWeights)) / 7;
      out[b] = {f32_to_f16(d), {}};
      for (int e = 0; e < kWeights; ++e) {
        const int q = std::clamp(d != 0 ? nint(xb[e] / d) : 0, -7, 7) + kZero;
        out[b].qs[e / 2] = static_cast<std::uint8_t>(out[b].qs[e / 2] | q << 4 * (e % 2));
      }
    }
  }
};

}  // namespace

const WeightCodec k_codec_toy4 = kBlockCodec<Toy4>;

}  // namespace ggml::quant
