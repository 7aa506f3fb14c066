#include "llama/model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>

#include "ggml/cpu.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/quant.h"
#include "model/hparams.h"
#include "model/model_text.h"
#include "model/rope.h"
#include "model/weights.h"
#include "test_support.h"

namespace llama {
namespace {

using ggml::DType;
using ggml::ErrorCode;
using ggml::Shape;

struct EditedTensor {
  std::string name;
  DType type = DType::f32;
  Shape shape;
  std::vector<std::byte> data;
};

/// A model file in memory, to be changed and written again.
struct EditedModel {
  ggml::gguf::Metadata metadata;
  std::vector<EditedTensor> tensors;

  explicit EditedModel(const std::string& path) {
    const ggml::gguf::File file = ggml::gguf::File::open(path);
    metadata = file.metadata();
    const ggml::gguf::Reader reader(path, ggml::gguf::ReadMode::buffered);
    for (const ggml::gguf::TensorInfo& info : file.tensors()) {
      EditedTensor tensor{info.name, info.type, info.shape, std::vector<std::byte>(info.bytes)};
      reader.read(info.offset, tensor.data);
      tensors.push_back(std::move(tensor));
    }
  }

  EditedTensor& at(const std::string& name) {
    for (EditedTensor& tensor : tensors)
      if (tensor.name == name) return tensor;
    throw std::runtime_error("no tensor " + name);
  }
  void erase(const std::string& name) {
    std::erase_if(tensors, [&](const EditedTensor& t) { return t.name == name; });
  }
  void reshape(const std::string& name, const Shape& shape, DType type = DType::f32) {
    EditedTensor& tensor = at(name);
    tensor.shape = shape;
    tensor.type = type;
    tensor.data.assign(ggml::tensor_bytes(type, shape), std::byte{0});
  }
  void write(const std::string& path) const {
    ggml::gguf::Writer writer(path);
    writer.metadata = metadata;
    for (const EditedTensor& tensor : tensors) writer.add_tensor(tensor.name, tensor.type, tensor.shape);
    writer.begin_data();
    for (const EditedTensor& tensor : tensors) writer.write(tensor.data);
    writer.finish();
  }
};

class ModelTest : public testing::Test {
 protected:
  [[nodiscard]] static std::string path_of(const char* name) {
    return (tandem::data_dir() / "models" / (std::string(name) + ".gguf")).string();
  }
  [[nodiscard]] std::unique_ptr<Model> load(const std::string& path, LoadMode mode = LoadMode::mmap) {
    ModelParams params;
    params.path = path;
    params.load_mode = mode;
    return Model::load(params, *device_, {});
  }
  /// Writes an edited copy and loads it.
  std::unique_ptr<Model> load_edited(const char* name, const std::function<void(EditedModel&)>& edit,
                                     ModelParams params = {}) {
    EditedModel model(path_of(name));
    edit(model);
    params.path = (dir_.path() / "edited.gguf").string();
    model.write(params.path);
    return Model::load(params, *device_, {});
  }
  /// The message and code of the error that loading an edited copy gives.
  struct Refusal {
    ErrorCode code = ErrorCode::internal;
    std::string text;
    [[nodiscard]] bool names(const std::string& part) const { return text.find(part) != std::string::npos; }
  };
  Refusal refusal(const char* name, const std::function<void(EditedModel&)>& edit, const ModelParams& params = {}) {
    try {
      (void)load_edited(name, edit, params);
    } catch (const ggml::Error& error) {
      return {error.code(), error.message() + " | " + error.hint()};
    }
    return {ErrorCode::internal, "it loaded"};
  }

