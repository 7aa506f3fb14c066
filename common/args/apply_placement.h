#pragma once

#include "common/args/option.h"

namespace common {

// What options of the same meaning do in llama-bench and in the other programs.
void apply_split_mode(Target& target, const Argument& argument);
void apply_tensor_split(Target& target, const Argument& argument);
void apply_device(Target& target, const Argument& argument);

}  // namespace common
