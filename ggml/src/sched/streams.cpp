#include "sched/streams.h"

#include <algorithm>
#include <unordered_map>

#include "core/graph_walk.h"

namespace ggml::sched {
namespace {

constexpr std::size_t kAlign = 256;

bool lies_on_host_alone(const Weight& weight) {
  return !weight.placements.empty() && std::ranges::all_of(weight.placements, [](const Placement& p) {
    return p.kind != BufferKind::device && p.axis == PlacementAxis::whole;
  });
}

/// Finds and numbers the streams of a graph.
class Collector {
 public:
  Collector(Graph& graph, const Streaming& streaming, const Device& device)
      : graph_(graph), streaming_(streaming), device_(device) {}

  Streams run() {
    for (const Node& node : graph_.nodes) look_at(node);
    for (const std::unique_ptr<Stream>& stream : streams_.all)
      for (const TensorId id : stream->in) graph_.at(id).weight = &stream->there;
    return std::move(streams_);
  }

 private:
  void look_at(const Node& node) {
    switch (node.op) {
      case Op::linear:
      case Op::qkv:
      case Op::ffn:
      case Op::moe_route:
        add_slots(node, {});
        return;
      case Op::moe_ffn:
        add_slots(node, node.src[1]);
        return;
      case Op::mul_mat:
        (void)add_product(node.src[0], {});
        return;
      case Op::mul_mat_id:
        (void)add_product(node.src[0], node.src[2]);
        return;
      default:
        return;
    }
  }

  /// The small tensors of a node go where its matrices go.
  void add_slots(const Node& node, TensorId ids) {
    bool any = false;
    for (const Slot& slot : node.slots) any |= add_product(slot.weight, ids);
    if (!any) return;
    for (const Slot& slot : node.slots)
      for_each_of_slot(slot, [&](TensorId id) {
        if (id.valid() && is_streamable(id) && (id != slot.weight || graph_.at(id).shape[1] < 2)) add(id, {});
      });
  }

  [[nodiscard]] bool is_streamable(TensorId id) const {
    const Tensor& t = graph_.at(id);
    return t.role == TensorRole::weight && lies_on_host_alone(*t.weight) && device_.streams_weights(t.type);
  }

  bool add_product(TensorId id, TensorId ids) {
    if (!id.valid() || !is_streamable(id)) return false;
    const Tensor& t = graph_.at(id);
    if (t.shape[1] < 2 || !streaming_.wanted(*t.weight)) return false;
    add(id, ids);
    return true;
  }

  void add(TensorId id, TensorId ids) {
    const Weight* weight = graph_.at(id).weight;
    const auto [known, is_new] = number_of_.try_emplace(weight, streams_.all.size());
    if (!is_new) {
      std::vector<TensorId>& in = streams_.all[known->second]->in;
      if (std::ranges::find(in, id) == in.end()) in.push_back(id);
      return;
    }
    auto stream = std::make_unique<Stream>();
    stream->source = weight;
    stream->offset = streams_.bytes;
    stream->in = {id};
    const std::int64_t n_experts = weight->shape[2];
    if (ids.valid() && n_experts > 1 &&
        tensor_bytes(weight->type, weight->shape) % static_cast<std::size_t>(n_experts) == 0) {
      stream->n_experts = n_experts;
      stream->ids = base_of(graph_, ids);
    }
    stream->there = *weight;
    for (Placement& p : stream->there.placements) p.role = PlacementRole::cache;  // for ops that the device lacks
    Placement staged;
    staged.device = DeviceId(streaming_.device);
    staged.kind = BufferKind::device;
    stream->there.placements.insert(stream->there.placements.begin(), staged);
    streams_.bytes += (device_.weight_bytes(weight->type, weight->shape) + kAlign - 1) / kAlign * kAlign;
    streams_.all.push_back(std::move(stream));
  }

  Graph& graph_;
  const Streaming& streaming_;
  const Device& device_;
  Streams streams_;
  std::unordered_map<const Weight*, std::size_t> number_of_;
};

}  // namespace

Streams take_streams(Graph& graph, const Streaming& streaming, const Device& device) {
  return Collector(graph, streaming, device).run();
}

const std::byte* host_bytes(const Weight& weight) {
  for (const Placement& p : weight.placements)
    if (p.kind != BufferKind::device && p.data != nullptr) return p.data;
  return nullptr;
}

}  // namespace ggml::sched
