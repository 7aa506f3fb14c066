// x86-64-v3: AVX2, FMA, F16C: products with a few activation rows of types that are unpacked for more of them.
#include "cpu/kernels/narrow.h"

#include "cpu/kernels/isa_unit.h"
#include "quant/codec.h"
#include "quant/grids.h"

namespace ggml::cpu {
namespace {

constexpr int kPrefetchBytes = 1024;

#define TANDEM_SIMD "cpu/kernels/body/simd_avx2.inc"
#include "cpu/kernels/body/narrow_kernels.inc"

}  // namespace

MatmulFn narrow_function(DType type) noexcept {
  return kNarrowFunctions[static_cast<std::size_t>(type)];
}

}  // namespace ggml::cpu
