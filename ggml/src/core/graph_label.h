#pragma once

#include <string>

#include "ggml/graph.h"

namespace ggml {

/// "attn_norm-3 .. ffn_moe_out-3": first and last node of a graph, as a trace shows it.
[[nodiscard]] std::string label_of(const Graph& graph);

}  // namespace ggml
