#pragma once

#include <cstdint>
#include <vector>

#include "preset.h"
#include "tensor_plan.h"

namespace gguf_tool {

/// How the values of tensors that are not plain random blocks are made.
struct SpecialValues {
  std::uint64_t seed = 0;
  double router_skew = 0;
};

/// True when the tensor's values come from special_values() and not from RandomBlocks.
[[nodiscard]] bool is_special(const PlannedTensor& tensor, double router_skew);
/// All values of a special tensor, in file order. Pre: is_special() and type F32.
[[nodiscard]] std::vector<float> special_values(const PlannedTensor& tensor, const Preset& preset,
                                                const SpecialValues& how);

}  // namespace gguf_tool
