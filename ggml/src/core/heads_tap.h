#pragma once

#include <cstdint>
#include <span>

#include "ggml/device.h"
#include "ggml/graph.h"

namespace ggml {

/// Shows the observer the input of a product with one matrix per head: a weight of one matrix for each of `n_head`
/// heads sees each head's rows, any other weight all of them. `rows` [k, n_head, T], or [k, T] where all heads share
/// them.
void show_heads_tap(Observer& observer, const Weight& weight, std::span<const float> rows, int n_head, bool shared);

}  // namespace ggml
