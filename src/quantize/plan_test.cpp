#include <gtest/gtest.h>

#include "ggml/error.h"
#include "llama/quantize.h"
#include "quantize/quantize_test_support.h"
#include "test_support.h"

namespace llama {
namespace {

using ggml::gguf::File;
using ggml::gguf::ValueType;

class Plan : public ::testing::Test {
 protected:
  Plan() {
    testing::write_model(path(), 4, false);
    file_ = File::open(path());
    params_.file_type = find_file_type("q4_k_m");
  }
  [[nodiscard]] std::string path() const { return (folder_.path() / "m.gguf").string(); }
  [[nodiscard]] QuantizePlan plan() const { return plan_quantization(file_, params_); }
  [[nodiscard]] std::string type_of(const std::string& name) const {
    for (const TensorChoice& tensor : plan().tensors)
      if (tensor.name == name) return std::string(ggml::type_info(tensor.type).id);
    return "missing";
  }
  [[nodiscard]] ggml::Error error() const {
    try {
      (void)plan();
    } catch (const ggml::Error& error) {
      return error;
    }
    return {ggml::ErrorCode::internal, "no error"};
  }

  tandem::TempDir folder_;
  File file_;
  QuantizeParams params_;
};

TEST_F(Plan, KeepsWhatIsNoMatrixAndMixesTheRest) {
  EXPECT_EQ(type_of("output_norm.weight"), "f32");
  EXPECT_EQ(type_of("output.weight"), "q6_k");
  EXPECT_EQ(type_of("blk.0.attn_v.weight"), "q4_k");
  EXPECT_EQ(type_of("blk.3.attn_v.weight"), "q6_k");
}

TEST_F(Plan, PureGivesOneTypeToAll) {
  params_.pure = true;
  EXPECT_EQ(type_of("output.weight"), "q4_k");
  EXPECT_EQ(type_of("blk.3.attn_v.weight"), "q4_k");
}

TEST_F(Plan, TheFirstMatchingRuleWinsOverRolesAndTheseOverTheMixture) {
  params_.role_types = {{"ffn_down", *ggml::type_from_name("q5_k")}};
  params_.type_rules = {{"blk\\.[01]\\.ffn", ggml::DType::q8_0}, {"ffn", *ggml::type_from_name("q4_0")}};
  EXPECT_EQ(type_of("blk.1.ffn_down.weight"), "q8_0");
  EXPECT_EQ(type_of("blk.2.ffn_down.weight"), "q4_0");
  params_.type_rules.pop_back();
  EXPECT_EQ(type_of("blk.2.ffn_down.weight"), "q5_k");
  params_.token_embedding_type = ggml::DType::bf16;
  params_.output_type = ggml::DType::q8_0;
  EXPECT_EQ(type_of("token_embd.weight"), "bf16");
  EXPECT_EQ(type_of("output.weight"), "q8_0");
  params_.leave_output_tensor = true;
  EXPECT_EQ(type_of("output.weight"), "f32");
}

TEST_F(Plan, RefusesBrokenPatternsAndTypesThatHoldNoWeights) {
  params_.type_rules = {{"(", ggml::DType::q8_0}};
  EXPECT_NE(error().message().find("does not compile"), std::string::npos);
  params_.type_rules = {{"x", ggml::DType::i32}};
  EXPECT_NE(error().message().find("i32 is no type for weights"), std::string::npos);
}

TEST_F(Plan, TypesThatNeedAnImportanceMatrixAreRefusedWithoutOne) {
  params_.file_type = find_file_type("iq2_xxs");
  EXPECT_EQ(error().code(), ggml::ErrorCode::unsupported);
  EXPECT_NE(error().message().find("useless without an importance matrix"), std::string::npos);
  params_.ignore_imatrix_rules = true;
  EXPECT_EQ(error().message(), "no error");
  params_.ignore_imatrix_rules = false;
  ImportanceMatrix matrix;
  params_.importance = &matrix;
  EXPECT_NE(error().message().find("has no entry for it"), std::string::npos);
  for (int layer = 0; layer < 4; ++layer) {
    const std::string name = "blk." + std::to_string(layer) + ".";
    matrix.entries[name + "attn_v.weight"] = {256, std::vector<float>(256, 2), {2}};
    matrix.entries[name + "ffn_down.weight"] = {512, std::vector<float>(512, 2), {2}};
  }
  EXPECT_EQ(error().message(), "no error");
  matrix.entries["blk.2.ffn_down.weight"].columns = 256;
  EXPECT_NE(error().message().find("256 columns"), std::string::npos);
}

TEST_F(Plan, ImportanceIsUsedForTheIncludedAndNotForTheExcluded) {
  ImportanceMatrix matrix;
  matrix.entries["blk.0.attn_v.weight"] = {256, std::vector<float>(256, 2), {2}};
  params_.importance = &matrix;
  const auto used = [&] {
    std::size_t n = 0;
    for (const TensorChoice& tensor : plan().tensors) n += tensor.importance.empty() ? 0 : 1;
    return n;
  };
  EXPECT_EQ(used(), 1U);
  params_.exclude_weights = {"attn_v"};
  EXPECT_EQ(used(), 0U);
  params_.exclude_weights.clear();
  params_.include_weights = {"ffn"};
  EXPECT_EQ(used(), 0U);
}

TEST_F(Plan, MetadataSaysFileTypeVersionAndImportance) {
  ImportanceMatrix matrix;
  matrix.entries["blk.0.attn_v.weight"] = {256, std::vector<float>(256, 2), {2}};
  matrix.datasets = {"t.txt"};
  matrix.chunks = 3;
  params_.importance = &matrix;
  params_.importance_file = "m.imatrix";
  const ggml::gguf::Metadata metadata = plan().metadata;
  EXPECT_EQ(metadata.get_u32("general.file_type"), 15U);
  EXPECT_EQ(metadata.get_u32("general.quantization_version"), 2U);
  EXPECT_EQ(metadata.get_string("quantize.imatrix.dataset"), "t.txt");
  EXPECT_EQ(metadata.get_integer("quantize.imatrix.chunks_count"), 3);
  params_.importance_file.clear();
  EXPECT_FALSE(plan().metadata.contains("quantize.imatrix.file"));
}

TEST_F(Plan, OverridesKeepTheStoredType) {
  params_.kv_overrides = {{"llama.block_count", "int", "7"},
                          {"llama.rope.freq_base", "int", "5"},
                          {"new.count", "int", "3"},
                          {"new.real", "float", "0.5"},
                          {"general.name", "str", "x"}};
  const ggml::gguf::Metadata metadata = plan().metadata;
  EXPECT_EQ(metadata.find("llama.block_count")->type, ValueType::u32);
  EXPECT_EQ(metadata.get_u32("llama.block_count"), 7U);
  EXPECT_EQ(metadata.find("llama.rope.freq_base")->type, ValueType::f32);
  EXPECT_EQ(metadata.find("new.count")->type, ValueType::u32);
  EXPECT_EQ(metadata.find("new.real")->type, ValueType::f32);
  EXPECT_EQ(metadata.get_string("general.name"), "x");
  params_.kv_overrides = {{"llama.block_count", "int", "-1"}};
  EXPECT_NE(error().message().find("does not fit"), std::string::npos);
  params_.kv_overrides = {{"general.architecture", "int", "1"}};
  EXPECT_NE(error().message().find("general.architecture"), std::string::npos);
}

TEST_F(Plan, PrunedLayersGoAndTheOthersMoveUp) {
  params_.pruned_layers = {1, 2};
  const QuantizePlan plan = this->plan();
  EXPECT_EQ(plan.metadata.get_u32("llama.block_count"), 2U);
  std::vector<std::size_t> sources;
  for (const TensorChoice& tensor : plan.tensors)
    if (tensor.name == "blk.1.attn_v.weight") sources.push_back(tensor.source);
  ASSERT_EQ(sources.size(), 1U);
  EXPECT_EQ(file_.tensors()[sources[0]].name, "blk.3.attn_v.weight");
  for (const TensorChoice& tensor : plan.tensors) EXPECT_FALSE(tensor.name.starts_with("blk.2")) << tensor.name;
  params_.pruned_layers = {4};
  EXPECT_NE(error().message().find("0 to 3"), std::string::npos);
  params_.pruned_layers = {1, 1};
  EXPECT_NE(error().message().find("twice"), std::string::npos);
  params_.pruned_layers = {0, 1, 2, 3};
  EXPECT_NE(error().message().find("one must stay"), std::string::npos);
  params_.pruned_layers = {1};
  const std::vector<std::int32_t> heads = {4, 4, 4, 4};
  file_.metadata().set_i32s("llama.attention.head_count", heads);
  EXPECT_NE(error().message().find("a value for each layer"), std::string::npos);
}

TEST_F(Plan, QuantisedSourcesNeedConsent) {
  file_ = File::open("tests/data/models/llama-q8_0.gguf");
  EXPECT_NE(error().message().find("is quantised already"), std::string::npos);
  params_.allow_requantize = true;
  EXPECT_EQ(error().message(), "no error");
  params_.allow_requantize = false;
  params_.file_type = nullptr;  // copy
  EXPECT_EQ(plan().bytes_before(), plan().bytes_after());
}

TEST_F(Plan, KeepsThePartsOfASplitModel) {
  file_ = File::open("tests/data/models/split3-00001-of-00003.gguf");
  params_.allow_requantize = true;
  EXPECT_TRUE(plan().part_tensors.empty());
  params_.keep_split = true;
  const QuantizePlan plan = this->plan();
  ASSERT_EQ(plan.part_tensors.size(), 3U);
  std::size_t next = 0;
  for (std::size_t part = 0; part < 3; ++part)
    for (std::size_t i = 0; i < plan.part_tensors[part]; ++i)
      EXPECT_EQ(file_.tensors()[plan.tensors[next++].source].shard, part);
}

}  // namespace
}  // namespace llama
