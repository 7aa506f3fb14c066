// Every choice in tests/data/quants/mixtures.json: what the two peers' llama-quantize gave each tensor of made-up
// models.
#include "quantize/mixture.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "ggml/error.h"
#include "test_support.h"

namespace llama {
namespace {

using nlohmann::json;

struct NamedTensor {
  std::string name;
  ggml::Shape shape;
  ggml::DType type = ggml::DType::f16;
};

/// The tensors of a model that mixtures.json describes, in the order of its file.
class ModelSpec {
 public:
  explicit ModelSpec(const json& spec) : s_(spec) {
    add("token_embd.weight", ggml::Shape(number("n_embd"), kVocab));
    add("output_norm.weight", ggml::Shape(number("n_embd")));
    if (!is("tied")) add("output.weight", ggml::Shape(number("n_embd"), kVocab));
    for (int layer = 0; layer < number("n_layer"); ++layer) add_layer(layer);
  }
  [[nodiscard]] const std::vector<NamedTensor>& tensors() const { return tensors_; }
  [[nodiscard]] ModelFacts facts() const {
    ModelFacts facts;
    facts.n_layer = static_cast<int>(number("n_layer"));
    facts.n_expert = static_cast<int>(number("experts"));
    facts.gqa = static_cast<int>(number("heads") / number("kv"));
    facts.is_falcon = s_.at("arch") == "falcon";
    facts.is_tied = is("tied");
    return facts;
  }

 private:
  static constexpr std::int64_t kVocab = 512;
  [[nodiscard]] std::int64_t number(const char* key) const { return s_.value(key, std::int64_t{0}); }
  [[nodiscard]] bool is(const char* key) const { return s_.value(key, false); }

  void add(const std::string& name, const ggml::Shape& shape) {
    const bool plain = shape.dims() == 1 || name.find("ffn_gate_inp") != std::string::npos;
    tensors_.push_back({name, shape, plain ? ggml::DType::f32 : ggml::DType::f16});
  }
  void add(int layer, const char* name, const ggml::Shape& shape) {
    add("blk." + std::to_string(layer) + "." + name + ".weight", shape);
  }
  void add_layer(int layer) {
    const std::int64_t n = number("n_embd");
    add(layer, "attn_norm", ggml::Shape(n));
    add_attention(layer, n);
    add(layer, "ffn_norm", ggml::Shape(n));
    if (number("experts") > 0 && layer >= number("dense")) return add_experts(layer, n);
    if (!is("qkv")) add(layer, "ffn_gate", ggml::Shape(n, number("n_ff")));
    add(layer, "ffn_up", ggml::Shape(n, number("n_ff")));
    add(layer, "ffn_down", ggml::Shape(number("n_ff"), n));
  }
  void add_attention(int layer, std::int64_t n) {
    const std::int64_t heads = number("heads");
    const std::int64_t width = n / heads;
    if (is("mla")) {
      add(layer, "attn_q_a", ggml::Shape(n, 256));
      add(layer, "attn_q_a_norm", ggml::Shape(256));
      add(layer, "attn_q_b", ggml::Shape(256, heads * 192));
      add(layer, "attn_kv_a_mqa", ggml::Shape(n, 576));
      add(layer, "attn_kv_a_norm", ggml::Shape(512));
      add(layer, "attn_k_b", ggml::Shape(128, 512, heads));
      add(layer, "attn_v_b", ggml::Shape(512, 128, heads));
      add(layer, "attn_output", ggml::Shape(heads * 128, n));
    } else if (is("qkv")) {
      add(layer, "attn_qkv", ggml::Shape(n, n + 2 * number("kv") * width));
      add(layer, "attn_output", ggml::Shape(n, n));
    } else {
      add(layer, "attn_q", ggml::Shape(n, n));
      add(layer, "attn_k", ggml::Shape(n, number("kv") * width));
      add(layer, "attn_v", ggml::Shape(n, number("kv") * width));
      add(layer, "attn_output", ggml::Shape(n, n));
    }
  }
  void add_experts(int layer, std::int64_t n) {
    const std::int64_t f = number("moe_ff") > 0 ? number("moe_ff") : number("n_ff");
    const std::int64_t experts = number("experts");
    add(layer, "ffn_gate_inp", ggml::Shape(n, experts));
    add(layer, "ffn_gate_exps", ggml::Shape(n, f, experts));
    add(layer, "ffn_up_exps", ggml::Shape(n, f, experts));
    add(layer, "ffn_down_exps", ggml::Shape(f, n, experts));
    if (!is("shexp")) return;
    add(layer, "ffn_gate_shexp", ggml::Shape(n, f));
    add(layer, "ffn_up_shexp", ggml::Shape(n, f));
    add(layer, "ffn_down_shexp", ggml::Shape(f, n));
  }

