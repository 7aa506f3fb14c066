// The build with the toy type has no types that are unpacked first: nobody multiplies with one here.
#include "cpu/kernels/unpacked.h"
#include "ggml/error.h"

namespace ggml::cpu {
namespace {

[[noreturn]] void left_out() noexcept {
  TANDEM_ASSERT(false, "this build multiplies through decoders only");
  __builtin_unreachable();
}

}  // namespace

void mul_mat_unpacked_avx2(DType, const MatmulArgs&) noexcept {
  left_out();
}
void mul_mat_unpacked_avx512(DType, const MatmulArgs&) noexcept {
  left_out();
}
void mul_mat_unpacked_avx512vnni(DType, const MatmulArgs&) noexcept {
  left_out();
}
void mul_mat_unpacked_avx512vbmi(DType, const MatmulArgs&) noexcept {
  left_out();
}

}  // namespace ggml::cpu
