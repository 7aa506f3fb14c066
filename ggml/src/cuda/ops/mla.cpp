#include "cuda/kernels/latent_rows.h"
#include "cuda/ops/attend.h"
#include "cuda/ops/head_product.h"
#include "cuda/ops/heads.h"
#include "cuda/ops/registry.h"

namespace ggml::cuda {
namespace {

AttentionParams attention_of(const MlaParams& p) {
  AttentionParams a;
  a.kv = p.kv;
  a.n_head = p.n_head;
  a.scale = p.scale;
  a.v_of_k = p.kv_rank;
  return a;
}

/// Latent attention in the absorbed form: queries into the space of latents, attention there, values out of it.
class Mla final : public BoundOp {
 public:
  Mla(const BindContext& c, const Node& node, Carver& carver)
      : p_(std::get<MlaParams>(node.params)),
        absorb_(c, node.slots[0].weight, {p_.n_head, p_.kv_rank, 0, p_.kv_rank}),
        value_up_(c, node.slots[2].weight, {p_.n_head, p_.v_up_rows, p_.v_up_begin, p_.dv}),
        y_(c.data<float>(node.dst[0])),
        tokens_(c.rows(node.dst[0], std::int64_t{p_.dv} * p_.n_head)),
        heads_{tokens_.count, tokens_.per_count * p_.n_head, tokens_.capacity * p_.n_head},
        query_(carver.array<float>(std::int64_t{heads_.capacity} * (p_.kv_rank + p_.n_rot))),
        latents_(carver.array<float>(std::int64_t{heads_.capacity} * p_.kv_rank)),
        query_input_(is_quantised(absorb_.act()) ? absorb_.act() : ActType::f32, p_.nope, heads_, carver),
        value_input_(value_up_.act(), p_.kv_rank, heads_, carver),
        attend_(c, attention_of(p_), tensors(c, node), carver) {
    bind_rows(c, node, carver);
    const ActType act = value_up_.act();
    // It rounds all heads as one row: no block of that may have values of two heads.
    const int block = act == ActType::q8_k ? kUnit * kUnitsPerSuper : kUnit;
    attention_rounds_ =
        is_quantised(act) && p_.kv_rank % block == 0 && attention_rounds_result(attention_of(p_), tokens_.capacity);
    if (attention_rounds_) attend_.set_rounded({act, value_input_.quantised()});
  }

  void launch(cudaStream_t stream) const override {
    launch_latent_rows(rows_, stream);
    absorb_.launch({query_input_.quantised(), rows_.floats, false}, query_, p_.kv_rank + p_.n_rot, tokens_, stream);
    attend_.launch(stream);
    if (!attention_rounds_) value_input_.launch(latents_, stream);
    value_up_.launch({value_input_.quantised(), value_input_.floats(latents_), false}, y_, p_.dv, tokens_, stream);
  }

 private:
  Attend::Tensors tensors(const BindContext& c, const Node& node) const {
    Attend::Tensors t;
    t.q = query_;
    t.y = latents_;
    t.tokens = tokens_;
    t.in = cache_inputs(c, node, 3);
    t.max_spans = static_cast<int>(c.tensor(node.src[4]).shape[1]);
    return t;
  }

  void bind_rows(const BindContext& c, const Node& node, Carver& carver) {
    rows_.kv = planes_of(p_.kv);
    rows_.in = cache_inputs(c, node, 3);
    rows_.q = c.data<const float>(node.src[0]);
    rows_.latent = c.data<const float>(node.src[1]);
    rows_.k_rot = c.data<const float>(node.src[2]);
    rows_.n_head = p_.n_head;
    rows_.nope = p_.nope;
    rows_.n_rot = p_.n_rot;
    rows_.kv_rank = p_.kv_rank;
    rows_.query = query_;
    rows_.act = absorb_.act();
    rows_.codes = query_input_.quantised();
    if (!is_quantised(rows_.act)) rows_.floats = carver.array<float>(std::int64_t{heads_.capacity} * p_.nope);
    rows_.tokens = tokens_;
  }

  MlaParams p_;
  HeadProduct absorb_, value_up_;
  float* y_;
  RowCount tokens_, heads_;
  float* query_;    // [kv_rank + n_rot, n_head, tokens]
  float* latents_;  // [kv_rank, n_head, tokens]
  RoundedRows query_input_, value_input_;
  Attend attend_;
  LatentRowsArgs rows_;
  bool attention_rounds_ = false;
};

const char* mla_declines(const Graph& graph, const Node& node) {
  const auto& p = std::get<MlaParams>(node.params);
  if (!p.flash) return "the decomposition was asked for";
  if (p.kv.dv != 0) return "the latent is kept twice";
  if (!latent_rows_fit(p.nope, p.n_rot)) return "heads of odd sizes";
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}}) {
    const Slot& slot = node.slots[i];
    if (slot.bias.valid() || slot.scale.valid()) return "a head's matrix with bias or scale";
    if (const char* why = why_not_projection(graph, slot)) return why;
  }
  return nullptr;
}

}  // namespace

const OpImpl kMla{"mla", mla_declines, bind_as<Mla>};

}  // namespace ggml::cuda
