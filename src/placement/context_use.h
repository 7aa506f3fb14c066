#pragma once

#include <cstdint>
#include <vector>

#include "llama/plan.h"

namespace llama {

/// Fills in `use` of a plan that place() made: the cache of each layer where the plan has it, and what lies beside.
void add_use(const std::vector<std::uint64_t>& kv_per_layer, const std::vector<DeviceUse>& beside, Plan& plan);

}  // namespace llama