  const json& s_;
  std::vector<NamedTensor> tensors_;
};

/// The golden type of a tensor: its own entry, or that of "blk.*.", which may differ by layer.
std::string golden_type(const json& golden, const std::string& name) {
  if (const auto own = golden.find(name); own != golden.end()) return *own;
  const int layer = layer_of(name);
  const json& entry = golden.at("blk.*" + name.substr(name.find('.', 4)));
  if (entry.is_string()) return entry;
  for (const auto& [type, layers] : entry.items())
    for (const json& one : layers)
      if (one == layer) return type;
  return "missing";
}

struct Tally {
  int choices = 0, wrong = 0;
};

void compare(const ModelSpec& model, const FileType& file_type, bool has_importance, MixRules rules, const json& golden,
             const std::string& where, Tally& tally) {
  std::vector<std::string> names;
  std::vector<std::string> quantised;
  for (const NamedTensor& tensor : model.tensors()) {
    names.push_back(tensor.name);
    if (is_quantisable(rules, tensor.name, tensor.shape, false)) quantised.push_back(tensor.name);
  }
  const MixRequest request{file_type.name, file_type.type, model.facts(), has_importance};
  const bool plain = file_type.type == ggml::DType::bf16;
  const std::unique_ptr<Mixture> mixture =
      rules == MixRules::llama_cpp ? make_llama_mixture(request, quantised) : make_ik_mixture(request, quantised);
  for (const std::size_t index : visiting_order(rules, names)) {
    const NamedTensor& tensor = model.tensors()[index];
    ggml::DType type = tensor.type;
    if (is_quantisable(rules, tensor.name, tensor.shape, false)) {
      const MixTensor mix{tensor.name, tensor.shape};
      std::string note;
      type = fit_type(rules, plain ? file_type.type : mixture->choose(mix), mix, note);
    }
    ++tally.choices;
    const std::string wanted = golden_type(golden, tensor.name);
    if (ggml::type_info(type).id == wanted) continue;
    if (++tally.wrong <= 20)
      ADD_FAILURE() << where << " " << tensor.name << ": " << ggml::type_info(type).id << ", the reference has "
                    << wanted;
  }
}

Tally compare_project(const char* project, MixRules rules) {
  const json all = json::parse(tandem::load_text(tandem::data_dir() / "quants" / "mixtures.json"));
  Tally tally;
  for (const auto& [model_name, model] : all.at("models").items()) {
    const ModelSpec spec(model.at("spec"));
    for (const auto& [key, golden] : model.at(project).items()) {
      const std::size_t plus = key.find('+');
      const std::string name = key.substr(0, plus);
      const FileType* file_type = find_file_type(name);
      if (file_type == nullptr) {
        ADD_FAILURE() << name;
        continue;
      }
      std::string where = model_name;
      where += " " + key;
      compare(spec, *file_type, plus != std::string::npos, rules, golden, where, tally);
      // Where the file has one answer, an importance matrix changes nothing.
      if (plus == std::string::npos && !model.at(project).contains(key + "+imatrix"))
        compare(spec, *file_type, true, rules, golden, where + "+imatrix", tally);
    }
  }
  return tally;
}

TEST(Mixture, GivesEveryTensorTheTypeThatLlamaCppGivesIt) {
  const Tally tally = compare_project("llama.cpp", MixRules::llama_cpp);
  EXPECT_EQ(tally.wrong, 0);
  EXPECT_GT(tally.choices, 100000);
  std::printf("%d choices\n", tally.choices);
}

TEST(Mixture, GivesEveryTensorTheTypeThatIkLlamaCppGivesIt) {
  const Tally tally = compare_project("ik_llama.cpp", MixRules::ik_llama_cpp);
  EXPECT_EQ(tally.wrong, 0);
  EXPECT_GT(tally.choices, 160000);
  std::printf("%d choices\n", tally.choices);
}

TEST(Mixture, FileTypesAreFoundByNameInAnyCaseAndByNumber) {
  EXPECT_EQ(find_file_type("q4_k_m")->number, 15U);
  EXPECT_EQ(find_file_type("Q4_K")->name, "Q4_K_M");
  EXPECT_EQ(find_file_type("7")->name, "Q8_0");
  EXPECT_EQ(find_file_type("38")->name, "MXFP4_MOE");
  EXPECT_EQ(find_file_type("mxfp4")->rules, MixRules::ik_llama_cpp);
  EXPECT_EQ(find_file_type("q4_k_xl"), nullptr);
  EXPECT_EQ(find_file_type("33"), nullptr);
  EXPECT_EQ(find_file_type(""), nullptr);
}

TEST(Mixture, EveryFileTypeHasRulesThatNameRealTypes) {
  for (const FileType& type : file_types()) {
    for (const MixRules rules : {MixRules::llama_cpp, MixRules::ik_llama_cpp}) {
      for (const int experts : {0, 8, 64}) {
        for (const int gqa : {1, 2, 8}) {
          for (const bool big : {false, true}) {
            ModelFacts facts{.n_layer = 32,
                             .n_expert = experts,
                             .gqa = gqa,
                             .is_falcon = false,
                             .is_llama2_70b = big,
                             .is_large_vocab = big,
                             .is_tied = big};
            const std::vector<std::string> names = {
                "token_embd.weight",     "output.weight",         "blk.0.attn_q.weight",      "blk.0.attn_k.weight",
                "blk.0.attn_v.weight",   "blk.0.attn_qkv.weight", "blk.0.attn_output.weight", "blk.0.ffn_up.weight",
                "blk.0.ffn_gate.weight", "blk.0.ffn_down.weight", "blk.0.ffn_up_shexp.weight"};
            const MixRequest request{type.name, type.type, facts, false};
            const auto mixture =
                rules == MixRules::llama_cpp ? make_llama_mixture(request, names) : make_ik_mixture(request, names);
            for (const std::string& name : names) (void)mixture->choose({name, ggml::Shape(4096, 4096)});
          }
        }
      }
    }
  }
}

TEST(Mixture, FallsBackWhereRowsDoNotDivideAndSaysSo) {
  std::string note;
  const auto fit = [&](MixRules rules, const char* type, const ggml::Shape& shape, const char* name = "a.weight") {
    note.clear();
    return ggml::type_info(fit_type(rules, *ggml::type_from_name(type), {name, shape}, note)).id;
  };
  EXPECT_EQ(fit(MixRules::llama_cpp, "q4_k", ggml::Shape(96, 2)), "q5_0");
  EXPECT_NE(note, "");
  EXPECT_EQ(fit(MixRules::llama_cpp, "q4_k", ggml::Shape(256, 2)), "q4_k");
  EXPECT_EQ(note, "");
  EXPECT_EQ(fit(MixRules::llama_cpp, "q5_k", ggml::Shape(96, 2)), "q5_1");
  EXPECT_EQ(fit(MixRules::ik_llama_cpp, "q5_k", ggml::Shape(96, 2)), "q6_0");
  EXPECT_EQ(fit(MixRules::llama_cpp, "q6_k", ggml::Shape(17, 2)), "f16");
  EXPECT_EQ(fit(MixRules::ik_llama_cpp, "q4_k_r4", ggml::Shape(256, 6)), "q4_k");
  EXPECT_EQ(fit(MixRules::ik_llama_cpp, "q8_k_r8", ggml::Shape(256, 4)), "q8_0");
  EXPECT_EQ(fit(MixRules::ik_llama_cpp, "q4_k_r4", ggml::Shape(256, 8), "token_embd.weight"), "q4_k");
  EXPECT_THROW(fit(MixRules::llama_cpp, "q8_0", ggml::Shape(33, 2)), ggml::Error);
}

}  // namespace
}  // namespace llama
