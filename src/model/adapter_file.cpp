#include "model/adapter_file.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/quant.h"
#include "ggml/quoted.h"
#include "model/key_reader.h"

namespace llama {

using ggml::Error;
using ggml::ErrorCode;
using ggml::Shape;
using ggml::strf;
using ggml::gguf::TensorInfo;

namespace {

constexpr const char* kHint =
    "give a LoRA adapter in GGUF form that was made for this model; adapters of other formats must be converted first";

/// Whether the tensor is a matrix that activations are multiplied with, or the table of embeddings: what a slot's
/// adapters can change. Norms and filters are not; neither are latent attention's key and value matrices, which are
/// used in two forms.
bool takes_adapters(Role role) {
  switch (role) {
    case Role::token_embd:
    case Role::output:
    case Role::attn_q:
    case Role::attn_k:
    case Role::attn_v:
    case Role::attn_qkv:
    case Role::attn_output:
    case Role::attn_gate:
    case Role::attn_q_a:
    case Role::attn_q_b:
    case Role::attn_kv_a_mqa:
    case Role::ffn_gate:
    case Role::ffn_up:
    case Role::ffn_down:
    case Role::ffn_gate_inp:
    case Role::ffn_gate_exps:
    case Role::ffn_up_exps:
    case Role::ffn_gate_up_exps:
    case Role::ffn_down_exps:
    case Role::ffn_gate_inp_shexp:
    case Role::ffn_gate_shexp:
    case Role::ffn_up_shexp:
    case Role::ffn_down_shexp:
    case Role::ssm_in:
    case Role::ssm_ba:
    case Role::ssm_beta:
    case Role::ssm_alpha:
    case Role::ssm_out:
      return true;
    default:
      return false;
  }
}

struct Base {
  const ggml::Weight* weight = nullptr;
  int layer = -1;
  Role role = Role::count;
};

std::unordered_map<std::string_view, Base> bases_by_name(const ModelWeights& weights) {
  std::unordered_map<std::string_view, Base> bases;
  const auto note = [&](const TensorSet& set, int layer) {
    for (std::size_t role = 0; role < kRoleCount; ++role)
      if (const ggml::Weight* weight = set.parts[role].weight)
        bases.emplace(weight->name, Base{weight, layer, static_cast<Role>(role)});
  };
  note(weights.global, -1);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) note(weights.layers[i], static_cast<int>(i));
  return bases;
}

/// Metadata first, then the pairs; problems are collected.
class Matcher {
 public:
  Matcher(AdapterFile& adapter, const Hparams& hparams, const ModelWeights& weights)
      : adapter_(adapter), hparams_(hparams), bases_(bases_by_name(weights)) {}

  void run() {
    // Of a file that is no adapter at all, every tensor would be a problem.
    if (read_metadata()) match_pairs();
    if (problems_.empty() && adapter_.tensors.empty()) problems_.emplace_back("the file has no tensors");
    if (!problems_.empty()) throw Error(ErrorCode::invalid_file, list_problems(adapter_.info.path, problems_), kHint);
  }

 private:
  std::string text_of(std::string_view key) {
    try {
      return std::string(adapter_.file.metadata().get_string(key).value_or(""));
    } catch (const Error& error) {
      problems_.push_back(error.message());
      return {};
    }
  }

  void expect(std::string_view key, std::string_view expected) {
    const std::string found = text_of(key);
    if (found == expected) return;
    problems_.push_back(strf("%s: %s expected, file has %s", std::string(key).c_str(),
                             ggml::gguf::quoted(expected).c_str(),
                             found.empty() ? "none" : ggml::gguf::quoted(found).c_str()));
  }

  /// False: it is no LoRA adapter.
  bool read_metadata() {
    const ggml::gguf::Metadata& metadata = adapter_.file.metadata();
    expect("general.type", "adapter");
    expect("adapter.type", "lora");
    const bool is_adapter = problems_.empty();
    expect("general.architecture", hparams_.arch);
    if (metadata.contains("adapter.alora.invocation_tokens"))
      problems_.emplace_back("adapter.alora.invocation_tokens: adapters that a text switches on are not supported");
    AdapterInfo& info = adapter_.info;
    info.task_name = text_of("adapter.lora.task_name");
    info.prompt_prefix = text_of("adapter.lora.prompt_prefix");
    try {
      const std::optional<float> alpha = metadata.get_f32("adapter.lora.alpha");
      if (!alpha && is_adapter) problems_.emplace_back("adapter.lora.alpha: missing");
      info.alpha = alpha.value_or(0.0f);
      if (!std::isfinite(info.alpha)) problems_.emplace_back("adapter.lora.alpha: a finite number expected");
    } catch (const Error& error) {
      problems_.push_back(error.message());
    }
    return is_adapter;
  }

