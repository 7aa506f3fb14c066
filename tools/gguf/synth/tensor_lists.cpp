#include "tensor_lists.h"

namespace gguf_tool {
namespace {

// Extents, named as in the models' papers.
constexpr Extent embd = [](const Preset& p) -> std::int64_t { return p.embd; };
constexpr Extent two_embd = [](const Preset& p) -> std::int64_t { return 2 * p.embd; };
constexpr Extent vocab = [](const Preset& p) -> std::int64_t { return p.vocab; };
constexpr Extent ff = [](const Preset& p) -> std::int64_t { return p.ff; };
constexpr Extent heads = [](const Preset& p) -> std::int64_t { return p.heads; };
constexpr Extent head_dim = [](const Preset& p) -> std::int64_t { return p.head_dim; };
constexpr Extent half_head = [](const Preset& p) -> std::int64_t { return p.head_dim / 2; };
constexpr Extent attn_width = [](const Preset& p) -> std::int64_t { return p.heads * p.head_dim; };
constexpr Extent kv_width = [](const Preset& p) -> std::int64_t { return p.heads_kv * p.head_dim; };
// Models with delta-net layers gate the attention: the query projection holds query and gate.
constexpr Extent query_rows = [](const Preset& p) -> std::int64_t { return p.heads * p.head_dim * (p.delta ? 2 : 1); };
constexpr Extent q_norm = [](const Preset& p) {
  return p.traits().qk_norm == QkNorm::row ? attn_width(p) : head_dim(p);
};
constexpr Extent k_norm = [](const Preset& p) { return p.traits().qk_norm == QkNorm::row ? kv_width(p) : head_dim(p); };

constexpr Extent q_rank = [](const Preset& p) -> std::int64_t { return p.mla->q_rank; };
constexpr Extent kv_rank = [](const Preset& p) -> std::int64_t { return p.mla->kv_rank; };
constexpr Extent nope = [](const Preset& p) -> std::int64_t { return p.mla->nope; };
constexpr Extent latent_rows = [](const Preset& p) -> std::int64_t { return p.mla->kv_rank + p.rotated; };
constexpr Extent latent_q = [](const Preset& p) -> std::int64_t { return p.heads * (p.mla->nope + p.rotated); };

constexpr Extent delta_values = [](const Preset& p) -> std::int64_t { return p.delta->state * p.delta->value_heads; };
constexpr Extent delta_qkv = [](const Preset& p) -> std::int64_t {
  return 2 * p.delta->state * p.delta->key_heads + p.delta->state * p.delta->value_heads;
};
constexpr Extent delta_conv = [](const Preset& p) -> std::int64_t { return p.delta->conv; };
constexpr Extent delta_state = [](const Preset& p) -> std::int64_t { return p.delta->state; };
constexpr Extent value_heads = [](const Preset& p) -> std::int64_t { return p.delta->value_heads; };
constexpr Extent two_value_heads = [](const Preset& p) -> std::int64_t { return 2 * p.delta->value_heads; };

constexpr Extent experts = [](const Preset& p) -> std::int64_t { return p.experts; };
constexpr Extent expert_ff = [](const Preset& p) -> std::int64_t { return p.expert_ff; };
constexpr Extent shared_ff = [](const Preset& p) -> std::int64_t { return p.shared * p.expert_ff; };

constexpr Condition untied = [](const Preset& p) { return !p.tied; };
constexpr Condition has_divisors = [](const Preset& p) { return p.llama3_rope; };
constexpr Condition early_norm = [](const Preset& p) { return !p.traits().late_ffn_norm; };
constexpr Condition late_norm = [](const Preset& p) { return p.traits().late_ffn_norm; };
constexpr Condition branch_norms = [](const Preset& p) { return p.traits().branch_norms; };
constexpr Condition has_qk_norm = [](const Preset& p) { return p.traits().qk_norm != QkNorm::none; };
constexpr Condition has_qkv_bias = [](const Preset& p) { return p.traits().qkv_bias; };
constexpr Condition has_biases = [](const Preset& p) { return p.traits().biases; };
constexpr Condition low_rank_q = [](const Preset& p) { return p.mla->q_rank > 0; };
constexpr Condition full_rank_q = [](const Preset& p) { return p.mla->q_rank == 0; };
constexpr Condition fused_ba = [](const Preset& p) { return p.delta->fused_beta_alpha; };
constexpr Condition split_ba = [](const Preset& p) { return !p.delta->fused_beta_alpha; };
constexpr Condition sigmoid_gating = [](const Preset& p) { return p.gating == 2; };
constexpr Condition has_shared = [](const Preset& p) { return p.shared > 0; };
constexpr Condition has_delta = [](const Preset& p) { return p.delta.has_value(); };

constexpr double kBias = 0.05;

constexpr TensorRow kModel[] = {
    {"token_embd.weight", Role::embedding, Fill::embedding, {embd, vocab}},
    {"output_norm.weight", Role::f32, Fill::ones, {embd}},
    {"output.weight", Role::head, Fill::by_row, {embd, vocab}, untied},
    {"rope_freqs.weight", Role::f32, Fill::rope_divisors, {half_head}, has_divisors},
};

constexpr TensorRow kNorms[] = {
    {"attn_norm.weight", Role::f32, Fill::ones, {embd}},
    {"ffn_norm.weight", Role::f32, Fill::ones, {embd}, early_norm},
    {"post_attention_norm.weight", Role::f32, Fill::ones, {embd}, late_norm},
    {"post_attention_norm.weight", Role::f32, Fill::ones, {embd}, branch_norms},
    {"post_ffw_norm.weight", Role::f32, Fill::ones, {embd}, branch_norms},
};

constexpr TensorRow kAttention[] = {
    {"attn_q.weight", Role::base, Fill::by_row, {embd, query_rows}},
    {"attn_q.bias", Role::f32, Fill::fixed, {query_rows}, has_qkv_bias, kBias},
    {"attn_k.weight", Role::base, Fill::by_row, {embd, kv_width}},
    {"attn_k.bias", Role::f32, Fill::fixed, {kv_width}, has_qkv_bias, kBias},
    {"attn_v.weight", Role::high, Fill::by_row, {embd, kv_width}},
    {"attn_v.bias", Role::f32, Fill::fixed, {kv_width}, has_qkv_bias, kBias},
    {"attn_q_norm.weight", Role::f32, Fill::ones, {q_norm}, has_qk_norm},
    {"attn_k_norm.weight", Role::f32, Fill::ones, {k_norm}, has_qk_norm},
};

constexpr TensorRow kLatent[] = {
    {"attn_q_a.weight", Role::base, Fill::by_row, {embd, q_rank}, low_rank_q},
    {"attn_q_a_norm.weight", Role::f32, Fill::ones, {q_rank}, low_rank_q},
    {"attn_q_b.weight", Role::base, Fill::by_row, {q_rank, latent_q}, low_rank_q},
    {"attn_q.weight", Role::base, Fill::by_row, {embd, latent_q}, full_rank_q},
    {"attn_kv_a_mqa.weight", Role::exact, Fill::by_row, {embd, latent_rows}},
    {"attn_kv_a_norm.weight", Role::f32, Fill::ones, {kv_rank}},
    {"attn_k_b.weight", Role::exact, Fill::by_row, {nope, kv_rank, heads}},
    {"attn_v_b.weight", Role::exact, Fill::by_row, {kv_rank, head_dim, heads}},
};

constexpr TensorRow kAttnOutput[] = {
    {"attn_output.weight", Role::base, Fill::by_row, {attn_width, embd}},
    {"attn_output.bias", Role::f32, Fill::fixed, {embd}, has_biases, kBias},
    {"attn_sinks.weight", Role::f32, Fill::fixed, {heads}, has_biases, 1.0},
};

constexpr TensorRow kDelta[] = {
    {"attn_qkv.weight", Role::high, Fill::by_row, {embd, delta_qkv}},
    {"attn_gate.weight", Role::base, Fill::by_row, {embd, delta_values}},
    {"ssm_conv1d.weight", Role::f32, Fill::fixed, {delta_conv, delta_qkv}, nullptr, 0.5},
    {"ssm_dt.bias", Role::f32, Fill::time_step, {value_heads}},
    {"ssm_a", Role::f32, Fill::decay, {value_heads}},
    {"ssm_ba.weight", Role::base, Fill::by_row, {embd, two_value_heads}, fused_ba},
    {"ssm_beta.weight", Role::base, Fill::by_row, {embd, value_heads}, split_ba},
    {"ssm_alpha.weight", Role::base, Fill::by_row, {embd, value_heads}, split_ba},
    {"ssm_norm.weight", Role::f32, Fill::ones, {delta_state}},
    {"ssm_out.weight", Role::base, Fill::by_row, {delta_values, embd}},
};

constexpr TensorRow kDenseFfn[] = {
    {"ffn_gate.weight", Role::base, Fill::by_row, {embd, ff}},
    {"ffn_up.weight", Role::base, Fill::by_row, {embd, ff}},
    {"ffn_down.weight", Role::high, Fill::by_row, {ff, embd}},
};

constexpr TensorRow kMoeFfn[] = {
    {"ffn_gate_inp.weight", Role::f32, Fill::router, {embd, experts}},
    {"ffn_gate_exps.weight", Role::expert, Fill::by_row, {embd, expert_ff, experts}},
    {"ffn_gate_exps.bias", Role::f32, Fill::fixed, {expert_ff, experts}, has_biases, kBias},
    {"ffn_up_exps.weight", Role::expert, Fill::by_row, {embd, expert_ff, experts}},
    {"ffn_up_exps.bias", Role::f32, Fill::fixed, {expert_ff, experts}, has_biases, kBias},
    {"ffn_down_exps.weight", Role::expert_down, Fill::by_row, {expert_ff, embd, experts}},
    {"ffn_down_exps.bias", Role::f32, Fill::fixed, {embd, experts}, has_biases, kBias},
    {"ffn_gate_inp.bias", Role::f32, Fill::fixed, {experts}, has_biases, kBias},
    {"exp_probs_b.bias", Role::f32, Fill::fixed, {experts}, sigmoid_gating, 0.01},
    {"ffn_gate_shexp.weight", Role::base, Fill::by_row, {embd, shared_ff}, has_shared},
    {"ffn_up_shexp.weight", Role::base, Fill::by_row, {embd, shared_ff}, has_shared},
    {"ffn_down_shexp.weight", Role::high, Fill::by_row, {shared_ff, embd}, has_shared},
    {"ffn_gate_inp_shexp.weight", Role::f32, Fill::unit_by_row, {embd}, has_delta},
};

constexpr TensorRow kMtp[] = {
    {"nextn.eh_proj.weight", Role::base, Fill::by_row, {two_embd, embd}},
    {"nextn.embed_tokens.weight", Role::base, Fill::fixed, {embd, vocab}, nullptr, 1.0},
    {"nextn.shared_head_head.weight", Role::base, Fill::by_row, {embd, vocab}},
    {"nextn.enorm.weight", Role::f32, Fill::ones, {embd}},
    {"nextn.hnorm.weight", Role::f32, Fill::ones, {embd}},
    {"nextn.shared_head_norm.weight", Role::f32, Fill::ones, {embd}},
};

constexpr TensorLists kLists{kModel, kNorms, kAttention, kLatent, kDelta, kAttnOutput, kDenseFfn, kMoeFfn, kMtp};

}  // namespace

const TensorLists& tensor_lists() {
  return kLists;
}

}  // namespace gguf_tool
