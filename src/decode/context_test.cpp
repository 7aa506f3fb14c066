#include "llama/context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ggml/cpu.h"
#include "ggml/error.h"
#include "llama/sampler.h"
#include "models/allocation_count.h"
#include "models/golden.h"

namespace llama {
namespace {

using ggml::DType;
using ggml::ErrorCode;
using golden::Golden;

SamplingParams greedy_params() {
  SamplingParams params;
  params.temperature = 0.0f;
  return params;
}

class ContextTest : public testing::Test {
 protected:
  void load(const char* name) {
    golden_ = golden::load(name);
    ASSERT_NE(golden_, nullptr);
    ggml::CpuOptions options;
    options.n_threads = 1;  // allocations are counted on one thread
    device_ = ggml::make_cpu_device(options);
    ModelParams params;
    params.path = golden_->path;
    model_ = Model::load(params, *device_, {});
  }
  void SetUp() override { load("llama"); }

  [[nodiscard]] static ContextParams small() {
    ContextParams params;
    params.n_ctx = 512;
    params.n_batch = params.n_ubatch = 64;
    params.n_seq_max = 4;
    params.k_type = params.v_type = DType::f32;
    return params;
  }
  [[nodiscard]] std::unique_ptr<Context> make(const ContextParams& params = small()) {
    return std::make_unique<Context>(*model_, *device_, params);
  }
  /// Feeds tokens to one sequence; returns the logits of its last row.
  static std::vector<float> feed(Context& context, SeqId seq, std::span<const Token> tokens) {
    const StepSequence s{seq, tokens, Outputs::last, nullptr};
    const StepResult& result = context.run({{&s, 1}});
    return {result.sequences[0].logits.begin(), result.sequences[0].logits.end()};
  }
  [[nodiscard]] std::vector<float> golden_row(std::size_t row) const {
    const auto width = static_cast<std::size_t>(golden_->n_vocab);
    const auto begin = golden_->exact.begin() + static_cast<std::ptrdiff_t>(row * width);
    return {begin, begin + golden_->n_vocab};
  }
  static void expect_near(const std::vector<float>& a, const std::vector<float>& b, float bound = 1e-4f) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], bound) << "logit " << i;
  }
  template <class F>
  static ErrorCode code_of(F&& f) {
    try {
      f();
    } catch (const ggml::Error& error) {
      EXPECT_FALSE(error.message().empty());
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return ErrorCode::internal;
  }

  std::unique_ptr<Golden> golden_;
  std::unique_ptr<ggml::Device> device_;
  std::unique_ptr<Model> model_;
};

TEST_F(ContextTest, GreedySamplingWritesTheGoldenText) {
  const auto context = make();
  Sampler sampler(greedy_params(), model_->vocab(), 512);
  const SeqId seq = context->create_sequence();
  std::vector<Token> tokens = golden_->prompt;
  std::vector<Token> written;
  for (std::size_t k = 0; k < golden_->greedy.size(); ++k) {
    const StepSequence s{seq, tokens, Outputs::last, &sampler};
    const StepResult& result = context->run({{&s, 1}});
    EXPECT_TRUE(result.sequences[0].logits.empty());
    written.push_back(result.sequences[0].sampled->token);
    tokens = {written.back()};
  }
  EXPECT_EQ(written, golden_->greedy);
}

TEST_F(ContextTest, DecodingBuildsNoGraphAndAllocatesNothing) {
  const auto context = make();
  SamplingParams params;
  params.seed = 1;
  params.repeat_penalty = 1.1f;
  Sampler sampler(params, model_->vocab(), 512);
  const SeqId seq = context->create_sequence();
  (void)feed(*context, seq, golden_->prompt);
  Token token = 5;
  const auto decode = [&] {
    const StepSequence s{seq, {&token, 1}, Outputs::last, &sampler};
    token = context->run({{&s, 1}}).sequences[0].sampled->token;
    sampler.accept(token);
  };
  for (int i = 0; i < 4; ++i) decode();
  const std::uint64_t builds = context->stats().graph_builds;
  const std::size_t before = allocation_count();
  for (int i = 0; i < 200; ++i) decode();
  EXPECT_EQ(allocation_count() - before, 0u);
  EXPECT_EQ(context->stats().graph_builds, builds);
  EXPECT_EQ(context->length(seq), 48 + 204);
}

