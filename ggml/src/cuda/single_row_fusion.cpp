#include <algorithm>
#include <optional>

#include "core/graph_walk.h"
#include "cuda/fusion.h"
#include "cuda/ops/single_row.h"
#include "ggml/log.h"

namespace ggml::cuda {
namespace {

/// Moves norms and residual additions of single rows into the products around them, norm by norm in order.
class SingleRowFusion {
 public:
  explicit SingleRowFusion(LoweredGraph& lowered)
      : lowered_(lowered), graph_(lowered.graph), gone_(graph_.nodes.size(), false) {}

  void run() {
    count();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op == Op::add) move_sum(i);
      if (node.op != Op::norm || !norm_can_move(graph_, node)) continue;
      if (node.src.size() == 2) move_sum_of_norm(i);
      if (graph_.nodes[i].src.size() == 1) move_norm(i);
    }
    drop_gone();
  }

 private:
  void count() {
    readers_.assign(graph_.tensors.size(), {});
    writer_.assign(graph_.tensors.size(), kNone);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      for_each_read(graph_.nodes[i], [&](TensorId id) { readers_[index(base_of(graph_, id))].push_back(i); });
      for (const TensorId id : graph_.nodes[i].dst) writer_[index(base_of(graph_, id))] = i;
    }
  }
  [[nodiscard]] bool is_private(TensorId id) const {
    const Tensor& t = graph_.at(id);
    return t.role == TensorRole::activation && !t.port.valid() && !t.observed;
  }
  [[nodiscard]] const std::vector<std::size_t>& readers(TensorId id) const { return readers_[index(id)]; }

  /// The node that gives `branch` adds `residual` and gives node i's sum instead, if it can.
  bool add_before(std::size_t i, TensorId branch, TensorId residual, TensorId sum) {
    if (!is_private(branch) || readers(branch).size() != 1) return false;
    if (graph_.at(sum).role != TensorRole::activation || graph_.at(sum).observed) return false;
    if (graph_.at(residual).role == TensorRole::view || graph_.at(residual).shape != graph_.at(sum).shape) return false;
    const std::size_t p = writer_[index(branch)], before = writer_[index(residual)];
    if (p == kNone || p >= i || (before != kNone && before >= p)) return false;
    Node& producer = graph_.nodes[p];
    if (producer.op == Op::linear && producer.dst[0] == branch && linear_adds_residual(graph_, producer)) {
      lowered_.binders[p] = [residual](const BindContext& c, const Node& node, Carver& carver) {
        return bind_linear_with_residual(c, node, residual, carver);
      };
    } else if (choosing_.has_value() && choosing_node_ == p) {
      choosing_->residual = residual;
      bind_choosing(p);
    } else {
      return false;
    }
    lowered_.notes[p] += ", adds the residual";
    producer.dst[0] = sum;
    producer.src.push_back(residual);
    writer_[index(sum)] = p;
    return true;
  }
  void move_sum_of_norm(std::size_t i) {
    Node& norm = graph_.nodes[i];
    const TensorId sum = norm.dst[1];
    if (!add_before(i, norm.src[0], norm.src[1], sum)) return;
    norm.src = {sum};
    norm.dst.resize(1);
  }
  void move_sum(std::size_t i) {
    const Node& add = graph_.nodes[i];
    if (graph_.at(add.dst[0]).shape.rows() != 1) return;
    gone_[i] = add_before(i, add.src[1], add.src[0], add.dst[0]) || add_before(i, add.src[0], add.src[1], add.dst[0]);
  }

  void move_norm(std::size_t i) {
    const Node& norm = graph_.nodes[i];
    const TensorId normed = norm.dst[0];
    if (!is_private(normed)) return;
    const std::vector<std::size_t>& users = readers(normed);
    const OwnNorm own{norm.slots[0].weight, std::get<NormParams>(norm.params).eps};
    if (users.size() == 1 && graph_.nodes[users[0]].op == Op::qkv) return move_to_qkv(i, users[0], own);
    if (users.size() == 2) move_to_experts(i, users[0], users[1], own);
  }

  void move_to_qkv(std::size_t i, std::size_t q, const OwnNorm& own) {
    Node& qkv = graph_.nodes[q];
    if (qkv.src[0] != graph_.nodes[i].dst[0] || !qkv_takes_norm(graph_, qkv)) return;
    qkv.src[0] = graph_.nodes[i].src[0];
    lowered_.binders[q] = [own](const BindContext& c, const Node& node, Carver&) {
      return bind_normed_qkv(c, node, own);
    };
    remove(i, q);
  }

  void move_to_experts(std::size_t i, std::size_t r, std::size_t e, const OwnNorm& own) {
    Node &route = graph_.nodes[r], &experts = graph_.nodes[e];
    if (route.op != Op::moe_route || experts.op != Op::moe_ffn || e != r + 1) return;
    const TensorId normed = graph_.nodes[i].dst[0], x = graph_.nodes[i].src[0];
    if (route.src[0] != normed || experts.src[0] != normed || experts.src[1] != route.dst[0] ||
        experts.src[2] != route.dst[1])
      return;
    for (const TensorId id : route.dst) {
      if (!is_private(id) || readers(id).size() != 1) return;
    }
    if (!experts_take_norm(graph_, route, experts)) return;
    const OwnChoice choice{std::get<MoeRouteParams>(route.params), own, {}};
    Tensor logits;
    logits.name = graph_.at(route.dst[0]).name + " (logits)";
    logits.shape = Shape(choice.params.n_expert);
    graph_.tensors.push_back(std::move(logits));
    const TensorId id(static_cast<std::int32_t>(graph_.tensors.size()) - 1);
    route.src[0] = x;
    route.dst = {id};
    experts.src = {x, id};
    lowered_.binders[r] = [own](const BindContext& c, const Node& node, Carver&) {
      return bind_normed_router(c, node, own);
    };
    choosing_ = choice;
    choosing_node_ = e;
    bind_choosing(e);
    lowered_.notes[e] += ", chooses its experts";
    remove(i, r);
  }

  void bind_choosing(std::size_t e) {
    lowered_.binders[e] = [choice = *choosing_](const BindContext& c, const Node& node, Carver& carver) {
      return bind_choosing_experts(c, node, choice, carver);
    };
  }
  void remove(std::size_t norm, std::size_t user) {
    gone_[norm] = true;
    lowered_.notes[user] += ", normalises its input";
  }
  void drop_gone() {
    std::size_t to = 0;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (gone_[i]) continue;
      if (to != i) {
        graph_.nodes[to] = std::move(graph_.nodes[i]);
        lowered_.binders[to] = std::move(lowered_.binders[i]);
        lowered_.notes[to] = std::move(lowered_.notes[i]);
      }
      ++to;
    }
    graph_.nodes.resize(to);
    lowered_.binders.resize(to);
    lowered_.notes.resize(to);
  }

  static constexpr std::size_t kNone = SIZE_MAX;
  LoweredGraph& lowered_;
  Graph& graph_;
  std::vector<bool> gone_;
  std::vector<std::vector<std::size_t>> readers_;  // per tensor, a node as often as it reads
  std::vector<std::size_t> writer_;
  std::optional<OwnChoice> choosing_;  // of the last experts that choose for themselves
  std::size_t choosing_node_ = kNone;
};

}  // namespace

void fuse_single_rows(LoweredGraph& lowered) {
  SingleRowFusion(lowered).run();
}

}  // namespace ggml::cuda
