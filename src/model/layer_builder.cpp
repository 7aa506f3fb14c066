#include "model/layer_builder.h"

#include "model/adapter_scales.h"

namespace llama {

using ggml::NormParams;
using ggml::Slot;
using ggml::TensorId;

LayerBuilder::LayerBuilder(ggml::GraphBuilder& graph, const Hparams& hparams, LayerId layer, const TensorSet& weights,
                           AdapterScales& adapters)
    : graph_(graph), hparams_(hparams), layer_(layer), weights_(weights), adapters_(adapters) {}

std::string LayerBuilder::name(const char* stem) const {
  return std::string(stem) + "-" + std::to_string(layer_.v);
}

Slot LayerBuilder::slot(Role role) {
  return make_slot(graph_, weights_[role], adapters_);
}

TensorId LayerBuilder::norm(Role weight, const char* stem) {
  const NormParams params{.kind = hparams_.norm_kind, .eps = hparams_.norm_eps, .has_weight = true};
  if (!pending_.valid()) return graph_.norm(x_, slot(weight), params, name(stem));
  const auto [normed, sum] = graph_.add_norm(pending_, x_, slot(weight), params, name(stem));
  renamed_.push_back({sum, pending_name_});
  x_ = sum;
  pending_ = TensorId{};
  return normed;
}

TensorId LayerBuilder::branch_norm(TensorId x, Role weight, const char* stem) {
  const NormParams params{.kind = hparams_.norm_kind, .eps = hparams_.norm_eps, .has_weight = true};
  return graph_.norm(x, slot(weight), params, name(stem));
}

TensorId LayerBuilder::rotate(TensorId x, int first, const char* stem) {
  ggml::RopeParams rope = inputs_.rope;
  rope.first = first;
  std::vector<TensorId> src{inputs_.positions};
  if (rope.has_factors) src.push_back(graph_.weight(*inputs_.rope_factors));
  src.push_back(x);
  return graph_.add(ggml::Op::rope, rope, src, {}, name(stem)).front();
}

TensorId LayerBuilder::gated(TensorId gate, TensorId x, ggml::Activation act, const char* stem) {
  const TensorId src[] = {gate, x};
  return graph_.add(ggml::Op::gated, ggml::GatedParams{act, 0.0f}, src, {}, name(stem)).front();
}

void LayerBuilder::norm_stream(Role weight, const char* stem) {
  x_ = norm(weight, stem);
}

void LayerBuilder::add(TensorId branch, const char* stem) {
  x_ = sum();
  pending_ = branch;
  pending_name_ = name(stem);
}

TensorId LayerBuilder::sum() {
  if (pending_.valid()) x_ = graph_.add(x_, pending_, pending_name_);
  pending_ = TensorId{};
  return x_;
}

void LayerBuilder::keep_output_rows() {
  if (!inputs_.output_rows.valid()) return;
  x_ = graph_.select_rows(sum(), inputs_.output_rows, name("output_rows"));
  adapters_.select(inputs_.output_rows);
}

void LayerBuilder::steer() {
  const ggml::Weight* direction = weights_[Role::control_vector].weight;
  if (direction != nullptr) x_ = graph_.add(sum(), graph_.weight(*direction), name("layer_out_steered"));
}

void LayerBuilder::continue_from(const LayerBuilder& previous) {
  x_ = previous.x_;
  pending_ = previous.pending_;
  pending_name_ = previous.pending_name_;
}

TensorId LayerBuilder::linear(TensorId x, Role role, const char* stem) {
  return graph_.linear(x, slot(role), name(stem));
}

}  // namespace llama