TEST_F(ContextTest, UbatchesOfAnySizeGiveTheSameLogits) {
  for (const int n_ubatch : {1, 7, 16, 47, 48}) {
    ContextParams params = small();
    params.n_ubatch = n_ubatch;
    const auto context = make(params);
    const SeqId seq = context->create_sequence();
    expect_near(feed(*context, seq, golden_->prompt), golden_row(47));
  }
}

TEST_F(ContextTest, RowsOfEveryKindShareAStep) {
  const auto context = make();
  const SeqId a = context->create_sequence();
  const SeqId b = context->create_sequence();
  const SeqId c = context->create_sequence();
  (void)feed(*context, a, std::span(golden_->prompt).first(20));
  Sampler sampler(greedy_params(), model_->vocab(), 512);
  const std::span<const Token> prompt(golden_->prompt);
  const StepSequence sequences[] = {{a, prompt.subspan(20, 1), Outputs::last, &sampler},
                                    {b, prompt.first(17), Outputs::all, nullptr},
                                    {c, prompt.first(9), Outputs::none, nullptr}};
  const StepResult& result = context->run({sequences});
  ASSERT_EQ(result.sequences.size(), 3u);
  EXPECT_EQ(result.sequences[0].sampled->token, golden::argmax(golden_row(20)));
  EXPECT_EQ(result.sequences[1].n_outputs, 17);
  const auto width = static_cast<std::size_t>(golden_->n_vocab);
  const std::span<const float> last = result.sequences[1].logits.subspan(16 * width, width);
  expect_near({last.begin(), last.end()}, golden_row(16));
  EXPECT_EQ(result.sequences[2].n_outputs, 0);
  expect_near(feed(*context, c, prompt.subspan(9, 1)), golden_row(9));
}

TEST_F(ContextTest, ASharedPrefixContinuesLikeItsOwn) {
  const auto context = make();
  const SeqId a = context->create_sequence();
  const SeqId b = context->create_sequence();
  const std::span<const Token> prompt(golden_->prompt);
  (void)feed(*context, a, prompt);
  context->share_prefix(b, a, 30);
  (void)feed(*context, a, std::vector<Token>{9, 9, 9});
  expect_near(feed(*context, b, prompt.subspan(30)), golden_row(47));
  context->truncate(b, 20);
  expect_near(feed(*context, b, prompt.subspan(20, 5)), golden_row(24));
  context->check_integrity();
}

TEST_F(ContextTest, AWindowedModelSharesAndResumesToo) {
  load("gemma3");
  const auto context = make();
  const SeqId a = context->create_sequence();
  const SeqId b = context->create_sequence();
  const std::span<const Token> prompt(golden_->prompt);
  (void)feed(*context, a, prompt);
  EXPECT_EQ(context->resume_point(a, 40), 40);
  context->share_prefix(b, a, 40);
  expect_near(feed(*context, b, prompt.subspan(40)), golden_row(47));
  context->remove_sequence(b);
  std::vector<Token> more(60, 7);
  for (int i = 0; i < 7; ++i) (void)feed(*context, a, more);
  context->check_integrity();
  EXPECT_EQ(context->resume_point(a, context->length(a) - 100), context->length(a) - 100);
  EXPECT_EQ(context->resume_point(a, 30), 0);
  EXPECT_EQ(code_of([&] { context->truncate(a, 30); }), ErrorCode::unsupported);
}

