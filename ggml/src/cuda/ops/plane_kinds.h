#pragma once

#include "cuda/planes.h"
#include "ggml/error.h"

namespace ggml::cuda {

/// Calls f.template operator()<kBits, kForm, kCenter>() for a kind of planes: one line per file in instances/.
template <class F>
void with_planes(const PlaneSpec& spec, F&& f) {
#define PLANES(bits, scale_form, center)                                     \
  if (spec.code_bits == (bits) && spec.form == ScaleForm::scale_form) {      \
    return f.template operator()<(bits), ScaleForm::scale_form, (center)>(); \
  }
  PLANES(4, half, 8)
  PLANES(4, half_min, 0)
  PLANES(4, k_min, 0)
  PLANES(5, half, 16)
  PLANES(5, half_min, 0)
  PLANES(5, k_min, 0)
  PLANES(6, k_16, 32)
  PLANES(8, half, 0)
  PLANES(8, wide, 0)
#undef PLANES
  TANDEM_ASSERT(false, "a kind of planes has no kernels");
}

}  // namespace ggml::cuda