  tandem::TempDir dir_;
  std::unique_ptr<ggml::Device> device_ = ggml::make_cpu_device({});
};

TEST_F(ModelTest, EveryLoadModeGivesTheSameBytes) {
  const auto mapped = load(path_of("split3-00001-of-00003"));
  for (const LoadMode mode : {LoadMode::read, LoadMode::direct_io}) {
    const auto read = load(path_of("split3-00001-of-00003"), mode);
    ASSERT_EQ(read->weights().tensors.size(), mapped->weights().tensors.size());
    for (std::size_t i = 0; i < read->weights().tensors.size(); ++i) {
      const ggml::Weight& a = mapped->weights().tensors[i];
      const ggml::Weight& b = read->weights().tensors[i];
      ASSERT_EQ(a.name, b.name);
      EXPECT_EQ(std::memcmp(a.placements[0].data, b.placements[0].data, ggml::tensor_bytes(a.type, a.shape)), 0);
    }
  }
}

TEST_F(ModelTest, ListsEveryWrongTensorInOneError) {
  const Refusal r = refusal("llama", [](EditedModel& m) {
    m.erase("blk.0.attn_q.weight");
    m.erase("output_norm.weight");
    m.reshape("blk.1.ffn_up.weight", Shape(128, 95));
    m.reshape("blk.0.attn_norm.weight", Shape(128), DType::f16);
    m.reshape("blk.1.attn_k.weight", Shape(128, 64), DType::i32);
  });
  EXPECT_EQ(r.code, ErrorCode::invalid_file);
  EXPECT_TRUE(r.names("5 problems")) << r.text;
  EXPECT_TRUE(r.names("blk.0.attn_q.weight: missing; 128 x 128 expected (embedding_length x head_count * key_length)"))
      << r.text;
  EXPECT_TRUE(r.names("output_norm.weight: missing")) << r.text;
  EXPECT_TRUE(
      r.names("blk.1.ffn_up.weight: 128 x 96 expected (embedding_length x feed_forward_length), file has "
              "128 x 95"))
      << r.text;
  EXPECT_TRUE(r.names("blk.0.attn_norm.weight: type F32 expected, file has F16")) << r.text;
  EXPECT_TRUE(r.names("blk.1.attn_k.weight: a weight type expected, file has I32")) << r.text;
}

TEST_F(ModelTest, ListsEveryAbsurdHyperParameterInOneError) {
  const Refusal r = refusal("llama", [](EditedModel& m) {
    m.metadata.set_u32("llama.block_count", 4000000000u);
    m.metadata.set_u32("llama.attention.head_count_kv", 3);
    m.metadata.set_f32("llama.rope.freq_base", std::numeric_limits<float>::quiet_NaN());
    m.metadata.set_string("llama.rope.scaling.type", "spiral");
    m.metadata.set_u32("llama.expert_used_count", 2);
    m.metadata.erase("llama.context_length");
  });
  EXPECT_EQ(r.code, ErrorCode::invalid_file);
  for (const char* part :
       {"llama.block_count: 1 to 512 expected, file has 4000000000",
        "llama.attention.head_count_kv: a divisor of head_count (4) expected, block 0 has 3",
        "llama.rope.freq_base: 1 to 1e+12 expected, file has nan", "file has 'spiral'",
        "llama.expert_used_count: 0 (no experts) expected, file has 2", "llama.context_length: required"})
    EXPECT_TRUE(r.names(part)) << part << "\n" << r.text;
}

TEST_F(ModelTest, SurvivesHyperParametersOfAllKinds) {
  const char* keys[] = {"embedding_length",
                        "block_count",
                        "feed_forward_length",
                        "attention.head_count",
                        "attention.head_count_kv",
                        "rope.dimension_count",
                        "context_length",
                        "vocab_size",
                        "attention.key_length",
                        "attention.value_length",
                        "expert_count",
                        "expert_used_count",
                        "nextn_predict_layers",
                        "attention.layer_norm_rms_epsilon"};
  for (const char* key : keys) {
    const std::string name = std::string("llama.") + key;
    for (const std::uint32_t value : {0u, 1u, 3u, 511u, 65535u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
      try {
        (void)load_edited("llama", [&](EditedModel& m) { m.metadata.set_u32(name, value); });
      } catch (const ggml::Error&) {  // a refusal is fine, a crash is not
      }
    }
    EXPECT_THROW((void)load_edited("llama",
                                   [&](EditedModel& m) {
                                     if (std::string_view(key) != "vocab_size")
                                       m.metadata.set_string(name, "many");
                                     else
                                       m.metadata.erase("llama.block_count");
                                   }),
                 ggml::Error)
        << key;
    const std::vector<std::int32_t> wrong_length{1, 2, 3};
    try {
      (void)load_edited("llama", [&](EditedModel& m) { m.metadata.set_i32s(name, wrong_length); });
    } catch (const ggml::Error&) {
    }
  }
}

TEST_F(ModelTest, NamesTheKnownArchitecturesWhenItMeetsAnother) {
  const Refusal r = refusal("llama", [](EditedModel& m) { m.metadata.set_string("general.architecture", "abacus"); });
  EXPECT_EQ(r.code, ErrorCode::unsupported);
  EXPECT_TRUE(r.names("'abacus'")) << r.text;
  const Refusal hostile =
      refusal("llama", [](EditedModel& m) { m.metadata.set_string("general.architecture", "a\n\x1b[2J"); });
  EXPECT_TRUE(hostile.names(R"('a\x0a\x1b[2J')"));
  for (const std::string_view name : known_architectures()) EXPECT_TRUE(r.names(std::string(name))) << name;
}

TEST_F(ModelTest, WarnsOnceOfTensorsThatItDoesNotUse) {
  static std::vector<std::string> warnings;
  warnings.clear();
  ggml::set_log_sink(
      [](ggml::LogLevel level, std::string_view line, void*) {
        if (level == ggml::LogLevel::warn) warnings.emplace_back(line);
      },
      nullptr);
  const auto model = load_edited("llama", [](EditedModel& m) {
    for (int i = 0; i < 7; ++i)
      m.tensors.push_back({"extra." + std::to_string(i), DType::f32, Shape(8), std::vector<std::byte>(32)});
  });
  ggml::set_log_sink(nullptr, nullptr);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("7 tensors are not used: extra.0, extra.1"), std::string::npos) << warnings[0];
}

TEST_F(ModelTest, CheckTensorsFindsNotANumber) {
  ModelParams params;
  params.check_tensors = true;
  const Refusal r = refusal(
      "llama",
      [](EditedModel& m) {
        const float bad = std::numeric_limits<float>::quiet_NaN();
        std::memcpy(m.at("blk.1.ffn_gate.weight").data.data() + 128 * 4 * 5, &bad, 4);
      },
      params);
  EXPECT_EQ(r.code, ErrorCode::invalid_file);
  EXPECT_TRUE(r.names("blk.1.ffn_gate.weight: NaN or infinity in row 5")) << r.text;
  EXPECT_NE(load_edited(
                "llama", [](EditedModel&) {}, params),
            nullptr);
}

TEST_F(ModelTest, CheckTensorsNamesTheRowThatIsThenInterleavedOrMerged) {
  for (const bool merged : {false, true}) {
    ModelParams params;
    params.check_tensors = params.repack = true;
    params.merge_qkv = merged;
    const Refusal r = refusal(
        "llama-q8_0",
        [](EditedModel& m) {
          const std::uint16_t bad = 0x7e00;  // a half that is no number, as the scale of a block
          auto& tensor = m.at("blk.1.attn_q.weight");
          ASSERT_EQ(tensor.type, DType::q8_0);
          std::memcpy(tensor.data.data() + 5 * ggml::row_bytes(DType::q8_0, tensor.shape[0]) + 34, &bad, 2);
        },
        params);
    EXPECT_EQ(r.code, ErrorCode::invalid_file);
    const std::string_view name = merged ? "attn_qkv.weight" : "blk.1.attn_q.weight";
    EXPECT_TRUE(r.names(std::string(name) + ": NaN or infinity in row 5, block 1")) << r.text;
    EXPECT_EQ(r.text.find("NaN"), r.text.rfind("NaN")) << r.text;  // once
    EXPECT_NE(load_edited(
                  "llama-q8_0", [](EditedModel&) {}, params),
              nullptr);
  }
}

TEST_F(ModelTest, OverridesReplaceMetadataBeforeItIsRead) {
  ModelParams params;
  params.path = path_of("llama");
  params.kv_overrides = {{"llama.context_length", "int", "77"}, {"general.name", "str", "renamed"}};
  const auto model = Model::load(params, *device_, {});
  EXPECT_EQ(model->info().n_ctx_train, 77);
  EXPECT_EQ(model->info().name, "renamed");
  for (const KvOverride& bad :
       {KvOverride{"a", "int", "7x"}, KvOverride{"a", "float", ""}, KvOverride{"a", "bool", "1"},
        KvOverride{"a", "i32", "1"}, KvOverride{"", "int", "1"}, KvOverride{std::string(128, 'k'), "int", "1"},
        KvOverride{"a", "str", std::string(128, 'v')}}) {
    params.kv_overrides = {bad};
    EXPECT_THROW((void)Model::load(params, *device_, {}), ggml::Error) << bad.key << bad.type << bad.value;
  }
}

TEST_F(ModelTest, ProgressReportsEveryByteAndCanCancel) {
  for (const LoadMode mode : {LoadMode::mmap, LoadMode::read}) {
    ModelParams params;
    params.path = path_of("llama");
    params.load_mode = mode;
    std::uint64_t done = 0, total = 1;
    (void)Model::load(params, *device_, [&](std::uint64_t d, std::uint64_t t) {
      EXPECT_GE(d, done);
      done = d;
      total = t;
      return true;
    });
    EXPECT_EQ(done, total);
    EXPECT_GT(total, 900000u);
    try {
      (void)Model::load(params, *device_, [](std::uint64_t d, std::uint64_t) { return d == 0; });
      ADD_FAILURE() << "loading went on";
    } catch (const ggml::Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::cancelled);
    }
  }
}

TEST_F(ModelTest, TellsWhatTheModelIs) {
  const auto model = load(path_of("qwen3moe-q8_0"));
  const ModelInfo& info = model->info();
  EXPECT_EQ(info.architecture, "qwen3moe");
  EXPECT_EQ(info.n_expert, 4);
  EXPECT_EQ(info.n_expert_used, 2);
  EXPECT_EQ(info.n_vocab, 288);
  EXPECT_NE(info.size_label.find(".A"), std::string::npos) << info.size_label;
  EXPECT_EQ(size_label(30532122624ull, 3345678901ull), "31B.A3.3B");
  EXPECT_EQ(size_label(8030261248ull, 8030261248ull), "8B");
  EXPECT_EQ(size_label(1543714304ull, 1543714304ull), "1.5B");
  EXPECT_EQ(size_label(134515008ull, 134515008ull), "135M");
  EXPECT_EQ(file_type_text(15), "Q4_K - Medium");
  EXPECT_EQ(file_type_text(1024 + 7), "Q8_0 (guessed)");
  EXPECT_EQ(file_type_text(999), "unknown (999)");
}

TEST_F(ModelTest, FusedExpertAndAttentionTensorsLoad) {
  const auto model = load_edited("mixtral", [](EditedModel& m) {
    for (int layer = 0; layer < 2; ++layer) {
      const std::string p = "blk." + std::to_string(layer) + ".";
      EditedTensor qkv = m.at(p + "attn_q.weight");
      qkv.name = p + "attn_qkv.weight";
      for (const char* part : {"attn_k.weight", "attn_v.weight"}) {
        const EditedTensor& more = m.at(p + part);
        qkv.data.insert(qkv.data.end(), more.data.begin(), more.data.end());
        qkv.shape[1] += more.shape[1];
        m.erase(p + part);
      }
      m.erase(p + "attn_q.weight");
      m.tensors.push_back(std::move(qkv));
    }
  });
  EXPECT_TRUE(model->weights().layers[0][Role::attn_qkv]);
  EXPECT_FALSE(model->weights().layers[0][Role::attn_q]);
}

TEST(Rope, YarnKeepsItsMagnitudeOnce) {
  Hparams hparams;
  hparams.rope.scaling = RopeScaling::yarn;
  hparams.rope.factor = 4.0f;
  hparams.rope.n_ctx_orig = 4096;
  LayerHparams layer;
  layer.n_rot = 64;
  const ggml::RopeParams params = resolve_rope(hparams, layer, {});
  EXPECT_EQ(params.ext_factor, 1.0f);
  EXPECT_FLOAT_EQ(params.freq_scale, 0.25f);
  EXPECT_FLOAT_EQ(params.attn_factor, 1.0f);  // the op multiplies by 1 + 0.1 ln 4 itself
  RopeOverrides overrides;
  overrides.scaling = "none";
  const ggml::RopeParams off = resolve_rope(hparams, layer, overrides);
  EXPECT_EQ(off.freq_scale, 1.0f);
  EXPECT_EQ(off.ext_factor, 0.0f);
}

TEST(Rope, WindowedLayersKeepTheirOwnBaseAndScale) {
  Hparams hparams;
  hparams.rope.base = 1e6f;
  hparams.rope.base_swa = 1e4f;
  hparams.rope.factor = 8.0f;
  hparams.rope.scale_windowed_layers = false;
  LayerHparams windowed;
  windowed.window_kind = ggml::WindowKind::standard;
  EXPECT_EQ(resolve_rope(hparams, windowed, {}).base, 1e4f);
  EXPECT_EQ(resolve_rope(hparams, windowed, {}).freq_scale, 1.0f);
  EXPECT_EQ(resolve_rope(hparams, {}, {}).base, 1e6f);
  EXPECT_EQ(resolve_rope(hparams, {}, {}).freq_scale, 0.125f);
}

}  // namespace
}  // namespace llama
