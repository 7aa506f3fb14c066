#include "model/family.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "ggml/cpu.h"
#include "ggml/error.h"
#include "llama/model.h"
#include "model/hparams.h"
#include "model/rope.h"
#include "model/weights.h"
#include "test_support.h"

namespace llama {
namespace {

using ggml::ErrorCode;

Hparams hparams_with_rotation(int n_rot) {
  Hparams hparams;
  hparams.n_ctx_train = 4096;
  LayerHparams layer;
  layer.n_head = layer.n_head_kv = 1;
  layer.dk = layer.dv = n_rot;
  layer.n_rot = n_rot;
  hparams.layers = {layer};
  return hparams;
}

TEST(Rope, LongRopeChoosesItsDivisorsByTheContextOfASequence) {
  Hparams hparams = hparams_with_rotation(64);
  hparams.rope.scaling = RopeScaling::longrope;
  hparams.rope.n_ctx_orig = 4096;
  const ggml::Weight long_factors, short_factors, freqs;
  TensorSet global;
  global[Role::rope_factors_long].weight = &long_factors;
  global[Role::rope_factors_short].weight = &short_factors;
  EXPECT_EQ(rope_factors(hparams, global, {}, 4096), &short_factors);
  EXPECT_EQ(rope_factors(hparams, global, {}, 4097), &long_factors);
  RopeOverrides longer, linear;
  longer.yarn_orig_ctx = 8192;
  linear.scaling = "linear";
  EXPECT_EQ(rope_factors(hparams, global, longer, 8192), &short_factors);
  EXPECT_EQ(rope_factors(hparams, global, linear, 8192), nullptr);
  global[Role::rope_freqs].weight = &freqs;
  EXPECT_EQ(rope_factors(hparams, global, {}, 8192), &freqs);
}

TEST(Rope, DeepSeekScalesTheScoresInsteadOfTheRotation) {
  Hparams hparams = hparams_with_rotation(64);
  hparams.layers[0].dk = 192;
  hparams.rope.scaling = RopeScaling::yarn;
  hparams.rope.factor = 40.0f;
  hparams.rope.n_ctx_orig = 4096;
  hparams.rope.yarn_log_multiplier = 1.0f;
  hparams.rope.equal_magnitudes = hparams.rope.scale_scores = true;
  const ggml::RopeParams params = resolve_rope(hparams, hparams.layers[0], {});
  const double log_factor = std::log(40.0);
  EXPECT_NEAR(static_cast<double>(params.attn_factor) * (1.0 + 0.1 * log_factor), 1.0, 1e-6);
  const double m = 1.0 + 0.1 * log_factor;
  EXPECT_NEAR(static_cast<double>(attention_scale(hparams, hparams.layers[0], params)), m * m / std::sqrt(192.0), 1e-6);
  // Lite: a multiplier of its own, still the same for both magnitudes.
  hparams.rope.yarn_log_multiplier = 0.707f;
  const ggml::RopeParams lite = resolve_rope(hparams, hparams.layers[0], {});
  EXPECT_NEAR(static_cast<double>(lite.attn_factor) * (1.0 + 0.1 * log_factor), 1.0, 1e-6);
  const double m_lite = 1.0 + 0.0707 * log_factor;
  EXPECT_NEAR(static_cast<double>(attention_scale(hparams, hparams.layers[0], lite)),
              m_lite * m_lite / std::sqrt(192.0), 1e-6);
}

TEST(Rope, TextTurnsEveryPairButThoseOfTheFourthSection) {
  Hparams hparams = hparams_with_rotation(16);
  EXPECT_TRUE(text_divisors(hparams).empty());
  hparams.rope.sections = {3, 3, 2, 0};
  EXPECT_TRUE(text_divisors(hparams).empty());
  hparams.rope.interleaved_sections = true;  // t h w t h w t h: all of them inside their sections
  EXPECT_TRUE(text_divisors(hparams).empty());
  hparams.rope.interleaved_sections = false;
  hparams.rope.sections = {2, 2, 2, 2};
  const std::vector<float> divisors = text_divisors(hparams);
  ASSERT_EQ(divisors.size(), 8u);
  for (std::size_t pair = 0; pair < 6; ++pair) EXPECT_EQ(divisors[pair], 1.0f);
  EXPECT_GT(divisors[6], 1e20f);
  EXPECT_GT(divisors[7], 1e20f);
}

TEST(Families, NamesAreUniqueAndNoneIsCalledUnsupported) {
  std::vector<std::string_view> names = family_names();
  for (const std::string_view name : names) EXPECT_FALSE(is_known_unsupported(name)) << name;
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_TRUE(is_known_unsupported("llama4"));
  EXPECT_FALSE(is_known_unsupported("no such thing"));
}

class ExpertOverride : public testing::Test {
 protected:
  ModelInfo load(const std::string& used) {
    std::filesystem::path path = tandem::data_dir() / "models" / "mixtral.gguf";
    if (const auto shared = tandem::shared_dir(); !std::filesystem::exists(path) && shared)
      path = *shared / "data" / "models" / "mixtral.gguf";
    ModelParams params;
    params.path = path.string();
    params.kv_overrides = {{"llama.expert_used_count", "int", used}};
    return Model::load(params, *device_, {})->info();
  }
  void SetUp() override {
    const auto shared = tandem::shared_dir();
    if (!std::filesystem::exists(tandem::data_dir() / "models" / "mixtral.gguf") &&
        !(shared && std::filesystem::exists(*shared / "data" / "models" / "mixtral.gguf")))
      GTEST_SKIP() << "no golden model with experts";
  }
  std::unique_ptr<ggml::Device> device_ = ggml::make_cpu_device({});
};

TEST_F(ExpertOverride, IsHonouredAndChecked) {
  EXPECT_EQ(load("1").n_expert_used, 1);
  EXPECT_EQ(load("8").n_expert_used, 8);
  for (const char* wrong : {"0", "9"}) {
    try {
      (void)load(wrong);
      FAIL() << wrong << " experts were accepted";
    } catch (const ggml::Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_file);
      EXPECT_NE(error.message().find("expert_used_count"), std::string::npos) << error.message();
    }
  }
}

}  // namespace
}  // namespace llama
