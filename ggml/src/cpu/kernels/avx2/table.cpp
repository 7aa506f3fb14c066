// x86-64-v3: AVX2, FMA, F16C.
#include "cpu/kernels/isa_unit.h"
#include "cpu/kernels/tables.h"
#include "cpu/kernels/unpacked.h"

namespace ggml::cpu {
namespace {

constexpr int kPrefetchBytes = 1024;
/// Vectors of weight rows times activation rows that a GEMM step holds in the 16 registers: sums in f32 and in 16 bits.
constexpr int kGemmVecs = 2, kGemmRows = 3;
constexpr int kFloatRows = 4;

#define TANDEM_MUL_MAT_UNPACKED mul_mat_unpacked_avx2
#define TANDEM_SIMD "cpu/kernels/body/simd_avx2.inc"
#include "cpu/kernels/body/kernels.inc"

}  // namespace

constexpr KernelTable kTableAvx2Value = make_table("avx2", "AVX2, FMA, F16C (x86-64-v3)");
const KernelTable kTableAvx2 = kTableAvx2Value;

}  // namespace ggml::cpu