TEST_F(ContextTest, BadStepsAreRefusedAndChangeNothing) {
  const auto context = make();
  const SeqId seq = context->create_sequence();
  const std::span<const Token> prompt(golden_->prompt);
  (void)feed(*context, seq, prompt.first(4));
  const auto submit = [&](std::initializer_list<StepSequence> list) {
    const std::vector<StepSequence> sequences(list);
    return code_of([&] { (void)context->run({sequences}); });
  };
  const Token outside[] = {5, static_cast<Token>(golden_->n_vocab)};
  const Token negative[] = {-1};
  const std::vector<Token> many(65, 5);
  EXPECT_EQ(submit({}), ErrorCode::invalid_argument);
  EXPECT_EQ(submit({{seq, outside, Outputs::last, nullptr}}), ErrorCode::invalid_argument);
  EXPECT_EQ(submit({{seq, negative, Outputs::last, nullptr}}), ErrorCode::invalid_argument);
  EXPECT_EQ(submit({{seq, {}, Outputs::last, nullptr}}), ErrorCode::invalid_argument);
  EXPECT_EQ(submit({{SeqId(3), prompt, Outputs::last, nullptr}}), ErrorCode::invalid_argument);
  EXPECT_EQ(submit({{SeqId(-7), prompt, Outputs::last, nullptr}}), ErrorCode::invalid_argument);
  EXPECT_EQ(submit({{seq, prompt.first(1), Outputs::last, nullptr}, {seq, prompt.first(1), Outputs::last, nullptr}}),
            ErrorCode::invalid_argument);
  EXPECT_EQ(submit({{seq, many, Outputs::last, nullptr}}), ErrorCode::exceeds_limit);
  EXPECT_EQ(context->length(seq), 4);
  context->check_integrity();
  expect_near(feed(*context, seq, prompt.subspan(4)), golden_row(47));
}

TEST_F(ContextTest, AFullContextIsAnErrorBeforeAnythingIsComputed) {
  ContextParams params = small();
  params.n_ctx = 128;
  params.n_seq_max = 2;
  const auto context = make(params);
  const SeqId a = context->create_sequence();
  const SeqId b = context->create_sequence();
  const std::vector<Token> chunk(64, 5);
  (void)feed(*context, a, chunk);
  EXPECT_TRUE(context->can_append(b, 64));
  EXPECT_FALSE(context->can_append(b, 65));
  (void)feed(*context, b, chunk);
  EXPECT_FALSE(context->can_append(a, 1));
  EXPECT_EQ(code_of([&] { (void)feed(*context, a, std::vector<Token>{5}); }), ErrorCode::exceeds_limit);
  EXPECT_EQ(context->length(a), 64);
  EXPECT_EQ(code_of([&] { (void)context->create_sequence(); }), ErrorCode::unavailable);
  context->remove_sequence(b);
  (void)feed(*context, a, std::vector<Token>{5});
}

TEST_F(ContextTest, ACancelledStepLeavesItsSequencesAsTheyWere) {
  ContextParams params = small();
  params.n_ubatch = 8;
  const auto context = make(params);
  const SeqId seq = context->create_sequence();
  const std::span<const Token> prompt(golden_->prompt);
  (void)feed(*context, seq, prompt.first(10));
  int asked = 0;
  const ggml::StopToken stop{[](void* user) { return ++*static_cast<int*>(user) > 9; }, &asked};
  const StepSequence s{seq, prompt.subspan(10), Outputs::last, nullptr};
  const Ticket ticket = context->submit({{&s, 1}}, stop);
  EXPECT_EQ(code_of([&] { (void)context->collect(ticket); }), ErrorCode::cancelled);
  EXPECT_EQ(context->length(seq), 10);
  context->check_integrity();
  expect_near(feed(*context, seq, prompt.subspan(10)), golden_row(47));
}

TEST_F(ContextTest, TwoStepsMayBeInFlightAndAreCollectedInOrder) {
  const auto context = make();
  const SeqId a = context->create_sequence();
  const SeqId b = context->create_sequence();
  const std::span<const Token> prompt(golden_->prompt);
  const StepSequence first{a, prompt, Outputs::last, nullptr};
  const StepSequence second{b, prompt.first(10), Outputs::last, nullptr};
  const Ticket t1 = context->submit({{&first, 1}});
  const Ticket t2 = context->submit({{&second, 1}});
  EXPECT_EQ(code_of([&] { (void)context->submit({{&first, 1}}); }), ErrorCode::unavailable);
  EXPECT_EQ(code_of([&] { (void)context->collect(t2); }), ErrorCode::invalid_argument);
  const StepResult& r1 = context->collect(t1);
  expect_near({r1.sequences[0].logits.begin(), r1.sequences[0].logits.end()}, golden_row(47));
  const StepResult& r2 = context->collect(t2);
  expect_near({r2.sequences[0].logits.begin(), r2.sequences[0].logits.end()}, golden_row(9));
}

