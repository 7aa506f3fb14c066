#pragma once

#include "op_def.h"

/// Cost functions that several ops share. Activation bytes scale with the real rows; weights count once.
namespace ggml::cost {

/// Slots are matrices that are read whole; sources that are weights likewise. 2 K N flops per row and matrix.
[[nodiscard]] Cost matmul(const Graph& graph, const Node& node, int tokens);
/// Every source and result is passed over once; one flop per element of the results.
[[nodiscard]] Cost elementwise(const Graph& graph, const Node& node, int tokens);
/// Source or slot 0 is a table of which only the wanted rows are read.
[[nodiscard]] Cost table(const Graph& graph, const Node& node, int tokens);
/// Expert stacks (slots, or source 0): the expected number of distinct experts among tokens * n_used draws is read.
[[nodiscard]] Cost experts(const Graph& graph, const Node& node, int tokens);
/// Attention: what the new rows bring; reading the stored cells depends on the step and is not included.
[[nodiscard]] Cost attention(const Graph& graph, const Node& node, int tokens);

}  // namespace ggml::cost
