#include <algorithm>
#include <set>

#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/quant.h"
#include "ggml/quoted.h"
#include "llama/name_pattern.h"
#include "llama/quantize.h"
#include "placement/nearest_names.h"
#include "quantize/mixture.h"
#include "quantize/plan_metadata.h"

namespace llama {
namespace {

using ggml::DType;
using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;
using ggml::gguf::File;
using ggml::gguf::TensorInfo;

std::string id_of(DType type) {
  return std::string(ggml::type_info(type).id);
}

bool is_float(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

/// Chooses types one tensor after the other.
class Planner {
 public:
  Planner(const File& file, const QuantizeParams& params)
      : file_(file), p_(params), rules_(params.rules.value_or(params.file_type->rules)) {
    for (const TypeRule& rule : params.type_rules) patterns_.push_back(NamePattern::compile(rule.pattern).take());
    for (const TensorInfo& tensor : file.tensors())
      if (changes(tensor)) quantised_.push_back(tensor.name);
    check_types();
    const MixRequest request{params.file_type->name, params.file_type->type, read_model_facts(file),
                             params.importance != nullptr};
    const bool plain = params.pure || is_float(params.file_type->type);
    if (!plain)
      mixture_ = rules_ == MixRules::llama_cpp ? make_llama_mixture(request, quantised_)
                                               : make_ik_mixture(request, quantised_);
  }

  [[nodiscard]] MixRules rules() const { return rules_; }

  /// A line for each rule that concerns none of the tensors that are quantised, with the names nearest to it.
  [[nodiscard]] std::vector<std::string> unused_rules() const {
    std::vector<std::string> lines;
    const auto check = [&](const std::string& rule, const std::string& literal, const auto& concerns) {
      if (std::any_of(quantised_.begin(), quantised_.end(), concerns)) return;
      lines.push_back(
          strf("%s: no tensor that is quantised has such a name%s", rule.c_str(), nearest(literal).c_str()));
    };
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      check(patterns_[i].text() + "=" + id_of(p_.type_rules[i].type), patterns_[i].literal_part(),
            [&](const std::string& name) { return patterns_[i].found_in(name); });
    }
    const auto contains = [](const std::string& part) {
      return [&part](const std::string& name) { return name.find(part) != std::string::npos; };
    };
    for (const TypeRule& role : p_.role_types)
      check(role.pattern + "=" + id_of(role.type), role.pattern, contains(role.pattern));
    for (const auto* list : {&p_.include_weights, &p_.exclude_weights}) {
      const char* option = list == &p_.include_weights ? "--include-weights " : "--exclude-weights ";
      for (const std::string& part : *list) check(option + part, part, contains(part));
    }
    return lines;
  }

  TensorChoice choose(std::size_t index) {
    const TensorInfo& tensor = file_.tensors()[index];
    TensorChoice out;
    out.name = tensor.name;
    out.source = index;
    out.type = tensor.type;
    out.bytes_before = out.bytes_after = tensor.bytes;
    if (!changes(tensor)) return out;
    const MixTensor mix{tensor.name, tensor.shape};
    out.type = fit_type(rules_, wanted_type(mix), mix, out.note);
    if (out.type == tensor.type) return out;
    check_source(tensor, out.type);
    add_importance(tensor, out);
    out.bytes_after = ggml::tensor_bytes(out.type, tensor.shape);
    return out;
  }

 private:
  [[nodiscard]] std::string nearest(const std::string& literal) const {
    constexpr std::size_t kShown = 3;
    std::string text;
    for (const std::string& name : nearest_names(literal, {quantised_.begin(), quantised_.end()}, kShown))
      text += (text.empty() ? "; nearest: " : ", ") + name;
    return text;
  }

  [[nodiscard]] bool changes(const TensorInfo& tensor) const {
    if (p_.leave_output_tensor && tensor.name == "output.weight") return false;
    return ggml::is_weight_type(tensor.type) &&
           is_quantisable(rules_, tensor.name, tensor.shape, p_.router_type.has_value());
  }

  void check_types() const {
    const auto check = [](std::optional<DType> type) {
      if (type && !ggml::is_weight_type(*type))
        throw Error(ErrorCode::invalid_argument, id_of(*type) + " is no type for weights");
    };
    for (const auto& type : {p_.output_type, p_.token_embedding_type, p_.per_layer_embedding_type, p_.router_type})
      check(type);
    for (const auto* list : {&p_.type_rules, &p_.role_types})
      for (const TypeRule& rule : *list) check(rule.type);
  }

  [[nodiscard]] DType wanted_type(const MixTensor& tensor) {
    const DType by_mixture = mixture_ ? mixture_->choose(tensor) : p_.file_type->type;
    const std::string_view name = tensor.name;
    if (name == "output.weight" && p_.output_type) return *p_.output_type;
    if (name == "token_embd.weight" && p_.token_embedding_type) return *p_.token_embedding_type;
    if (name == "per_layer_token_embd.weight" && p_.per_layer_embedding_type) return *p_.per_layer_embedding_type;
    if (name.find("ffn_gate_inp.weight") != std::string_view::npos && p_.router_type) return *p_.router_type;
    for (std::size_t i = 0; i < patterns_.size(); ++i)
      if (patterns_[i].found_in(name)) return p_.type_rules[i].type;
    for (const TypeRule& role : p_.role_types)
      if (name.find(role.pattern) != std::string_view::npos) return role.type;
    return by_mixture;
  }

  void check_source(const TensorInfo& tensor, DType to) const {
    if (is_float(tensor.type) || p_.allow_requantize) return;
    throw Error(ErrorCode::unsupported,
                strf("%s is quantised already (%s), and would become %s", ggml::gguf::quoted(tensor.name).c_str(),
                     id_of(tensor.type).c_str(), id_of(to).c_str()),
                "quantise from the original in F32, F16 or BF16, or accept the further loss with --allow-requantize");
  }

  [[nodiscard]] bool uses_importance(const std::string& name) const {
    const auto is_in = [&](const std::vector<std::string>& parts) {
      return std::any_of(parts.begin(), parts.end(),
                         [&](const std::string& part) { return name.find(part) != std::string::npos; });
    };
    if (!p_.include_weights.empty()) return is_in(p_.include_weights);
    return !is_in(p_.exclude_weights);
  }

  void add_importance(const TensorInfo& tensor, TensorChoice& out) const {
    if (p_.importance != nullptr && uses_importance(tensor.name) && !is_float(out.type)) {
      if (const ImportanceMatrix::Entry* entry = find_importance(tensor.name)) {
        // A legacy file has the columns of all experts in a row.
        const std::int64_t all = tensor.shape[0] * tensor.shape[2] * tensor.shape[3];
        const bool one_for_all = entry->matrices() == 1 && entry->columns == tensor.shape[0];
        const bool one_for_each =
            entry->columns * entry->matrices() == all && (entry->matrices() == 1 || entry->columns == tensor.shape[0]);
        if (!one_for_all && !one_for_each) {
          throw Error(ErrorCode::invalid_argument,
                      strf("the importance matrix has %lld columns in %lld matrices for %s, the model %s",
                           static_cast<long long>(entry->columns), static_cast<long long>(entry->matrices()),
                           ggml::gguf::quoted(tensor.name).c_str(), tensor.shape.text().c_str()),
                      "make the importance matrix with this model");
        }
        out.importance = ImportanceMatrix::means(*entry);
        return;
      }
      if (out.note.empty() && tensor.name != "token_embd.weight" && tensor.name != "output.weight")
        out.note = "not in the importance matrix";
    }
    if (p_.ignore_imatrix_rules || !needs_importance(rules_, p_.file_type->name, out.type, tensor.name)) return;
    throw Error(ErrorCode::unsupported,
                strf("%s: type %s is useless without an importance matrix%s", ggml::gguf::quoted(tensor.name).c_str(),
                     id_of(out.type).c_str(),
                     p_.importance != nullptr ? ", and the one that is given has no entry for it" : ""),
                "make one with llama-imatrix and give it with --imatrix, choose a larger type, or use "
                "--ignore-imatrix-rules");
  }

  [[nodiscard]] const ImportanceMatrix::Entry* entry_of(const std::string& name) const {
    const auto found = p_.importance->entries.find(name);
    return found == p_.importance->entries.end() ? nullptr : &found->second;
  }

  /// The tensor's own entry, or that of a sibling with the same input.
  [[nodiscard]] const ImportanceMatrix::Entry* find_importance(const std::string& name) const {
    if (const auto* own = entry_of(name)) return own;
    struct Sibling {
      std::string_view part, other;
    };
    constexpr Sibling kSiblings[] = {{"ffn_up_exps", "ffn_gate_up_exps"},
                                     {"ffn_gate_exps", "ffn_gate_up_exps"},
                                     {"ffn_gate_up_exps", "ffn_up_exps"},
                                     {"ffn_gate_exps", "ffn_up_exps"},
                                     {"ffn_gate.", "ffn_up."},
                                     {"attn_v_b", "attn_kv_b"},
                                     {"attn_kv_b", "attn_v_b"}};
    for (const Sibling& sibling : kSiblings) {
      const std::size_t at = name.find(sibling.part);
      if (at == std::string::npos) continue;
      std::string other = name;
      other.replace(at, sibling.part.size(), sibling.other);
      if (const auto* entry = entry_of(other)) return entry;
    }
    return nullptr;
  }

  const File& file_;
  const QuantizeParams& p_;
  const MixRules rules_;
  std::vector<NamePattern> patterns_;
  std::vector<std::string> quantised_;  // names of the tensors that change, in file order
  std::unique_ptr<Mixture> mixture_;    // null: one type for all
};

/// New numbers of the layers that stay; -1 for those that go.
std::vector<int> layer_numbers(const File& file, const std::vector<int>& pruned) {
  const int n_layer = read_model_facts(file).n_layer;
  std::vector<int> numbers;
  const std::set<int> gone(pruned.begin(), pruned.end());
  if (gone.size() != pruned.size()) throw Error(ErrorCode::invalid_argument, "--prune-layers names a layer twice");
  if (!gone.empty() && (*gone.rbegin() >= n_layer || static_cast<int>(gone.size()) == n_layer)) {
    throw Error(ErrorCode::invalid_argument,
                strf("--prune-layers: the model has the layers 0 to %d, and one must stay", n_layer - 1));
  }
  numbers.reserve(static_cast<std::size_t>(n_layer));
  int next = 0;
  for (int layer = 0; layer < n_layer; ++layer) numbers.push_back(gone.contains(layer) ? -1 : next++);
  return numbers;
}

/// The name of a tensor once the layers are numbered anew; empty when its layer goes.
std::string renumbered(const std::string& name, const std::vector<int>& numbers) {
  const int layer = layer_of(name);
  if (layer < 0 || layer >= static_cast<int>(numbers.size())) return name;
  const int number = numbers[static_cast<std::size_t>(layer)];
  if (number < 0) return {};
  return "blk." + std::to_string(number) + name.substr(name.find('.', 4));
}

TensorChoice copied(const File& file, std::size_t index) {
  const TensorInfo& tensor = file.tensors()[index];
  TensorChoice out;
  out.name = tensor.name;
  out.source = index;
  out.type = tensor.type;
  out.bytes_before = out.bytes_after = tensor.bytes;
  return out;
}

std::vector<TensorChoice> choose_all(const File& file, const QuantizeParams& params,
                                     std::vector<std::string>& warnings) {
  std::vector<std::string> names;
  names.reserve(file.tensors().size());
  for (const TensorInfo& tensor : file.tensors()) names.push_back(tensor.name);
  std::vector<TensorChoice> out;
  out.reserve(names.size());
  if (params.file_type == nullptr) {
    for (std::size_t i = 0; i < names.size(); ++i) out.push_back(copied(file, i));
    if (!params.type_rules.empty() || !params.role_types.empty())
      warnings.emplace_back("a copy changes no weight: types for single tensors have no effect");
    return out;
  }
  Planner planner(file, params);
  warnings = planner.unused_rules();
  for (const std::size_t index : visiting_order(planner.rules(), names)) out.push_back(planner.choose(index));
  return out;
}

}  // namespace

std::uint64_t QuantizePlan::bytes_before() const {
  std::uint64_t bytes = 0;
  for (const TensorChoice& tensor : tensors) bytes += tensor.bytes_before;
  return bytes;
}

std::uint64_t QuantizePlan::bytes_after() const {
  std::uint64_t bytes = 0;
  for (const TensorChoice& tensor : tensors) bytes += tensor.bytes_after;
  return bytes;
}

QuantizePlan plan_quantization(const File& file, const QuantizeParams& params) {
  QuantizePlan plan;
  plan.tensors = choose_all(file, params, plan.warnings);
  if (!params.pruned_layers.empty()) {
    const std::vector<int> numbers = layer_numbers(file, params.pruned_layers);
    for (TensorChoice& tensor : plan.tensors) tensor.name = renumbered(tensor.name, numbers);
    std::erase_if(plan.tensors, [](const TensorChoice& tensor) { return tensor.name.empty(); });
  }
  plan.metadata = output_metadata(file, params);
  if (params.keep_split && file.shards().size() > 1) {
    const std::span<const TensorInfo> infos = file.tensors();
    std::stable_sort(plan.tensors.begin(), plan.tensors.end(), [&](const TensorChoice& a, const TensorChoice& b) {
      return infos[a.source].shard < infos[b.source].shard;
    });
    plan.part_tensors.assign(file.shards().size(), 0);
    for (const TensorChoice& tensor : plan.tensors) ++plan.part_tensors[infos[tensor.source].shard];
  }
  return plan;
}

}  // namespace llama
