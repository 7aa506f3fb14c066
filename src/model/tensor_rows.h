#pragma once

#include <array>
#include <cstddef>

#include "model/schema.h"

/// Rows that many families have alike, and how a family puts its table together.
namespace llama::rows {

using enum Role;

template <std::size_t... N>
constexpr std::array<TensorRow, (N + ...)> join(const std::array<TensorRow, N>&... parts) {
  std::array<TensorRow, (N + ...)> all{};
  std::size_t at = 0;
  const auto append = [&](const auto& part) {
    for (const TensorRow& row : part) all[at++] = row;
  };
  (append(parts), ...);
  return all;
}

/// A norm weight of the layer.
constexpr std::array<TensorRow, 1> norm(Role role, const char* name, Dim width = Dim::embd,
                                        Need need = Need::required) {
  return {{{.role = role, .name = name, .shape = {width}, .need = need}}};
}

/// Embedding, final norm, output matrix (optional: where the file ties it to the embedding).
constexpr std::array<TensorRow, 3> ends(Need output_matrix) {
  return {{{token_embd, "token_embd", Scope::global, {Dim::embd, Dim::vocab}},
           {output_norm, "output_norm", Scope::global, {Dim::embd}},
           {output, "output", Scope::global, {Dim::embd, Dim::vocab}, output_matrix}}};
}

/// Projections of grouped-query attention, separate or fused.
constexpr std::array<TensorRow, 4> qkv(Bias bias) {
  return {{{.role = attn_qkv,
            .name = "attn_qkv",
            .shape = {Dim::embd, Dim::qkv_rows},
            .need = Need::optional,
            .bias = bias},
           {.role = attn_q, .name = "attn_q", .shape = {Dim::embd, Dim::q_rows}, .bias = bias, .instead = attn_qkv},
           {.role = attn_k, .name = "attn_k", .shape = {Dim::embd, Dim::k_rows}, .bias = bias, .instead = attn_qkv},
           {.role = attn_v, .name = "attn_v", .shape = {Dim::embd, Dim::v_rows}, .bias = bias, .instead = attn_qkv}}};
}

constexpr std::array<TensorRow, 1> attention_output(Bias bias = Bias::none) {
  return {{{.role = attn_output, .name = "attn_output", .shape = {Dim::attn_out, Dim::embd}, .bias = bias}}};
}

/// Dense gated feed-forward of the layers that have one.
constexpr std::array<TensorRow, 3> dense_ffn() {
  return {{{.role = ffn_gate, .name = "ffn_gate", .shape = {Dim::embd, Dim::ff}, .when = When::dense},
           {.role = ffn_up, .name = "ffn_up", .shape = {Dim::embd, Dim::ff}, .when = When::dense},
           {.role = ffn_down, .name = "ffn_down", .shape = {Dim::ff, Dim::embd}, .when = When::dense}}};
}

/// Router and routed experts of the layers that have them.
constexpr std::array<TensorRow, 5> experts(Bias bias = Bias::none) {
  constexpr When moe = When::moe;
  return {
      {{.role = ffn_gate_inp, .name = "ffn_gate_inp", .shape = {Dim::embd, Dim::experts}, .when = moe, .bias = bias},
       {.role = ffn_gate_up_exps,
        .name = "ffn_gate_up_exps",
        .shape = {Dim::embd, Dim::expert_ff2, Dim::experts},
        .need = Need::optional,
        .when = moe,
        .bias = bias},
       {.role = ffn_gate_exps,
        .name = "ffn_gate_exps",
        .shape = {Dim::embd, Dim::expert_ff, Dim::experts},
        .when = moe,
        .bias = bias,
        .instead = ffn_gate_up_exps},
       {.role = ffn_up_exps,
        .name = "ffn_up_exps",
        .shape = {Dim::embd, Dim::expert_ff, Dim::experts},
        .when = moe,
        .bias = bias,
        .instead = ffn_gate_up_exps},
       {.role = ffn_down_exps,
        .name = "ffn_down_exps",
        .shape = {Dim::expert_ff, Dim::embd, Dim::experts},
        .when = moe,
        .bias = bias}}};
}

/// Bias on the choice of experts (arXiv:2412.19437, 2.1.2).
constexpr std::array<TensorRow, 1> selection_bias(Need need) {
  return {{{.role = exp_probs_b,
            .name = "exp_probs_b",
            .shape = {Dim::experts},
            .need = need,
            .when = When::moe,
            .suffix = ".bias"}}};
}

/// Experts that every token uses, stored as one feed-forward.
constexpr std::array<TensorRow, 3> shared_expert() {
  constexpr When moe = When::moe;
  return {{{.role = ffn_gate_shexp, .name = "ffn_gate_shexp", .shape = {Dim::embd, Dim::shared_ff}, .when = moe},
           {.role = ffn_up_shexp, .name = "ffn_up_shexp", .shape = {Dim::embd, Dim::shared_ff}, .when = moe},
           {.role = ffn_down_shexp, .name = "ffn_down_shexp", .shape = {Dim::shared_ff, Dim::embd}, .when = moe}}};
}

/// The layers of the hybrids with gated delta nets, but for what differs between them: how beta and alpha are stored.
constexpr std::array<TensorRow, 15> hybrid_mixers() {
  constexpr When full = When::attention, linear = When::recurrent;
  return {{{.role = attn_q, .name = "attn_q", .shape = {Dim::embd, Dim::q_rows2}, .when = full},
           {.role = attn_k, .name = "attn_k", .shape = {Dim::embd, Dim::k_rows}, .when = full},
           {.role = attn_v, .name = "attn_v", .shape = {Dim::embd, Dim::v_rows}, .when = full},
           {.role = attn_q_norm, .name = "attn_q_norm", .shape = {Dim::dk}, .when = full},
           {.role = attn_k_norm, .name = "attn_k_norm", .shape = {Dim::dk}, .when = full},
           {.role = attn_output, .name = "attn_output", .shape = {Dim::attn_out, Dim::embd}, .when = full},
           {.role = ssm_in,
            .name = "ssm_in",
            .shape = {Dim::embd, Dim::ssm_in_rows},
            .need = Need::optional,
            .when = linear},
           {.role = attn_qkv,
            .name = "attn_qkv",
            .shape = {Dim::embd, Dim::conv_channels},
            .when = linear,
            .instead = ssm_in},
           {.role = attn_gate,
            .name = "attn_gate",
            .shape = {Dim::embd, Dim::ssm_inner},
            .when = linear,
            .instead = ssm_in},
           {.role = ssm_conv1d, .name = "ssm_conv1d", .shape = {Dim::conv_kernel, Dim::conv_channels}, .when = linear},
           {.role = ssm_dt, .name = "ssm_dt", .shape = {Dim::ssm_heads}, .when = linear, .suffix = ".bias"},
           {.role = ssm_a, .name = "ssm_a", .shape = {Dim::ssm_heads}, .when = linear, .suffix = ""},
           {.role = ssm_norm, .name = "ssm_norm", .shape = {Dim::ssm_state}, .when = linear},
           {.role = ssm_out, .name = "ssm_out", .shape = {Dim::ssm_inner, Dim::embd}, .when = linear},
           {.role = post_attention_norm, .name = "post_attention_norm", .shape = {Dim::embd}}}};
}

constexpr std::array<TensorRow, 2> beta_and_alpha() {
  return {{{.role = ssm_beta, .name = "ssm_beta", .shape = {Dim::embd, Dim::ssm_heads}, .when = When::recurrent},
           {.role = ssm_alpha, .name = "ssm_alpha", .shape = {Dim::embd, Dim::ssm_heads}, .when = When::recurrent}}};
}

/// The sigmoid gate of the shared expert: a vector, used as a matrix of one row.
constexpr std::array<TensorRow, 1> shared_expert_gate() {
  return {{{.role = ffn_gate_inp_shexp, .name = "ffn_gate_inp_shexp", .shape = {Dim::embd}, .when = When::moe}}};
}

}  // namespace llama::rows
