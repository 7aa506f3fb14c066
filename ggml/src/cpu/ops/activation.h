#pragma once

#include <cstdint>
#include <optional>

#include "cpu/kernels/kernels.h"
#include "ggml/op.h"

namespace ggml::cpu {

/// dst = act(x), element by element; dst may be x.
void apply_activation(const VecKernels& vec, Activation act, const float* x, std::int64_t n, float* dst) noexcept;

/// dst = act(gate) * up with the forms of GatedParams; dst may be gate, not up.
void apply_gated(const VecKernels& vec, const GatedParams& params, const float* gate, const float* up, std::int64_t n,
                 float* dst) noexcept;

/// The kernel's own name of a gated activation, where the fused gate-and-up kernel has it.
[[nodiscard]] std::optional<GluOp> fused_glu(const GatedParams& params) noexcept;

}  // namespace ggml::cpu
