#include <algorithm>
#include <charconv>
#include <numeric>

#include "ggml/error.h"
#include "quantize/mixture.h"

namespace llama {
namespace {

/// A key that may hold a value or one per layer: then that of the first layer that has any.
std::int64_t first_integer(const ggml::gguf::Metadata& metadata, const std::string& key) {
  const ggml::gguf::Value* value = metadata.find(key);
  if (value == nullptr) return 0;
  if (value->type != ggml::gguf::ValueType::array) return metadata.get_integer(key).value_or(0);
  const ggml::gguf::Array* array = metadata.get_array(key);
  if (array->element == ggml::gguf::ValueType::string) return 0;
  for (std::size_t i = 0; i < array->size(); ++i)
    if (array->integer(i) > 0) return array->integer(i);
  return 0;
}

}  // namespace

ModelFacts read_model_facts(const ggml::gguf::File& file) {
  const ggml::gguf::Metadata& metadata = file.metadata();
  const std::optional<std::string_view> arch = metadata.get_string("general.architecture");
  if (!arch) {
    throw ggml::Error(ggml::ErrorCode::invalid_file, file.shards().front().path + ": general.architecture is missing",
                      "only models can be quantised");
  }
  const auto number = [&](const char* key) { return first_integer(metadata, std::string(*arch) + "." + key); };
  const std::int64_t layers = number("block_count");
  const std::int64_t heads = number("attention.head_count");
  const std::int64_t kv_heads = std::max<std::int64_t>(number("attention.head_count_kv"), 0);
  const std::int64_t width = number("embedding_length");
  const std::int64_t hidden = number("feed_forward_length");
  ModelFacts facts;
  facts.n_layer = static_cast<int>(std::clamp<std::int64_t>(layers, 0, 1 << 20));
  facts.n_expert = static_cast<int>(std::clamp<std::int64_t>(number("expert_count"), 0, 1 << 20));
  facts.gqa = kv_heads > 0 ? static_cast<int>(std::clamp<std::int64_t>(heads / kv_heads, 1, 1 << 20)) : 1;
  facts.is_falcon = *arch == "falcon";
  const bool is_70b = layers == 80 && width == 8192 && hidden == 28672 && heads == 64;
  const bool is_8b = layers == 32 && width == 4096 && hidden == 14336 && heads == 32;
  facts.is_llama2_70b = is_70b && kv_heads < heads;
  const ggml::gguf::TensorInfo* embedding = file.find("token_embd.weight");
  // LLaMA 3's vocabulary has 128256 tokens, LLaMA 2's 32000.
  constexpr std::int64_t kLargeVocab = 127999;
  facts.is_large_vocab = (is_70b || is_8b) && embedding != nullptr && embedding->shape[1] >= kLargeVocab;
  facts.is_tied = file.find("output.weight") == nullptr;
  return facts;
}

int layer_of(std::string_view name) {
  constexpr std::string_view kStem = "blk.";
  if (!name.starts_with(kStem)) return -1;
  int layer = -1;
  const char* end = name.data() + name.size();
  const auto [stop, failure] = std::from_chars(name.data() + kStem.size(), end, layer);
  return failure == std::errc() && stop != end && *stop == '.' ? layer : -1;
}

std::vector<std::size_t> visiting_order(MixRules rules, std::span<const std::string> names) {
  std::vector<std::size_t> order(names.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (rules == MixRules::ik_llama_cpp) return order;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const int one = layer_of(names[a]);
    const int two = layer_of(names[b]);
    return one != two ? one < two : names[a] < names[b];
  });
  return order;
}

std::string_view choice_of(std::span<const Choice> table, std::string_view file_type) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Choice& c) { return c.file_type == file_type; });
  return found == table.end() ? std::string_view() : found->type;
}

bool is_one_of(std::string_view text, std::span<const std::string_view> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

std::string_view shared_down_rule(std::string_view file_type, const DownCase& d) {
  const bool first_eighth = d.i < d.n / 8;
  const bool more = use_more_bits(d.i, d.n);
  if (file_type == "Q2_K") return "q3_k";
  if (file_type == "Q2_K_S") return first_eighth ? "q4_k" : "";
  if (file_type == "Q3_K_M") return d.i < d.n / 16 ? "q5_k" : !d.is_falcon || more ? "q4_k" : "";
  if (file_type == "Q3_K_L") return d.is_falcon ? "q4_k" : "q5_k";
  if (file_type == "Q4_0") return first_eighth && d.has_importance ? "q4_1" : "";
  if (file_type == "Q5_0") return first_eighth && d.has_importance ? "q5_1" : "";
  if (file_type == "Q4_K_S") return first_eighth && !d.is_falcon ? "q5_k" : "";
  if (file_type == "Q4_K_M" && d.is_falcon) return d.i < d.n / 16 ? "q6_k" : more ? "q5_k" : "";
  if (file_type == "Q4_K_M" || file_type == "Q5_K_M") return more ? "q6_k" : "";
  if (file_type == "IQ3_XXS") return d.has_importance ? "" : first_eighth ? "q4_k" : "q3_k";
  if (file_type == "IQ3_M") return first_eighth || (d.more_for_experts && more) ? "q4_k" : "";
  if (file_type == "IQ4_NL" || file_type == "IQ4_XS") return first_eighth && !d.has_importance ? "q5_k" : "";
  return "";
}

}  // namespace llama
