#include "model/blocks/feed_forward.h"
#include "model/blocks/gqa_attention.h"
#include "model/family.h"
#include "model/family_keys.h"
#include "model/key_reader.h"
#include "model/layer_builder.h"
#include "model/tensor_rows.h"

/// GLM-4-0414 (arXiv:2406.12793 and its successors): norms before and after both branches, gate and up in one matrix,
/// half of each head rotated.
namespace llama {

namespace {

void read_hparams(KeyReader& keys, Hparams& hparams) {
  hparams.norm_eps = read_rms_eps(keys);
  read_rope_sections(keys, hparams);
  const bool multimodal = !hparams.rope.sections.empty();
  hparams.rope.layout = multimodal ? ggml::RopeLayout::neox : ggml::RopeLayout::norm;
}

using enum Role;

constexpr std::array<TensorRow, 2> kFfn{{{.role = ffn_up, .name = "ffn_up", .shape = {Dim::embd, Dim::ff2}},
                                         {.role = ffn_down, .name = "ffn_down", .shape = {Dim::ff, Dim::embd}}}};

constexpr auto kTensors =
    rows::join(rows::ends(Need::optional), rows::norm(attn_norm, "attn_norm"), rows::qkv(Bias::optional),
               rows::attention_output(), rows::norm(post_attention_norm, "post_attention_norm"),
               rows::norm(ffn_norm, "ffn_norm"), kFfn, rows::norm(post_ffw_norm, "post_ffw_norm"));

void build_layer(LayerBuilder& b) {
  const ggml::TensorId a = b.norm(attn_norm, "attn_norm");
  const ggml::TensorId o = gqa_attention(b, a, {});
  b.add(b.branch_norm(o, post_attention_norm, "attn_post_norm"), "attn_residual");
  b.keep_output_rows();
  const ggml::TensorId m = b.norm(ffn_norm, "ffn_norm");
  const ggml::TensorId f = dense_ffn(b, m, {.fused = true});
  b.add(b.branch_norm(f, post_ffw_norm, "ffn_post_norm"), "layer_out");
}

}  // namespace

extern const Family k_glm4;
const Family k_glm4{.arch = "glm4", .hparams = read_hparams, .tensors = kTensors, .layer = build_layer};

}  // namespace llama
