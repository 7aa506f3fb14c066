#include "sim/cost_model.h"

#include <algorithm>

namespace ggml::sim {
namespace {

// What a card needs for each program (a captured graph) and each copy beside its bytes; measured on an H200.
constexpr double kProgramSeconds = 5e-6;
constexpr double kNodeSeconds = 1e-6;
constexpr double kCopySeconds = 4e-6;

}  // namespace

double CostModel::run_seconds(const Graph& graph, const StepCounts& counts) const {
  double seconds = kProgramSeconds;
  for (const Node& node : graph.nodes) {
    const bool of_outputs = !node.dst.empty() && graph.at(node.dst[0]).rows == Rows::outputs;
    const Cost cost = node_cost(graph, node, of_outputs ? std::max(counts.n_outputs, 1) : counts.n_tokens);
    const double bytes = cost.weight_bytes + cost.act_bytes + cost.kv_bytes;
    seconds += std::max(bytes / spec_.bandwidth, cost.flops / spec_.arithmetic) + kNodeSeconds;
  }
  return seconds;
}

double CostModel::copy_seconds(std::size_t bytes) const {
  return kCopySeconds + static_cast<double>(bytes) / spec_.link;
}

double CostModel::move_seconds(std::size_t bytes) const {
  return kNodeSeconds + 2.0 * static_cast<double>(bytes) / spec_.bandwidth;
}

}  // namespace ggml::sim
