#include <algorithm>
#include <array>
#include <numeric>

#include "ops/op_def.h"

namespace ggml {

namespace {

constexpr int kNever = -1;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// A block of the arena: an activation (with what shares its bytes), or the scratch of one node.
struct Block {
  std::size_t bytes = 0;
  int first = kNever;  // node that writes it first
  int last = kNever;   // node that reads or writes it last
  std::size_t offset = 0;
};

struct Blocks {
  std::vector<Block> all;
  std::vector<int> of_tensor;   // index of a tensor's block, kNever: not in the arena
  std::vector<int> of_scratch;  // per node
};

TensorId base_of(const Graph& graph, TensorId id) {
  const Tensor& t = graph.at(id);
  return t.role == TensorRole::view ? t.base : id;
}

bool in_arena(const Tensor& t) {
  return t.role == TensorRole::activation && !t.port.valid();
}

template <class F>
void for_each_read(const Node& node, F&& f) {
  for (TensorId id : node.src)
    if (id.valid()) f(id);
  for (const Slot& slot : node.slots)
    for (TensorId id : {slot.weight, slot.bias, slot.scale})
      if (id.valid()) f(id);
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
        Block& block = blocks.all[static_cast<std::size_t>(shared)];
        block.last = std::max(block.last, last[b]);
        blocks.of_tensor[b] = shared;
        continue;
      }
      blocks.of_tensor[b] = static_cast<int>(blocks.all.size());
      blocks.all.push_back({aligned(tensor_bytes(t.type, t.shape)), n, last[b], 0});
    }
    if (i < scratch_bytes.size() && scratch_bytes[i] > 0) {
      blocks.of_scratch[i] = static_cast<int>(blocks.all.size());
      blocks.all.push_back({aligned(scratch_bytes[i]), n, n, 0});
    }
  }
  return blocks;
}

std::size_t peak_of(const std::vector<Block>& blocks, std::size_t n_nodes) {
  std::vector<std::size_t> live(n_nodes + 1, 0);
  for (const Block& b : blocks)
    for (int n = b.first; n <= b.last; ++n) live[static_cast<std::size_t>(n)] += b.bytes;
  return *std::max_element(live.begin(), live.end());
}

enum class Fit : std::uint8_t { first, tightest };

// Places block `i` among the already placed ones whose lifetimes meet its own (sorted by offset).
std::size_t place(const Block& block, const std::vector<const Block*>& placed, Fit fit) {
  std::size_t cursor = 0, best = 0, best_gap = SIZE_MAX;
  for (const Block* other : placed) {
    if (other->last < block.first || block.last < other->first) continue;
    if (other->offset > cursor) {
      const std::size_t gap = other->offset - cursor;
      if (gap >= block.bytes && gap < best_gap) {
        best = cursor;
        best_gap = gap;
        if (fit == Fit::first) return best;
      }
    }
    cursor = std::max(cursor, other->offset + other->bytes);
  }
  return best_gap == SIZE_MAX ? cursor : best;
}

std::size_t place_all(std::vector<Block>& blocks, const std::vector<std::size_t>& order, Fit fit) {
  std::vector<const Block*> placed;
  placed.reserve(blocks.size());
  std::size_t end = 0;
  for (std::size_t i : order) {
    Block& block = blocks[i];
    block.offset = place(block, placed, fit);
    end = std::max(end, block.offset + block.bytes);
    const auto at = std::upper_bound(placed.begin(), placed.end(), &block,
                                     [](const Block* a, const Block* b) { return a->offset < b->offset; });
    placed.insert(at, &block);
  }
  return end;
}

// What sticks out at the top goes first next time: a few rounds close most of what the greedy orders leave.
void improve(std::vector<Block>& best, std::size_t& best_end, std::vector<std::size_t> order, std::size_t lower_bound) {
  constexpr int kRounds = 64;
  std::vector<Block> tried = best;
  for (int round = 0; round < kRounds && best_end > lower_bound; ++round) {
    auto end_of = [&](std::size_t i) { return tried[i].offset + tried[i].bytes; };
    const auto top = std::max_element(order.begin(), order.end(),
                                      [&](std::size_t a, std::size_t b) { return end_of(a) < end_of(b); });
    std::rotate(order.begin(), top, top + 1);
    const std::size_t end = place_all(tried, order, round % 2 == 0 ? Fit::first : Fit::tightest);
    if (end >= best_end) continue;
    best_end = end;
    best = tried;
  }
}

// Greedy placement in several orders; the smallest arena wins. Large blocks first is nearly always right, the other
// orders rescue graphs with many blocks of about the same size.
std::size_t place_best(std::vector<Block>& blocks, std::size_t lower_bound) {
  using Key = std::array<std::size_t, 3>;
  auto length = [](const Block& b) { return static_cast<std::size_t>(b.last - b.first + 1); };
  auto birth = [](const Block& b) { return static_cast<std::size_t>(b.first); };
  auto key = [&](const Block& b, int kind) -> Key {
    switch (kind) {
      case 0:
        return {~b.bytes, ~length(b), birth(b)};
      case 1:
        return {~(b.bytes * length(b)), ~b.bytes, birth(b)};
      case 2:
        return {~length(b), ~b.bytes, birth(b)};
      case 3:
        return {birth(b), ~b.bytes, ~length(b)};
      default:
        return {static_cast<std::size_t>(~b.last), ~b.bytes, birth(b)};
    }
  };
  std::vector<std::size_t> order(blocks.size()), best_order;
  std::vector<Block> best;
  std::size_t best_end = SIZE_MAX;
  for (int kind = 0; kind < 5 && best_end > lower_bound; ++kind)
    for (Fit fit : {Fit::tightest, Fit::first}) {
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return key(blocks[a], kind) < key(blocks[b], kind); });
      std::vector<Block> tried = blocks;
      const std::size_t end = place_all(tried, order, fit);
      if (end < best_end) {
        best_end = end;
        best = std::move(tried);
        best_order = order;
      }
    }
  improve(best, best_end, best_order, lower_bound);
  blocks = std::move(best);
  return best_end;
}

}  // namespace

MemoryPlan plan_memory(const Graph& graph, std::span<const std::size_t> scratch_bytes,
                       std::vector<std::size_t>& scratch_offsets) {
  Blocks blocks = collect_blocks(graph, scratch_bytes);
  MemoryPlan plan;
  plan.offsets.assign(graph.tensors.size(), kNotInArena);
  scratch_offsets.assign(graph.nodes.size(), kNotInArena);
  if (blocks.all.empty()) return plan;
  plan.max_live_bytes = peak_of(blocks.all, graph.nodes.size());
  plan.arena_bytes = place_best(blocks.all, plan.max_live_bytes);
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