  struct Pair {
    std::string base;
    const TensorInfo* a = nullptr;
    const TensorInfo* b = nullptr;
  };

  void match_pairs() {
    std::vector<Pair> pairs;
    std::unordered_map<std::string, std::size_t> index;
    for (const TensorInfo& tensor : adapter_.file.tensors()) {
      const bool is_a = tensor.name.ends_with(".lora_a");
      if (!is_a && !tensor.name.ends_with(".lora_b")) {
        problems_.push_back(tensor.name + ": not a tensor of an adapter, whose names end in .lora_a and .lora_b");
        continue;
      }
      const std::string base = tensor.name.substr(0, tensor.name.rfind('.'));
      const auto [at, is_new] = index.emplace(base, pairs.size());
      if (is_new) pairs.push_back({base, nullptr, nullptr});
      (is_a ? pairs[at->second].a : pairs[at->second].b) = &tensor;
    }
    for (const Pair& pair : pairs) match(pair);
  }

  /// Whether the tensor belongs to a block that is not evaluated: what changes it is left out, as the block is.
  [[nodiscard]] bool is_skipped(const std::string& base) const {
    for (int i = hparams_.n_layer; i < hparams_.n_layer_all; ++i)
      if (base.starts_with(strf("blk.%d.", i))) return true;
    return false;
  }

  void match(const Pair& pair) {
    if (is_skipped(pair.base)) return;
    const auto found = bases_.find(pair.base);
    if (found == bases_.end()) {
      problems_.push_back(pair.base + ": the model has no such tensor");
      return;
    }
    if (!takes_adapters(found->second.role)) {
      problems_.push_back(pair.base + ": this version applies no adapters to this tensor");
      return;
    }
    if (pair.a == nullptr || pair.b == nullptr) {
      problems_.push_back(strf("%s.%s: missing, while the other half of the pair is there", pair.base.c_str(),
                               pair.a == nullptr ? "lora_a" : "lora_b"));
      return;
    }
    const std::int64_t rank = check_shapes(pair, found->second);
    adapter_.info.rank = std::max(adapter_.info.rank, static_cast<int>(rank));
    ++adapter_.info.n_tensors;
    adapter_.info.bytes += pair.a->bytes + pair.b->bytes;
    const float factor = adapter_.info.alpha == 0.0f ? 1.0f : adapter_.info.alpha / static_cast<float>(rank);
    adapter_.tensors.push_back({pair.a, pair.b, found->second.layer, found->second.role, factor});
  }

  /// The pair's rank.
  std::int64_t check_shapes(const Pair& pair, const Base& base) {
    const Shape w = base.weight->shape;
    const bool is_table = base.role == Role::token_embd;
    const std::int64_t rank = is_table ? pair.a->shape[0] : pair.a->shape[1];
    const Shape a = is_table ? Shape(rank, w[1]) : Shape(w[0], rank, w[2]);
    const Shape b = is_table ? Shape(rank, w[0]) : Shape(rank, w[1], w[2]);
    check(*pair.a, a, *base.weight);
    check(*pair.b, b, *base.weight);
    const std::int64_t most = std::max(w[0], w[1]);
    if (rank < 1 || rank > most)
      problems_.push_back(strf("%s: rank from 1 to %lld expected (%s is %s), file has %lld", pair.base.c_str(),
                               static_cast<long long>(most), pair.base.c_str(), w.text().c_str(),
                               static_cast<long long>(rank)));
    return rank;
  }

  void check(const TensorInfo& tensor, const Shape& expected, const ggml::Weight& base) {
    if (tensor.shape != expected)
      problems_.push_back(strf("%s: %s expected (the model's %s is %s), file has %s", tensor.name.c_str(),
                               expected.text().c_str(), base.name.c_str(), base.shape.text().c_str(),
                               tensor.shape.text().c_str()));
    if (!ggml::is_weight_type(tensor.type))
      problems_.push_back(strf("%s: a weight type expected, file has %s", tensor.name.c_str(),
                               std::string(ggml::type_info(tensor.type).name).c_str()));
  }

  AdapterFile& adapter_;
  const Hparams& hparams_;
  const std::unordered_map<std::string_view, Base> bases_;
  std::vector<std::string> problems_;
};

}  // namespace

AdapterFile open_adapter(const std::string& path, const Hparams& hparams, const ModelWeights& weights) {
  AdapterFile adapter{ggml::gguf::File::open(path), {}, {}};
  adapter.info.path = path;
  Matcher(adapter, hparams, weights).run();
  return adapter;
}

}  // namespace llama
