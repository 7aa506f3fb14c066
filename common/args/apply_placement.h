#pragma once

#include "common/args/option.h"

namespace common {

// What options of the same meaning do in llama-bench and in the other programs.
void apply_split_mode(Target& target, const Argument& argument);
void apply_tensor_split(Target& target, const Argument& argument);
void apply_device(Target& target, const Argument& argument);
/// Takes ":first", ":last" or ":even" off the end of what --n-cpu-moe was given; automatic without one.
[[nodiscard]] ExpertBlocks take_expert_blocks(const Argument& argument, std::string& number);

}  // namespace common
