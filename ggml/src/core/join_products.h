#pragma once

#include <functional>

#include "ggml/graph.h"

namespace ggml {

/// Joins the rounding of activations and a product with a matrix, as decompositions write them, to one `linear` node,
/// for which devices have fast kernels, where `can_run` says that some device can do that. `before`: the graph that was
/// decomposed; products and roundings that it had stay.
void join_products(Graph& graph, const Graph& before, const std::function<bool(const Graph&, const Node&)>& can_run);

}  // namespace ggml
