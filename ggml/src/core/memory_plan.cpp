#include <algorithm>

#include "core/block_placement.h"
#include "core/graph_walk.h"
#include "ops/op_def.h"

namespace ggml {

namespace {

constexpr int kNever = -1;

std::size_t arena_aligned(std::size_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

struct Blocks {
  std::vector<MemoryBlock> all;  // activations, each with what shares its bytes, and the scratch of single nodes
  std::vector<int> of_tensor;    // index of a tensor's block, kNever: not in the arena
  std::vector<int> of_scratch;   // per node
};

bool in_arena(const Tensor& t) {
  return t.role == TensorRole::activation && !t.port.valid();
}

// Last node that touches each base tensor.
std::vector<int> last_uses(const Graph& graph) {
  std::vector<int> last(graph.tensors.size(), kNever);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    auto touch = [&](TensorId id) { last[static_cast<std::size_t>(base_of(graph, id).v)] = static_cast<int>(n); };
    for_each_read(graph.nodes[n], touch);
    for (TensorId id : graph.nodes[n].dst) touch(id);
  }
  return last;
}

// The tensor on top of which the node's result may lie, or an invalid id. The other operands must not look at the same
// bytes from another place: they would be overwritten before they are read.
TensorId host_of_result(const Graph& graph, const Node& node, const std::vector<int>& last, int n) {
  if (!op_def(node.op).in_place || node.dst.size() != 1 || node.src.empty()) return {};
  const Tensor& dst = graph.at(node.dst[0]);
  const Tensor& src = graph.at(node.src[0]);
  const TensorId base = base_of(graph, node.src[0]);
  const bool whole = dst.role == TensorRole::activation && src.shape == dst.shape && src.type == dst.type &&
                     graph.at(base).shape.elements() == dst.shape.elements() && graph.at(base).type == dst.type;
  if (!whole || !in_arena(dst) || !in_arena(graph.at(base)) || last[static_cast<std::size_t>(base.v)] != n) return {};
  for (std::size_t i = 1; i < node.src.size(); ++i)
    if (base_of(graph, node.src[i]) == base && graph.at(node.src[i]).shape != src.shape) return {};
  return base;
}

Blocks collect_blocks(const Graph& graph, std::span<const std::size_t> scratch_bytes) {
  Blocks blocks;
  blocks.of_tensor.assign(graph.tensors.size(), kNever);
  blocks.of_scratch.assign(graph.nodes.size(), kNever);
  const std::vector<int> last = last_uses(graph);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const int n = static_cast<int>(i);
    const Node& node = graph.nodes[i];
    const TensorId host = host_of_result(graph, node, last, n);
    for (TensorId id : node.dst) {
      const TensorId base = base_of(graph, id);
      const auto b = static_cast<std::size_t>(base.v);
      const Tensor& t = graph.at(base);
      if (!in_arena(t) || blocks.of_tensor[b] != kNever) continue;
      if (host.valid() && blocks.of_tensor[static_cast<std::size_t>(host.v)] != kNever) {
        const int shared = blocks.of_tensor[static_cast<std::size_t>(host.v)];
        MemoryBlock& block = blocks.all[static_cast<std::size_t>(shared)];
        block.last = std::max(block.last, last[b]);
        blocks.of_tensor[b] = shared;
        continue;
      }
      blocks.of_tensor[b] = static_cast<int>(blocks.all.size());
      blocks.all.push_back({arena_aligned(tensor_bytes(t.type, t.shape)), n, last[b], 0});
    }
    if (i < scratch_bytes.size() && scratch_bytes[i] > 0) {
      blocks.of_scratch[i] = static_cast<int>(blocks.all.size());
      blocks.all.push_back({arena_aligned(scratch_bytes[i]), n, n, 0});
    }
  }
  return blocks;
}

}  // namespace

MemoryPlan plan_memory(const Graph& graph, std::span<const std::size_t> scratch_bytes,
                       std::vector<std::size_t>& scratch_offsets) {
  Blocks blocks = collect_blocks(graph, scratch_bytes);
  MemoryPlan plan;
  plan.offsets.assign(graph.tensors.size(), kNotInArena);
  scratch_offsets.assign(graph.nodes.size(), kNotInArena);
  if (blocks.all.empty()) return plan;
  plan.max_live_bytes = peak_bytes(blocks.all);
  plan.arena_bytes = place_blocks(blocks.all);
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& t = graph.tensors[i];
    const int block =
        blocks.of_tensor[static_cast<std::size_t>(base_of(graph, TensorId(static_cast<std::int32_t>(i))).v)];
    if (block == kNever) continue;
    const std::size_t within = t.role == TensorRole::view ? static_cast<std::size_t>(t.offset_bytes) : 0;
    plan.offsets[i] = blocks.all[static_cast<std::size_t>(block)].offset + within;
  }
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    if (blocks.of_scratch[n] != kNever)
      scratch_offsets[n] = blocks.all[static_cast<std::size_t>(blocks.of_scratch[n])].offset;
  return plan;
}

}  // namespace ggml
