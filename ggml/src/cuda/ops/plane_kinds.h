#pragma once

#include "cuda/kernels/plane_kinds.h"
#include "ggml/error.h"

namespace ggml::cuda {

/// Calls f.template operator()<kBits, kForm, kCenter>() for a kind of planes: one line per file in instances/.
template <class F>
void with_planes(const PlaneSpec& spec, F&& f) {
#define KIND(bits, scale_form, center)                                       \
  if (spec.code_bits == (bits) && spec.form == ScaleForm::scale_form) {      \
    return f.template operator()<(bits), ScaleForm::scale_form, (center)>(); \
  }
  GGML_CUDA_PLANE_KINDS(KIND)
#undef KIND
  TANDEM_ASSERT(false, "a kind of planes has no kernels");
}

[[nodiscard]] inline PlaneKind plane_kind(const PlaneSpec& spec) {
#define KIND(bits, scale_form, center) \
  if (spec.code_bits == (bits) && spec.form == ScaleForm::scale_form) return PlaneKind::bits_##bits##_##scale_form;
  GGML_CUDA_PLANE_KINDS(KIND)
#undef KIND
  TANDEM_ASSERT(false, "a kind of planes has no kernels");
  return {};
}

}  // namespace ggml::cuda
