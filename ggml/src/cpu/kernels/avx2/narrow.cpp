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
  const auto i = static_cast<std::size_t>(type);
  return kNarrowFunctions[i] != nullptr ? kNarrowFunctions[i] : kRowsGemv[i];
}

MatmulFn single_row_function(DType type) noexcept {
  return kSingleFunctions[static_cast<std::size_t>(type)];
}

quant::UnpackFn vector_unpack(DType type) noexcept {
  return kVectorUnpack[static_cast<std::size_t>(type)];
}

const RowsForm* rows_form(DType type) noexcept {
  const RowsForm& form = kRowsForms[static_cast<std::size_t>(type)];
  return form.fill != nullptr ? &form : nullptr;
}

}  // namespace ggml::cpu
