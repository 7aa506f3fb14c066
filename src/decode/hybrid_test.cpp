#include <gtest/gtest.h>

#include <cmath>

#include "ggml/cpu.h"
#include "ggml/error.h"
#include "llama/context.h"
#include "models/golden.h"

/// Models with recurrent layers: what a sequence can be cut back to, and what cannot be done.
namespace llama {
namespace {

class Hybrid : public testing::Test {
 protected:
  void SetUp() override {
    golden_ = golden::load("qwen3next");
    if (golden_ == nullptr) GTEST_SKIP() << "no golden hybrid model";
    ggml::CpuOptions options;
    options.n_threads = 2;
    device_ = ggml::make_cpu_device(options);
    ModelParams params;
    params.path = golden_->path;
    model_ = Model::load(params, *device_, {});
    ContextParams context_params;
    context_params.n_ctx = 512;
    context_params.n_batch = 64;
    context_params.n_ubatch = 16;
    context_params.n_seq_max = 4;
    context_params.k_type = context_params.v_type = ggml::DType::f32;
    context_ = std::make_unique<Context>(*model_, *device_, context_params);
  }

  std::vector<float> feed(SeqId seq, std::span<const Token> tokens) {
    const StepSequence s{seq, tokens, Outputs::last, nullptr};
    const StepResult& result = context_->run({{&s, 1}});
    context_->check_integrity();
    return {result.sequences[0].logits.begin(), result.sequences[0].logits.end()};
  }
  /// The golden logits behind the token at `position`.
  void expect_golden(const std::vector<float>& logits, std::size_t position) const {
    const auto width = static_cast<std::size_t>(golden_->n_vocab);
    double max = 0;
    for (std::size_t i = 0; i < width; ++i)
      max = std::max(
          max, std::fabs(static_cast<double>(logits[i]) - static_cast<double>(golden_->exact[position * width + i])));
    EXPECT_LE(max, 1e-4);
  }
  [[nodiscard]] std::span<const Token> prompt(std::size_t from, std::size_t n) const {
    return std::span(golden_->prompt).subspan(from, n);
  }

  std::unique_ptr<golden::Golden> golden_;
  std::unique_ptr<ggml::Device> device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Context> context_;
};

TEST_F(Hybrid, GoesBackToTheEndOfAPromptAndToTheTokenBefore) {
  const SeqId seq = context_->create_sequence();
  expect_golden(feed(seq, prompt(0, 40)), 39);
  for (std::size_t i = 40; i < 44; ++i) feed(seq, prompt(i, 1));
  // Single tokens leave nothing behind to go back to.
  EXPECT_EQ(context_->resume_point(seq, 44), 44);
  EXPECT_EQ(context_->resume_point(seq, 43), 40);
  EXPECT_EQ(context_->resume_point(seq, 39), 39);
  EXPECT_EQ(context_->resume_point(seq, 38), 0);
  EXPECT_THROW(context_->truncate(seq, 42), ggml::Error);
  context_->truncate(seq, 40);
  expect_golden(feed(seq, prompt(40, 8)), 47);
  // The same prompt again: all but its last token is there.
  context_->truncate(seq, 47);
  expect_golden(feed(seq, prompt(47, 1)), 47);
  context_->truncate(seq, 0);
  expect_golden(feed(seq, prompt(0, 48)), 47);
}

TEST_F(Hybrid, SharesStatesWithASequenceThatGoesOnElsewhere) {
  const SeqId first = context_->create_sequence();
  feed(first, prompt(0, 20));
  const SeqId second = context_->create_sequence();
  EXPECT_THROW(context_->share_prefix(second, first, 10), ggml::Error);
  context_->share_prefix(second, first, 20);
  const Token other[] = {5, 6, 7};
  feed(second, other);
  expect_golden(feed(first, prompt(20, 28)), 47);
  context_->remove_sequence(first);
  context_->truncate(second, 20);
  expect_golden(feed(second, prompt(20, 28)), 47);
}

TEST_F(Hybrid, KeepsFewCheckpointsAndTheLastOnes) {
  const SeqId seq = context_->create_sequence();
  for (std::size_t i = 0; i < 12; ++i) feed(seq, prompt(4 * i, 4));
  EXPECT_EQ(context_->resume_point(seq, 48), 48);
  EXPECT_EQ(context_->resume_point(seq, 47), 47);
  context_->truncate(seq, 47);
  expect_golden(feed(seq, prompt(47, 1)), 47);
}

TEST_F(Hybrid, AFailedStepLeavesTheStateAsItWas) {
  const SeqId seq = context_->create_sequence();
  feed(seq, prompt(0, 20));
  const StepSequence s{seq, prompt(20, 28), Outputs::last, nullptr};
  int asked = 0;
  const ggml::StopToken stop{[](void* n) { return ++*static_cast<int*>(n) > 4; }, &asked};
  EXPECT_THROW(context_->run({{&s, 1}}, stop), ggml::Error);
  context_->check_integrity();
  EXPECT_EQ(context_->length(seq), 20);
  expect_golden(feed(seq, prompt(20, 28)), 47);
}

TEST_F(Hybrid, RefusesAContextShiftWithTheReason) {
  const SeqId seq = context_->create_sequence();
  feed(seq, prompt(0, 20));
  try {
    context_->shift(seq, 4, 8);
    FAIL() << "shifted";
  } catch (const ggml::Error& error) {
    EXPECT_EQ(error.code(), ggml::ErrorCode::unsupported);
    EXPECT_NE(error.message().find("recurrent"), std::string::npos) << error.message();
  }
  expect_golden(feed(seq, prompt(20, 28)), 47);
}

}  // namespace
}  // namespace llama
