#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda/bound_op.h"

namespace ggml::cuda {

using Binder = std::function<std::unique_ptr<BoundOp>(const BindContext& context, const Node& node, Carver& carver)>;

/// A graph in the form a card runs: coarse nodes it has kernels for, primitives for the rest, and nodes that do what
/// several did.
struct LoweredGraph {
  Graph graph;
  std::vector<Binder> binders;     // per node
  std::vector<std::string> notes;  // per node, for describe()
  std::vector<RoundedTensor> rounded;
};

}  // namespace ggml::cuda
