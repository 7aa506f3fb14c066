#include "core/graph_label.h"

namespace ggml {

std::string label_of(const Graph& graph) {
  if (graph.nodes.empty()) return "empty";
  const std::string& first = graph.nodes.front().name;
  const std::string& last = graph.nodes.back().name;
  return first == last ? first : first + " .. " + last;
}

}  // namespace ggml
