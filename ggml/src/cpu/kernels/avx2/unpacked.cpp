// x86-64-v3: AVX2, FMA, F16C: the types that are unpacked before they are multiplied.
#include "cpu/kernels/unpacked.h"
#include "cpu/kernels/isa_unit.h"
#include "cpu/kernels/narrow.h"
#include "quant/codec.h"
#include "quant/grids.h"

namespace ggml::cpu {
namespace {

/// As in the unit of the table.
constexpr int kPrefetchBytes = 1024;
constexpr int kGemmVecs = 2, kGemmRows = 3;

#define TANDEM_SIMD "cpu/kernels/body/simd_avx2.inc"
#include "cpu/kernels/body/unpacked_kernels.inc"

}  // namespace

void mul_mat_unpacked_avx2(DType type, const MatmulArgs& args) noexcept {
  mul_mat_unpacked(type, args);
}

}  // namespace ggml::cpu
