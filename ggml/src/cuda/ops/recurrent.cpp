#include "cuda/kernels/recurrent.h"

#include <algorithm>

#include "cuda/ops/registry.h"

namespace ggml::cuda {
namespace {

/// Spans that a step may have: every one has a row.
int most_spans(const BindContext& c, TensorId spans, std::int64_t tokens) {
  return static_cast<int>(std::min(c.tensor(spans).shape[1], tokens));
}

/// Pool and spans are the sources `first` and `first + 1`.
StateInputs states_of(const BindContext& c, const Node& node, std::size_t first, const StateLayout& layout,
                      std::int64_t tokens) {
  return {c.data<float>(node.src[first]), layout, c.data<const AttnSpan>(node.src[first + 1]), c.n_spans(),
          most_spans(c, node.src[first + 1], tokens)};
}

class Conv1d final : public BoundOp {
 public:
  Conv1d(const BindContext& c, const Node& node, Carver&) {
    const auto& p = std::get<Conv1dParams>(node.params);
    const Shape& x = c.tensor(node.src[0]).shape;
    a_.states = states_of(c, node, 1, p.state, x[1]);
    a_.x = c.data<const float>(node.src[0]);
    a_.filters = c.data<const float>(node.slots[0].weight);
    a_.y = c.data<float>(node.dst[0]);
    a_.channels = static_cast<int>(x[0]);
    a_.kernel = p.kernel;
    a_.act = p.act;
    a_.tokens = static_cast<int>(x[1]);
  }
  void launch(cudaStream_t stream) const override { launch_conv1d(a_, stream); }

 private:
  Conv1dArgs a_;
};

/// Both forms: the primitive, and the whole op with its norms and gates.
class DeltaRule : public BoundOp {
 public:
  DeltaRule(const BindContext& c, const DeltaNetParams& p, TensorId y) : d_(p.head_dim) {
    a_.y = c.data<float>(y);
    a_.head_dim = p.head_dim;
    a_.n_head_k = p.n_head_k;
    a_.n_head_v = p.n_head_v;
    a_.tiled = p.tiled;
  }
  void launch(cudaStream_t stream) const override { launch_delta_rule(a_, stream); }

 protected:
  DeltaRuleArgs a_;
  std::int64_t d_;
};

class DeltaRuleAlone final : public DeltaRule {
 public:
  DeltaRuleAlone(const BindContext& c, const Node& node, Carver&)
      : DeltaRule(c, std::get<DeltaNetParams>(node.params), node.dst[0]) {
    const auto& p = std::get<DeltaNetParams>(node.params);
    a_.states = states_of(c, node, 5, p.state, c.tensor(node.dst[0]).shape[1]);
    a_.q = c.data<const float>(node.src[0]);
    a_.k = c.data<const float>(node.src[1]);
    a_.v = c.data<const float>(node.src[2]);
    a_.qk_stride = d_ * p.n_head_k;
    a_.v_stride = d_ * p.n_head_v;
    a_.g = c.data<const float>(node.src[3]);
    a_.beta = c.data<const float>(node.src[4]);
  }
};

class DeltaNet final : public DeltaRule {
 public:
  DeltaNet(const BindContext& c, const Node& node, Carver&)
      : DeltaRule(c, std::get<DeltaNetParams>(node.params), node.dst[0]) {
    const auto& p = std::get<DeltaNetParams>(node.params);
    a_.states = states_of(c, node, 3, p.state, c.tensor(node.dst[0]).shape[1]);
    const auto* qkv = c.data<const float>(node.src[0]);
    if (qkv != nullptr) {
      a_.q = qkv;
      a_.k = qkv + d_ * p.n_head_k;
      a_.v = qkv + 2 * d_ * p.n_head_k;
    }
    a_.qk_stride = a_.v_stride = d_ * (2 * p.n_head_k + p.n_head_v);
    a_.beta = c.data<const float>(node.src[1]);
    a_.g = c.data<const float>(node.src[2]);
    a_.raw = true;
    a_.decay = c.data<const float>(node.slots[0].weight);
    a_.dt = c.data<const float>(node.slots[0].bias);
    a_.eps = p.eps;
  }
};

const char* delta_declines(const Graph&, const Node& node) {
  return std::get<DeltaNetParams>(node.params).head_dim > kMostDeltaDim ? "heads of more than 1024 elements" : nullptr;
}

class Pool final : public BoundOp {
 public:
  Pool(const BindContext& c, const Node& node, Carver&) {
    a_.kind = std::get<PoolParams>(node.params).kind;
    a_.x = c.data<const float>(node.src[0]);
    a_.y = c.data<float>(node.dst[0]);
    a_.n = static_cast<int>(c.tensor(node.src[0]).shape[0]);
    a_.spans = c.data<const AttnSpan>(node.src[1]);
    a_.n_spans = c.n_spans();
    a_.max_spans = most_spans(c, node.src[1], c.tensor(node.src[0]).shape[1]);
  }
  void launch(cudaStream_t stream) const override { launch_pool(a_, stream); }

 private:
  PoolArgs a_;
};

}  // namespace

const OpImpl kConv1d{"conv1d", accepts_always, bind_as<Conv1d>};
const OpImpl kDeltaRule{"delta_rule", delta_declines, bind_as<DeltaRuleAlone>};
const OpImpl kDeltaNet{"delta_net", delta_declines, bind_as<DeltaNet>};
const OpImpl kPool{"pool", accepts_always, bind_as<Pool>};

}  // namespace ggml::cuda
