#include "model/hparams.h"

#include <algorithm>
#include <cmath>

#include "ggml/log.h"
#include "ggml/quoted.h"
#include "model/key_reader.h"

namespace llama {

using ggml::strf;

namespace {

// Generous bounds that keep every product of two of them far inside 64 bits.
constexpr IntRange kWidth{1, 1 << 20};
constexpr IntRange kOptionalWidth{0, 1 << 20};
constexpr IntRange kHeads{0, 1 << 14};
constexpr IntRange kHeadWidth{1, 1 << 14};
constexpr int kMaxLayers = 512;
constexpr int kMaxExperts = 512;

void read_sizes(KeyReader& keys, int n_vocab, Hparams& hparams) {
  constexpr IntRange kVocab{1, 1 << 24};
  hparams.n_vocab = n_vocab > 0 ? n_vocab : keys.integer("vocab_size", kVocab, std::nullopt);
  hparams.n_ctx_train = keys.integer("context_length", {1, 1 << 30}, std::nullopt);
  hparams.n_embd = keys.integer("embedding_length", kWidth, std::nullopt);
  hparams.n_layer_all = keys.integer("block_count", {1, kMaxLayers}, std::nullopt);
  const int n_nextn = keys.integer("nextn_predict_layers", {0, kMaxLayers}, 0);
  hparams.n_layer = hparams.n_layer_all - n_nextn;
  if (hparams.n_layer < 1) {
    keys.problem(strf("%s: less than block_count (%d) expected, file has %d",
                      keys.full_name("nextn_predict_layers").c_str(), hparams.n_layer_all, n_nextn));
    hparams.n_layer = hparams.n_layer_all;
  }
}

void check_heads(KeyReader& keys, const LayerHparams& layer, int index) {
  if (layer.n_head < 1)
    keys.problem(strf("%s: at least 1 expected, block %d has %d", keys.full_name("attention.head_count").c_str(), index,
                      layer.n_head));
  else if (layer.n_head_kv < 1 || layer.n_head % layer.n_head_kv != 0)
    keys.problem(strf("%s: a divisor of head_count (%d) expected, block %d has %d",
                      keys.full_name("attention.head_count_kv").c_str(), layer.n_head, index, layer.n_head_kv));
}

void read_attention(KeyReader& keys, Hparams& hparams) {
  const int n = hparams.n_layer_all;
  const auto count = static_cast<std::size_t>(n);
  const std::vector<int> heads = keys.per_layer("attention.head_count", n, kHeads, std::vector<int>(count, 0));
  const std::vector<int> kv_heads = keys.per_layer("attention.head_count_kv", n, kHeads, heads);
  const std::vector<int> n_ff = keys.per_layer("feed_forward_length", n, kOptionalWidth, std::vector<int>(count, 0));
  const int by_width = heads[0] > 0 ? hparams.n_embd / heads[0] : 0;
  if (heads[0] > 0 && hparams.n_embd % heads[0] != 0 && !keys.contains("attention.key_length"))
    keys.problem(strf("%s: a divisor of embedding_length (%d) expected, file has %d",
                      keys.full_name("attention.head_count").c_str(), hparams.n_embd, heads[0]));
  const int default_width = std::max(by_width, 1);
  const int dk = keys.integer("attention.key_length", kHeadWidth, default_width);
  const int dv = keys.integer("attention.value_length", kHeadWidth, default_width);
  const int n_rot = keys.integer("rope.dimension_count", {0, 1 << 14}, dk);
  if (n_rot > dk || n_rot % 2 != 0)
    keys.problem(strf("%s: an even number up to the key length (%d) expected, file has %d",
                      keys.full_name("rope.dimension_count").c_str(), dk, n_rot));
  hparams.layers.resize(static_cast<std::size_t>(hparams.n_layer));
  for (std::size_t i = 0; i < hparams.layers.size(); ++i) {
    LayerHparams& layer = hparams.layers[i];
    layer.n_head = heads[i];
    layer.n_head_kv = kv_heads[i];
    layer.n_ff = n_ff[i];
    layer.dk = dk;
    layer.dv = dv;
    layer.n_rot = n_rot;
    layer.moe = hparams.has_experts();
    check_heads(keys, layer, static_cast<int>(i));
  }
}

void read_experts(KeyReader& keys, Hparams& hparams) {
  ExpertHparams& experts = hparams.experts;
  experts.count = keys.integer("expert_count", {0, kMaxExperts}, 0);
  experts.used = keys.integer("expert_used_count", {0, kMaxExperts}, 0);
  const bool sane = experts.count > 0 ? experts.used >= 1 && experts.used <= experts.count : experts.used == 0;
  if (!sane)
    keys.problem(strf("%s: %s expected, file has %d", keys.full_name("expert_used_count").c_str(),
                      experts.count > 0 ? ("1 to " + std::to_string(experts.count)).c_str() : "0 (no experts)",
                      experts.used));
  const int groups = keys.integer("expert_group_count", {0, kMaxExperts}, 0);
  const int groups_used = keys.integer("expert_group_used_count", {0, kMaxExperts}, 0);
  if (groups <= 1) return;
  experts.n_groups = groups;
  experts.n_groups_used = groups_used;
  if (experts.count % groups != 0 || groups_used < 1 || groups_used >= groups)
    keys.problem(strf("%s: %d groups, of which %d used, do not divide %d experts",
                      keys.full_name("expert_group_count").c_str(), groups, groups_used, experts.count));
}

void read_rope(KeyReader& keys, Hparams& hparams) {
  constexpr RealRange kFactor{0.0, 1e6};
  RopeHparams& rope = hparams.rope;
  rope.base = keys.real("rope.freq_base", {1.0, 1e12}, 10000.0f);
  rope.base_swa = keys.real("rope.freq_base_swa", {1.0, 1e12}, 10000.0f);
  const std::string scaling = keys.text("rope.scaling.type", "linear");
  if (scaling == "none")
    rope.scaling = RopeScaling::none;
  else if (scaling == "linear")
    rope.scaling = RopeScaling::linear;
  else if (scaling == "yarn")
    rope.scaling = RopeScaling::yarn;
  else if (scaling == "longrope")
    rope.scaling = RopeScaling::longrope;
  else
    keys.problem(strf("%s: none, linear, yarn or longrope expected, file has %s",
                      keys.full_name("rope.scaling.type").c_str(), ggml::gguf::quoted(scaling).c_str()));
  const float old_factor = keys.real("rope.scale_linear", kFactor, 0.0f);
  const float factor = keys.real("rope.scaling.factor", kFactor, old_factor);
  rope.factor = factor > 0.0f ? factor : 1.0f;
  rope.n_ctx_orig = keys.integer("rope.scaling.original_context_length", {1, 1 << 30}, hparams.n_ctx_train);
  const float attn_factor = keys.real("rope.scaling.attn_factor", kFactor, 1.0f);
  rope.attn_factor = attn_factor > 0.0f ? attn_factor : 1.0f;
  rope.yarn_log_multiplier = keys.real("rope.scaling.yarn_log_multiplier", {0.0, 100.0}, 0.0f);
}

}  // namespace

void read_generic_hparams(KeyReader& keys, int n_vocab, Hparams& hparams) {
  read_sizes(keys, n_vocab, hparams);
  read_experts(keys, hparams);
  read_attention(keys, hparams);
  read_rope(keys, hparams);
}

}  // namespace llama
