#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "ggml/cpu.h"
#include "ggml/error.h"
#include "llama/context.h"
#include "models/golden.h"
#include "test_support.h"

/// Embeddings: an encoder against its golden rows, and the states of a decoder pooled.
namespace llama {
namespace {

std::unique_ptr<ggml::Device> make_device() {
  ggml::CpuOptions options;
  options.n_threads = 2;
  return ggml::make_cpu_device(options);
}

std::vector<float> copy(std::span<const float> values) {
  return {values.begin(), values.end()};
}

double worst(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double max = 0;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    max = std::max(max, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return max;
}

class Bert : public testing::Test {
 protected:
  void SetUp() override {
    const auto shared = tandem::shared_dir();
    if (!shared || !std::filesystem::exists(*shared / "data" / "models" / "bert.json"))
      GTEST_SKIP() << "no golden encoder";
    const std::filesystem::path folder = *shared / "data" / "models";
    const nlohmann::json j = nlohmann::json::parse(tandem::load_text(folder / "bert.json"));
    for (const char* name : {"seq0", "seq1"})
      tokens_.push_back(j.at("cases").at(name).at("tokens").get<std::vector<Token>>());
    const std::vector<float> rows = tandem::load_npy(folder / "bert.embeddings.npy").floats();
    const auto half = static_cast<std::ptrdiff_t>(rows.size() / 2);
    expected_ = {{rows.begin(), rows.begin() + half}, {rows.begin() + half, rows.end()}};
    ModelParams params;
    params.path = (folder / "bert.gguf").string();
    model_ = Model::load(params, *device_, {});
  }

  [[nodiscard]] static ContextParams params() {
    ContextParams params;
    params.n_ctx = 512;
    params.n_batch = params.n_ubatch = 128;
    params.n_seq_max = 2;
    return params;
  }

  std::unique_ptr<ggml::Device> device_ = make_device();
  std::unique_ptr<Model> model_;
  std::vector<std::vector<Token>> tokens_;
  std::vector<std::vector<float>> expected_;
};

// Exact GELU: closer than the file allows for tables of halves.
constexpr double kTolerance = 1e-4;

TEST_F(Bert, GivesTheGoldenEmbeddingOfEachSequence) {
  Context context(*model_, *device_, params());
  for (std::size_t i = 0; i < 2; ++i) {
    const SeqId seq = context.create_sequence();
    const StepSequence s{seq, tokens_[i], Outputs::all, nullptr};
    const StepResult& result = context.run({{&s, 1}});
    ASSERT_EQ(result.sequences[0].n_embeddings, 1);
    EXPECT_LE(worst(result.sequences[0].embeddings, expected_[i]), kTolerance);
    context.remove_sequence(seq);
  }
}

TEST_F(Bert, SequencesOfOneStepDoNotSeeEachOther) {
  for (const bool flash : {true, false}) {
    ContextParams p = params();
    p.flash_attention = flash;
    for (const int n_ubatch : {128, 56}) {  // the two together do not fit the smaller one
      p.n_ubatch = n_ubatch;
      if (static_cast<std::size_t>(n_ubatch) < std::max(tokens_[0].size(), tokens_[1].size())) continue;
      Context context(*model_, *device_, p);
      const StepSequence both[] = {{context.create_sequence(), tokens_[0], Outputs::all, nullptr},
                                   {context.create_sequence(), tokens_[1], Outputs::all, nullptr}};
      const StepResult& result = context.run({both});
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_LE(worst(result.sequences[i].embeddings, expected_[i]), kTolerance) << flash << " " << n_ubatch;
    }
  }
}

TEST_F(Bert, GivesOneEmbeddingPerTokenWithoutPooling) {
  ContextParams p = params();
  p.pooling = Pooling::none;
  Context context(*model_, *device_, p);
  const StepSequence s{context.create_sequence(), tokens_[0], Outputs::all, nullptr};
  const StepResult& result = context.run({{&s, 1}});
  const auto n_embd = static_cast<std::size_t>(model_->info().n_embd);
  ASSERT_EQ(result.sequences[0].n_embeddings, static_cast<int>(tokens_[0].size()));
  std::vector<float> mean(n_embd, 0.0f);
  for (std::size_t i = 0; i < result.sequences[0].embeddings.size(); ++i)
    mean[i % n_embd] += result.sequences[0].embeddings[i] / static_cast<float>(tokens_[0].size());
  EXPECT_LE(worst(mean, expected_[0]), kTolerance);
}

TEST_F(Bert, RefusesWhatAnEncoderCannotDo) {
  ContextParams p = params();
  p.n_ubatch = 16;
  Context context(*model_, *device_, p);
  const SeqId seq = context.create_sequence();
  const StepSequence s{seq, tokens_[0], Outputs::all, nullptr};
  EXPECT_THROW(context.run({{&s, 1}}), ggml::Error);  // more than one ubatch
  const StepSequence part{seq, std::span(tokens_[0]).first(4), Outputs::all, nullptr};
  (void)context.run({{&part, 1}});
  EXPECT_THROW(context.run({{&part, 1}}), ggml::Error);  // goes on where a sequence has ended
}

TEST(DecoderEmbeddings, DoNotDependOnHowTheStepIsCut) {
  const std::unique_ptr<golden::Golden> golden = golden::load("llama");
  ASSERT_NE(golden, nullptr);
  const std::unique_ptr<ggml::Device> device = make_device();
  ModelParams model_params;
  model_params.path = golden->path;
  const std::unique_ptr<Model> model = Model::load(model_params, *device, {});
  for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last, Pooling::none}) {
    std::vector<std::vector<float>> results;
    for (const int n_ubatch : {64, 7}) {
      ContextParams p;
      p.n_ctx = 512;
      p.n_batch = 64;
      p.n_ubatch = n_ubatch;
      p.k_type = p.v_type = ggml::DType::f32;
      p.embeddings = true;
      p.pooling = pooling;
      Context context(*model, *device, p);
      const StepSequence s{context.create_sequence(), golden->prompt, Outputs::all, nullptr};
      const StepResult& result = context.run({{&s, 1}});
      EXPECT_TRUE(result.sequences[0].logits.empty());
      results.push_back(copy(result.sequences[0].embeddings));
    }
    ASSERT_FALSE(results[0].empty());
    EXPECT_LE(worst(results[0], results[1]), 1e-5);
  }
}

}  // namespace
}  // namespace llama
