#pragma once

#include <vector>

#include "llama/placement.h"

namespace llama {

/// Where -ngl, -sm, -ts and -mg put the layers and, as the last entry, the output head: n_layer + 1 entries.
[[nodiscard]] std::vector<ggml::DeviceId> layer_devices(int n_layer, const std::vector<PlanDevice>& devices,
                                                        const PlacementRules& rules);

}  // namespace llama
