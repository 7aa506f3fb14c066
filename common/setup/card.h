#pragma once

#include <memory>

#include "common/args/settings.h"
#include "ggml/device.h"

namespace common {

/// The CUDA card that computes the whole model, or null: the CPU does. A card takes all layers or none: what the
/// settings ask for beyond that (some layers, single tensors, experts on the CPU) is said once and runs on the CPU.
///
/// Without -ngl the CPU computes, and a line says that there is a card: not every family has all its ops there yet.
[[nodiscard]] std::unique_ptr<ggml::Device> choose_card(const Settings& settings);

}  // namespace common
