// AVX-512 F, BW, VL, DQ.
#include "cpu/kernels/isa_unit.h"
#include "cpu/kernels/tables.h"
#include "cpu/kernels/unpacked.h"

namespace ggml::cpu {
namespace {

constexpr int kPrefetchBytes = 1024;
/// Vectors of weight rows times activation rows that a GEMM step holds in the 32 registers.
constexpr int kGemmVecs = 2, kGemmRows = 4;
constexpr int kFloatRows = 8;

#define TANDEM_MUL_MAT_UNPACKED mul_mat_unpacked_avx512
#define TANDEM_SIMD "cpu/kernels/body/simd_avx512.inc"
#include "cpu/kernels/body/kernels.inc"

}  // namespace

constexpr KernelTable kTableAvx512Value = make_table("avx512", "AVX-512 F, BW, VL, DQ");
const KernelTable kTableAvx512 = kTableAvx512Value;

}  // namespace ggml::cpu
