// AVX-512 with VNNI.
#include "cpu/kernels/isa_unit.h"
#include "cpu/kernels/tables.h"
#include "cpu/kernels/unpacked.h"

namespace ggml::cpu {
namespace {

constexpr int kPrefetchBytes = 1024;
/// Vectors of weight rows times activation rows that a GEMM step holds in the 32 registers.
constexpr int kGemmVecs = 2, kGemmRows = 4;
constexpr int kFloatRows = 8;

#define TANDEM_MUL_MAT_UNPACKED mul_mat_unpacked_avx512vnni
#define TANDEM_SIMD "cpu/kernels/body/simd_avx512.inc"
#include "cpu/kernels/body/kernels.inc"

}  // namespace

constexpr KernelTable kTableAvx512VnniValue = make_table("avx512vnni", "AVX-512 with VNNI");
const KernelTable kTableAvx512Vnni = kTableAvx512VnniValue;

}  // namespace ggml::cpu
