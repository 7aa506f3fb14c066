#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "llama/placement.h"

namespace llama {

/// Whether a tensor belongs to the routed experts: ffn_(up|down|gate|gate_up)_(ch)exps with what hangs on it; never
/// shared experts or the router.
[[nodiscard]] bool is_routed_expert(std::string_view name);
/// Whether it is a matrix (or bias, scale) of a dense feed-forward.
[[nodiscard]] bool is_dense_ffn(std::string_view name);

/// The blocks whose experts --n-cpu-moe keeps on the CPU. `blocks`: those that have routed experts, sorted;
/// `layer_device`: where layer placement put each layer.
[[nodiscard]] std::vector<int> cpu_expert_blocks(const std::vector<int>& blocks,
                                                 const std::vector<ggml::DeviceId>& layer_device, int n,
                                                 ExpertBlocks which);

/// "--n-cpu-moe 10:last"
[[nodiscard]] std::string n_cpu_moe_text(int n, ExpertBlocks which);

/// The blocks that have routed experts, sorted.
[[nodiscard]] std::vector<int> expert_blocks(const PlanModel& model);

}  // namespace llama
