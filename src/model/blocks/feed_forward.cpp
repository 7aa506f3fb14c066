#include "model/blocks/feed_forward.h"

#include <vector>

#include "model/layer_builder.h"

namespace llama {

ggml::TensorId dense_ffn(LayerBuilder& b, ggml::TensorId x, const DenseFfnCfg& cfg) {
  std::vector<ggml::Slot> slots;
  if (cfg.gated && !cfg.fused) slots.push_back(b.slot(Role::ffn_gate));
  slots.push_back(b.slot(Role::ffn_up));
  slots.push_back(b.slot(Role::ffn_down));
  const ggml::FfnParams params{.act = cfg.act, .gated = cfg.gated, .fused_gate_up = cfg.fused, .limit = 0.0f};
  return b.graph().ffn(x, slots, params, b.name("ffn_out"));
}

ggml::TensorId moe_ffn(LayerBuilder& b, ggml::TensorId x, const MoeCfg& cfg) {
  const ExpertHparams& experts = b.hparams().experts;
  ggml::MoeRouteParams router;
  router.n_expert = experts.count;
  router.n_used = experts.used;
  router.gating = experts.gating;
  router.normalise = experts.normalise;
  router.scale = experts.scale;
  router.n_groups = experts.n_groups;
  router.n_groups_used = experts.n_groups_used;
  router.has_selection_bias = b.has(Role::exp_probs_b);
  router.min_used = b.inputs().experts_kept;
  router.keep_ratio = b.inputs().expert_keep_ratio;
  std::vector<ggml::Slot> router_slots{b.slot(Role::ffn_gate_inp)};
  if (router.has_selection_bias) router_slots.push_back(b.slot(Role::exp_probs_b));
  const ggml::GraphBuilder::Route route = b.graph().moe_route(x, router_slots, router, b.name("ffn_moe_topk"));

  ggml::MoeFfnParams params;
  params.n_expert = experts.count;
  params.n_used = experts.used;
  params.act = cfg.act;
  params.fused_gate_up = b.has(Role::ffn_gate_up_exps);
  params.gated = params.fused_gate_up || b.has(Role::ffn_gate_exps);
  std::vector<ggml::Slot> slots;
  if (params.fused_gate_up) {
    slots.push_back(b.slot(Role::ffn_gate_up_exps));
  } else {
    if (params.gated) slots.push_back(b.slot(Role::ffn_gate_exps));
    slots.push_back(b.slot(Role::ffn_up_exps));
  }
  slots.push_back(b.slot(Role::ffn_down_exps));
  return b.graph().moe_ffn(x, route, slots, params, b.name("ffn_moe_out"));
}

ggml::TensorId shared_expert(LayerBuilder& b, ggml::TensorId x) {
  const std::vector<ggml::Slot> slots{b.slot(Role::ffn_gate_shexp), b.slot(Role::ffn_up_shexp),
                                      b.slot(Role::ffn_down_shexp)};
  const ggml::TensorId y = b.graph().ffn(x, slots, ggml::FfnParams{}, b.name("ffn_shexp"));
  if (!b.has(Role::ffn_gate_inp_shexp)) return y;
  const ggml::UnaryParams sigmoid{.kind = ggml::UnaryKind::activation, .act = ggml::Activation::sigmoid, .a = 1.0f};
  const ggml::TensorId gate = b.graph().unary(b.linear(x, Role::ffn_gate_inp_shexp, "shared_expert_gate_logits"),
                                              sigmoid, b.name("shared_expert_gate"));
  return b.graph().mul(y, gate, b.name("ffn_shexp_gated"));
}

}  // namespace llama
