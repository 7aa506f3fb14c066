#include "model/blocks/delta_net.h"
#include "model/blocks/feed_forward.h"
#include "model/family.h"
#include "model/family_keys.h"
#include "model/key_reader.h"
#include "model/layer_builder.h"
#include "model/tensor_rows.h"

/// Qwen3.5, dense: gated delta nets (arXiv:2412.06464) and gated attention in turn.
namespace llama {

namespace {

void read_hparams(KeyReader& keys, Hparams& hparams) {
  hparams.norm_eps = read_rms_eps(keys);
  hparams.rope.layout = ggml::RopeLayout::neox;
  hparams.rope.interleaved_sections = true;
  read_rope_sections(keys, hparams);
  read_delta_net(keys, hparams);
  hparams.delta_net.tiled = true;
}

using enum Role;

constexpr auto kTensors = rows::join(rows::ends(Need::optional), rows::norm(attn_norm, "attn_norm"),
                                     rows::hybrid_mixers(), rows::beta_and_alpha(), rows::dense_ffn());

void build_layer(LayerBuilder& b) {
  const ggml::TensorId a = b.norm(attn_norm, "attn_norm");
  b.add(b.layer().recurrent ? delta_net(b, a) : gated_attention(b, a), "attn_residual");
  b.keep_output_rows();
  const ggml::TensorId m = b.norm(post_attention_norm, "ffn_norm");
  b.add(dense_ffn(b, m, {}), "layer_out");
}

}  // namespace

extern const Family k_qwen35;
const Family k_qwen35{.arch = "qwen35", .hparams = read_hparams, .tensors = kTensors, .layer = build_layer};

}  // namespace llama
