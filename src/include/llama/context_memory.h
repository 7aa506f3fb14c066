#pragma once

#include <functional>
#include <vector>

#include "llama/placement.h"

namespace llama {

/// What contexts of `params` need on these devices, found by making one of an outline with devices that only count: the
/// same code that the real context runs. All arguments are borrowed by the result but for `params`; the first device is
/// the CPU. `offload_of` says what a plan's context does about prompts with weights in host memory; empty: nothing.
[[nodiscard]] ContextMemory context_memory(Model& outline, std::vector<ggml::Device*> devices,
                                           const std::vector<PlanDevice>& descriptions, const ContextParams& params,
                                           std::function<OpOffload(const Plan&)> offload_of = {});

}  // namespace llama