/// Allows one token only.
class OnlyToken final : public TokenMask {
 public:
  explicit OnlyToken(Token token) : token_(token) {}
  bool fill(std::span<std::uint32_t> words) override {
    std::fill(words.begin(), words.end(), 0u);
    if (token_ >= 0) words[static_cast<std::size_t>(token_ / 32)] = 1u << (token_ % 32);
    return true;
  }
  void accept(Token token) override { accepted.push_back(token); }
  std::vector<Token> accepted;

 private:
  Token token_;
};

TEST_F(ContextTest, AMaskDecidesWhatMayBeSampled) {
  const auto context = make();
  const SeqId seq = context->create_sequence();
  for (const Token allowed : {123, kNoToken}) {
    Sampler sampler({}, model_->vocab(), 512);
    OnlyToken mask(allowed);
    sampler.set_mask(&mask);
    const StepSequence s{seq, std::span(golden_->prompt).first(3), Outputs::last, &sampler};
    EXPECT_EQ(context->run({{&s, 1}}).sequences[0].sampled->token, allowed);
    sampler.accept(7);
    EXPECT_EQ(mask.accepted, std::vector<Token>{7});
  }
}

TEST_F(ContextTest, ReportsTheLikeliestTokensAndTakesManyBiases) {
  const auto context = make();
  const SeqId seq = context->create_sequence();
  SamplingParams params = greedy_params();
  params.n_probs = 5;
  for (Token t = 0; t < golden_->n_vocab; ++t)
    if (t != 42) params.logit_bias.emplace_back(t, -INFINITY);
  Sampler sampler(params, model_->vocab(), 512);
  const StepSequence s{seq, golden_->prompt, Outputs::last, &sampler};
  const SampledToken sampled = *context->run({{&s, 1}}).sequences[0].sampled;
  EXPECT_EQ(sampled.token, 42);
  ASSERT_EQ(sampled.top.size(), 5u);
  EXPECT_EQ(sampled.top[0].token, golden::argmax(golden_row(47)));  // of the raw logits
  for (std::size_t i = 1; i < 5; ++i) EXPECT_LE(sampled.top[i].logprob, sampled.top[i - 1].logprob);
}

TEST_F(ContextTest, ShiftingKeepsTheRestUsable) {
  const auto context = make();
  const SeqId seq = context->create_sequence();
  (void)feed(*context, seq, golden_->prompt);
  context->shift(seq, 4, 20);
  EXPECT_EQ(context->length(seq), 28);
  context->check_integrity();
  for (const float logit : feed(*context, seq, std::vector<Token>{5})) ASSERT_TRUE(std::isfinite(logit));
  EXPECT_EQ(code_of([&] { context->shift(seq, 4, 100); }), ErrorCode::invalid_argument);
}

TEST_F(ContextTest, RefusesSettingsThatCannotWork) {
  const auto code = [&](auto&& change) {
    ContextParams params = small();
    change(params);
    return code_of([&] { (void)make(params); });
  };
  EXPECT_EQ(code([](auto& p) { p.v_type = DType::q8_0, p.flash_attention = false; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code([](auto& p) { p.k_type = DType::q4_k; }), ErrorCode::unsupported);
  EXPECT_EQ(code([](auto& p) { p.n_ctx = -1; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code([](auto& p) { p.n_seq_max = 0; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code([](auto& p) { p.n_batch = 0; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code([](auto& p) { p.n_ubatch = 0; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code([](auto& p) { p.rope_scaling = "spiral"; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code([](auto& p) { p.rope_freq_base = -1.0f; }), ErrorCode::invalid_argument);
}

TEST_F(ContextTest, CountsTheBytesThatATokenMustRead) {
  load("mixtral");
  const auto context = make();
  const SeqId seq = context->create_sequence();
  (void)feed(*context, seq, std::vector<Token>{5});
  const double one = context->stats().weight_bytes;
  (void)feed(*context, seq, golden_->prompt);
  const double many = context->stats().weight_bytes;
  EXPECT_GT(one, 0.0);
  EXPECT_LT(one, many);  // one token reads 2 of 8 experts
  EXPECT_LT(many, static_cast<double>(model_->info().file_bytes));
  EXPECT_GT(context->stats().kv_bytes, 0.0);
}

}  // namespace
}  // namespace llama
