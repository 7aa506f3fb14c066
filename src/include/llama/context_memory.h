#pragma once

#include <vector>

#include "llama/placement.h"

namespace llama {

/// What contexts of `params` need on these devices, found by making one of an outline with devices that only count: the
/// same code that the real context runs. All arguments are borrowed by the result but for `params`; the first device is
/// the CPU.
[[nodiscard]] ContextMemory context_memory(Model& outline, std::vector<ggml::Device*> devices,
                                           const std::vector<PlanDevice>& descriptions, const ContextParams& params);

}  // namespace llama
