#include "model_metadata.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace gguf_tool {
namespace {

/// Writes the keys of one architecture; what a model does not have is left out.
class ArchKeys {
 public:
  ArchKeys(ggml::gguf::Metadata& metadata, std::string_view arch) : metadata_(metadata), arch_(arch) {}

  void count(std::string_view key, int value) {
    metadata_.set_u32(fmt::format("{}.{}", arch_, key), static_cast<std::uint32_t>(value));
  }
  void count_if(std::string_view key, int value) {
    if (value != 0) count(key, value);
  }
  void count_if(std::string_view key, std::optional<int> value) {
    if (value) count(key, *value);
  }
  void number(std::string_view key, std::optional<float> value) {
    if (value) metadata_.set_f32(fmt::format("{}.{}", arch_, key), *value);
  }
  void flag(std::string_view key, std::optional<bool> value) {
    if (value) metadata_.set_bool(fmt::format("{}.{}", arch_, key), *value);
  }
  void text(std::string_view key, std::string_view value) {
    metadata_.set_string(fmt::format("{}.{}", arch_, key), std::string(value));
  }
  void counts(std::string_view key, std::span<const std::int32_t> values) {
    metadata_.set_i32s(fmt::format("{}.{}", arch_, key), values);
  }

 private:
  ggml::gguf::Metadata& metadata_;
  std::string arch_;
};

void add_common_keys(ArchKeys& keys, const Preset& p) {
  keys.count("vocab_size", p.vocab);
  keys.count("context_length", p.context);
  keys.count("embedding_length", p.embd);
  keys.count("block_count", p.layers + p.mtp_layers);
  keys.count_if("feed_forward_length", p.ff);
  keys.count("attention.head_count", p.heads);
  keys.count("attention.head_count_kv", p.heads_kv);
  keys.number("rope.freq_base", p.rope_base);
  keys.count("rope.dimension_count", p.rotated_dims());
  keys.number("attention.layer_norm_rms_epsilon", p.eps);
  keys.count_if("attention.sliding_window", p.window);
  if (p.sections) keys.counts("rope.dimension_sections", *p.sections);
  keys.count_if("nextn_predict_layers", p.mtp_layers);
}

void add_head_keys(ArchKeys& keys, const Preset& p) {
  if (!p.mla) {
    keys.count("attention.key_length", p.head_dim);
    keys.count("attention.value_length", p.head_dim);
    return;
  }
  keys.count("attention.key_length", p.mla->kv_rank + p.rotated);
  keys.count("attention.value_length", p.mla->kv_rank);
  keys.count("attention.key_length_mla", p.mla->nope + p.rotated);
  keys.count("attention.value_length_mla", p.head_dim);
  keys.count("attention.kv_lora_rank", p.mla->kv_rank);
  keys.count_if("attention.q_lora_rank", p.mla->q_rank);
}

void add_scaling_keys(ArchKeys& keys, const RopeScaling& scaling) {
  keys.number("rope.scaling.factor", scaling.factor);
  keys.count_if("rope.scaling.original_context_length", scaling.original_context);
  keys.number("rope.scaling.yarn_log_multiplier", scaling.log_multiplier);
  keys.text("rope.scaling.type", scaling.kind);
}

void add_expert_keys(ArchKeys& keys, const Preset& p) {
  keys.count("expert_count", p.experts);
  keys.count("expert_used_count", p.used);
  keys.count("expert_feed_forward_length", p.expert_ff);
  keys.count_if("leading_dense_block_count", p.dense);
  keys.count_if("expert_gating_func", p.gating);
  keys.number("expert_weights_scale", p.scale);
  keys.flag("expert_weights_norm", p.normalise);
  if (!p.delta) keys.count_if("expert_shared_count", p.shared);
  if (p.groups) {
    keys.count("expert_group_count", p.groups->count);
    keys.count("expert_group_used_count", p.groups->used);
  }
}

void add_delta_keys(ArchKeys& keys, const Preset& p) {
  keys.count("ssm.conv_kernel", p.delta->conv);
  keys.count("ssm.state_size", p.delta->state);
  keys.count("ssm.group_count", p.delta->key_heads);
  keys.count("ssm.time_step_rank", p.delta->value_heads);
  keys.count("ssm.inner_size", p.delta->state * p.delta->value_heads);
  keys.count("full_attention_interval", p.attention_interval);
  keys.count("expert_shared_feed_forward_length", p.expert_ff * p.shared);
}

/// UTF-8 of a code point below U+0800.
std::string utf8(int code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xc0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 0x3f))};
}

/// One visible character for each byte value, as byte-level BPE writes bytes: itself where Latin-1 prints it, else the
/// next unused one from U+0100 on.
std::vector<std::string> byte_pieces() {
  std::vector<std::string> pieces;
  int spare = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool ascii = byte >= 0x21 && byte <= 0x7e;
    const bool latin = byte >= 0xa1 && byte != 0xad;
    pieces.push_back(utf8(ascii || latin ? byte : spare++));
  }
  return pieces;
}

void add_tokenizer(ggml::gguf::Metadata& metadata, int vocab) {
  constexpr std::int32_t kNormal = 1;
  constexpr std::int32_t kControl = 3;
  constexpr int kSpecial = 3;
  std::vector<std::string> tokens = byte_pieces();
  for (int id = static_cast<int>(tokens.size()); id < vocab - kSpecial; ++id)
    tokens.push_back(fmt::format("tok{}", id));
  std::vector<std::int32_t> types(tokens.size(), kNormal);
  tokens.insert(tokens.end(), {"<|bos|>", "<|eos|>", "<|pad|>"});
  types.insert(types.end(), kSpecial, kControl);
  const auto id = [&](int from_end) { return static_cast<std::uint32_t>(vocab - from_end); };
  metadata.set_string("tokenizer.ggml.model", "gpt2");
  metadata.set_string("tokenizer.ggml.pre", "qwen2");
  metadata.set_strings("tokenizer.ggml.tokens", std::move(tokens));
  metadata.set_i32s("tokenizer.ggml.token_type", types);
  metadata.set_strings("tokenizer.ggml.merges", {"a b", "c d"});
  metadata.set_u32("tokenizer.ggml.bos_token_id", id(3));
  metadata.set_u32("tokenizer.ggml.eos_token_id", id(2));
  metadata.set_u32("tokenizer.ggml.padding_token_id", id(1));
  metadata.set_bool("tokenizer.ggml.add_bos_token", false);
  metadata.set_string("tokenizer.chat_template",
                      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ");
}

}  // namespace

ggml::gguf::Metadata model_metadata(const Preset& preset, const Mix& mix) {
  constexpr std::uint32_t kQuantisationVersion = 2;
  ggml::gguf::Metadata metadata;
  metadata.set_string("general.architecture", std::string(preset.arch));
  metadata.set_string("general.name", fmt::format("{}-synthetic", preset.name));
  metadata.set_string("general.type", "model");
  metadata.set_u32("general.quantization_version", kQuantisationVersion);
  metadata.set_u32("general.file_type", mix.file_type);
  ArchKeys keys(metadata, preset.arch);
  add_common_keys(keys, preset);
  add_head_keys(keys, preset);
  if (preset.scaling) add_scaling_keys(keys, *preset.scaling);
  if (preset.experts > 0) add_expert_keys(keys, preset);
  if (preset.delta) add_delta_keys(keys, preset);
  add_tokenizer(metadata, preset.vocab);
  return metadata;
}

}  // namespace gguf_tool
