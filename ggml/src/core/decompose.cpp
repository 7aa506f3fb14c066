#include "ops/lowering.h"

namespace ggml {

Graph decompose(const Graph& graph, bool (*keep)(const Graph&, const Node&, const void* context), const void* context) {
  Graph lowered;
  lowered.tensors = graph.tensors;
  lowered.token_bucket = graph.token_bucket;
  lowered.output_bucket = graph.output_bucket;
  for (const Node& node : graph.nodes) {
    const OpDef& def = op_def(node.op);
    if (def.decompose == nullptr || (keep != nullptr && keep(graph, node, context))) {
      lowered.nodes.push_back(node);
      continue;
    }
    Lowering to(lowered, node);
    def.decompose(to, node);
  }
  return lowered;
}

Graph decompose(const Graph& graph) {
  return decompose(graph, nullptr, nullptr);
}

}  // namespace ggml
