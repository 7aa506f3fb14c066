// AVX-512 with VNNI, VBMI, VBMI2 and BF16.
#include "cpu/kernels/isa_unit.h"
#include "cpu/kernels/tables.h"
#include "cpu/kernels/unpacked.h"

namespace ggml::cpu {
namespace {

constexpr int kPrefetchBytes = 1024;
/// Vectors of weight rows times activation rows that a GEMM step holds in the 32 registers.
constexpr int kGemmVecs = 2, kGemmRows = 4;
constexpr int kFloatRows = 8;

#define TANDEM_MUL_MAT_UNPACKED mul_mat_unpacked_avx512vbmi
#define TANDEM_SIMD "cpu/kernels/body/simd_avx512.inc"
#include "cpu/kernels/body/kernels.inc"

}  // namespace

constexpr KernelTable kTableAvx512VbmiValue = make_table("avx512vbmi", "AVX-512 with VNNI, VBMI, VBMI2 and BF16");
const KernelTable kTableAvx512Vbmi = kTableAvx512VbmiValue;

}  // namespace ggml::cpu
