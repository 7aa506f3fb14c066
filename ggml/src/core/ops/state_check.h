#pragma once

#include "op_def.h"

/// What the ops with recurrent state check alike.
namespace ggml::state_check {

/// Pool and spans at sources i and i + 1; a state of `floats` inside a slot.
void inputs(const OpInputs& in, std::size_t i, const StateLayout& state, std::int64_t floats);

}  // namespace ggml::state_check
