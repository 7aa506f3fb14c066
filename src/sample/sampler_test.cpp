#include "llama/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "llama/vocab.h"

namespace llama {
namespace {

constexpr int kTokens = 32;

Vocab make_vocab() {
  ggml::gguf::Metadata metadata;
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<std::int32_t> types;
  for (int i = 0; i < kTokens; ++i) {
    tokens.push_back(i == 0 ? "<unk>" : i == 1 ? "<s>" : i == 2 ? "</s>" : std::string(1, static_cast<char>('a' + i)));
    scores.push_back(0.0f);
    types.push_back(i == 0 ? 2 : i <= 2 ? 3 : 1);
  }
  metadata.set_string("tokenizer.ggml.model", "llama");
  metadata.set_strings("tokenizer.ggml.tokens", tokens);
  metadata.set_f32s("tokenizer.ggml.scores", scores);
  metadata.set_i32s("tokenizer.ggml.token_type", types);
  metadata.set_u32("tokenizer.ggml.bos_token_id", 1);
  metadata.set_u32("tokenizer.ggml.eos_token_id", 2);
  return Vocab::load(metadata, "test");
}

const ggml::SampleAdjust* find(const std::vector<ggml::SampleAdjust>& list, Token token) {
  const auto it = std::find_if(list.begin(), list.end(), [&](const auto& a) { return a.token == token; });
  return it == list.end() ? nullptr : &*it;
}

TEST(Sampler, DrawsTheNumbersOfTheReferenceGenerator) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  params.seed = 42;
  Sampler sampler(params, vocab, 512);
  ggml::SampleRow row;
  std::vector<ggml::SampleAdjust> adjust;
  sampler.prepare(row, adjust);
  EXPECT_DOUBLE_EQ(row.uniform[0], 0.79654298428784598);
  EXPECT_DOUBLE_EQ(row.uniform[1], 0.18343478789336848);
  EXPECT_FLOAT_EQ(row.xtc_uniform[0], 0.37454012f);
  EXPECT_FLOAT_EQ(row.xtc_uniform[1], 0.79654298f);
  EXPECT_TRUE(adjust.empty());
  EXPECT_EQ(sampler.seed(), 42u);
}

TEST(Sampler, ReportsTheSeedItDrew) {
  const Vocab vocab = make_vocab();
  Sampler a({}, vocab, 512);
  SamplingParams params;
  params.seed = a.seed();
  Sampler b(params, vocab, 512);
  ggml::SampleRow row_a, row_b;
  std::vector<ggml::SampleAdjust> adjust;
  a.prepare(row_a, adjust);
  b.prepare(row_b, adjust);
  EXPECT_EQ(row_a.uniform[0], row_b.uniform[0]);
}

TEST(Sampler, CountsOnlyTheLastTokensForThePenalties) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  params.repeat_penalty = 1.1f;
  params.penalty_last_n = 4;
  params.logit_bias = {{7, 1.5f}};
  Sampler sampler(params, vocab, 512);
  sampler.accept_prompt(std::vector<Token>{5, 5, 6, 7});
  ggml::SampleRow row;
  std::vector<ggml::SampleAdjust> adjust;
  sampler.prepare(row, adjust);
  ASSERT_EQ(adjust.size(), 3u);
  EXPECT_EQ(find(adjust, 5)->count, 2);
  EXPECT_EQ(find(adjust, 6)->count, 1);
  EXPECT_EQ(find(adjust, 7)->count, 1);
  EXPECT_EQ(find(adjust, 7)->bias, 1.5f);
  for (const Token token : {8, 8, 9}) sampler.accept(token);
  adjust.clear();
  sampler.prepare(row, adjust);
  EXPECT_EQ(find(adjust, 5), nullptr);
  EXPECT_EQ(find(adjust, 6), nullptr);
  EXPECT_EQ(find(adjust, 7)->count, 1);
  EXPECT_EQ(find(adjust, 8)->count, 2);
  EXPECT_EQ(find(adjust, 9)->count, 1);
}

TEST(Sampler, AWindowOfMinusOneIsTheContextAndOneOfZeroIsOff) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  params.repeat_penalty = 1.1f;
  params.penalty_last_n = -1;
  params.dry_multiplier = 1;
  params.dry_base = 2;
  params.dry_penalty_last_n = -1;
  const auto adjustments = [&](int n_ctx) {
    Sampler sampler(params, vocab, n_ctx);
    sampler.accept_prompt(std::vector<Token>{5, 6, 7, 8, 5, 6, 7});
    ggml::SampleRow row;
    std::vector<ggml::SampleAdjust> adjust;
    sampler.prepare(row, adjust);
    return adjust;
  };
  const auto all = adjustments(7);
  EXPECT_EQ(find(all, 5)->count, 2);
  EXPECT_EQ(find(all, 8)->dry, 2.0f) << "5 6 7 stood before it: 2^(3 - 2)";
  const auto cut = adjustments(6);
  EXPECT_EQ(find(cut, 5)->count, 1) << "the first token is out";
  EXPECT_EQ(find(cut, 8)->dry, 1.0f) << "6 7 stood before it: 2^(2 - 2)";
  params.penalty_last_n = params.dry_penalty_last_n = 0;
  EXPECT_TRUE(adjustments(7).empty());
}

TEST(Sampler, PenaltiesActOnTheLogitsOfTheWindowAlone) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  params.samplers = {SamplerKind::penalties};
  params.repeat_penalty = 2;
  params.frequency_penalty = 0.5f;
  params.presence_penalty = 0.25f;
  params.penalty_last_n = 4;
  params.n_probs = 4;
  params.post_sampling_probs = true;
  Sampler sampler(params, vocab, 512);
  sampler.accept_prompt(std::vector<Token>{8, 5, 6, 5});
  sampler.accept(7);  // the window is 5 6 5 7
  ggml::SampleRow row;
  std::vector<ggml::SampleAdjust> adjust;
  sampler.prepare(row, adjust);
  std::vector<float> logits(kTokens, -INFINITY);
  logits[5] = 6;   // 6 / 2 - 2 * 0.5 - 0.25 = 1.75
  logits[6] = -1;  // -1 * 2 - 0.5 - 0.25 = -2.75
  logits[7] = 0;   // 0 - 0.5 - 0.25 = -0.75
  logits[8] = 2;   // left as it is
  const ggml::SampleResult result = sampler.sample_on_host(row, logits, adjust, {});
  ASSERT_EQ(result.n_probs, 4);
  const double total = std::exp(1.75) + std::exp(-2.75) + std::exp(-0.75) + std::exp(2.0);
  const std::pair<Token, double> expected[] = {{8, 2}, {5, 1.75}, {7, -0.75}, {6, -2.75}};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(result.ids[i], expected[i].first);
    EXPECT_NEAR(std::exp(result.logprobs[i]), std::exp(expected[i].second) / total, 1e-6);
  }
}

TEST(Sampler, WithoutPenaltiesNothingIsCounted) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  params.penalty_last_n = -1;
  Sampler sampler(params, vocab, 512);
  sampler.accept(5);
  ggml::SampleRow row;
  std::vector<ggml::SampleAdjust> adjust;
  sampler.prepare(row, adjust);
  EXPECT_TRUE(adjust.empty());
}

TEST(Sampler, BansEveryEndTokenWhenEosIsIgnored) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  params.ignore_eos = true;
  Sampler sampler(params, vocab, 512);
  ggml::SampleRow row;
  std::vector<ggml::SampleAdjust> adjust;
  sampler.prepare(row, adjust);
  ASSERT_NE(find(adjust, 2), nullptr);
  EXPECT_EQ(find(adjust, 2)->bias, -INFINITY);
}

/// Allows the given tokens.
class FixedMask final : public TokenMask {
 public:
  explicit FixedMask(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  bool fill(std::span<std::uint32_t> words) override {
    std::fill(words.begin(), words.end(), 0u);
    for (const Token t : tokens_) words[static_cast<std::size_t>(t) / 32] |= 1u << (t % 32);
    return true;
  }
  void accept(Token /*token*/) override {}

 private:
  std::vector<Token> tokens_;
};

TEST(Sampler, WhereAMaskAllowsOnlyTheEndTheBanOnItIsTakenBack) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  params.ignore_eos = true;
  params.logit_bias = {{7, -INFINITY}};
  Sampler sampler(params, vocab, 512);
  ggml::SampleRow row;
  std::vector<ggml::SampleAdjust> adjust;
  std::vector<std::uint32_t> words(1);
  const auto bias_of_end = [&](std::vector<Token> allowed) {
    FixedMask mask(std::move(allowed));
    sampler.set_mask(&mask);
    adjust.clear();
    sampler.prepare(row, adjust);
    EXPECT_TRUE(sampler.fill_mask(words, adjust));
    EXPECT_EQ(find(adjust, 7)->bias, -INFINITY);
    return find(adjust, 2)->bias;
  };
  EXPECT_EQ(bias_of_end({2}), 0.0f);
  EXPECT_EQ(bias_of_end({2, 5}), -INFINITY) << "the text can go on";
  EXPECT_EQ(bias_of_end({5}), -INFINITY);
  EXPECT_EQ(bias_of_end({}), -INFINITY);
  sampler.set_mask(nullptr);
  adjust.clear();
  sampler.prepare(row, adjust);
  EXPECT_FALSE(sampler.fill_mask(words, adjust));
  EXPECT_EQ(find(adjust, 2)->bias, -INFINITY) << "each token anew";
}

TEST(Sampler, FillsStagesInTheOrderOfTheRequest) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  params.samplers = {SamplerKind::temperature, SamplerKind::top_k};
  params.top_k = 7;
  params.n_probs = 3;
  Sampler sampler(params, vocab, 512);
  ggml::SampleRow row;
  std::vector<ggml::SampleAdjust> adjust;
  sampler.prepare(row, adjust);
  EXPECT_EQ(row.stages[0], ggml::SampleStage::temperature);
  EXPECT_EQ(row.stages[1], ggml::SampleStage::top_k);
  EXPECT_EQ(row.stages[2], ggml::SampleStage::none);
  EXPECT_EQ(row.top_k, 7);
  EXPECT_EQ(row.n_probs, 3);
  EXPECT_EQ(row.mask_row, -1);
}

TEST(Sampler, UsesUpOnlyTheNumbersThatTheChainUsed) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  params.seed = 42;
  Sampler sampler(params, vocab, 512);
  ggml::SampleRow row;
  std::vector<ggml::SampleAdjust> adjust;
  sampler.prepare(row, adjust);
  sampler.prepare(row, adjust);  // a step that failed is prepared again
  EXPECT_DOUBLE_EQ(row.uniform[0], 0.79654298428784598);
  ggml::SampleResult result{};
  sampler.collect(result);  // a single candidate
  sampler.prepare(row, adjust);
  EXPECT_DOUBLE_EQ(row.uniform[0], 0.79654298428784598);
  result.n_uniform = 1;
  sampler.collect(result);
  sampler.prepare(row, adjust);
  EXPECT_DOUBLE_EQ(row.uniform[0], 0.18343478789336848);
  EXPECT_FLOAT_EQ(row.xtc_uniform[0], 0.37454012f);
  result = {};
  result.n_xtc_uniform = 1;
  sampler.collect(result);
  sampler.prepare(row, adjust);
  EXPECT_DOUBLE_EQ(row.uniform[0], 0.18343478789336848);
  EXPECT_FLOAT_EQ(row.xtc_uniform[0], 0.79654298f);
}

TEST(Sampler, MirostatReplacesTheChainAndKeepsItsState) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  params.mirostat = 2;
  params.mirostat_tau = 3;
  params.dynatemp_range = 1;
  params.repeat_penalty = 2;
  params.temperature = 0.7f;
  Sampler sampler(params, vocab, 512);
  sampler.accept_prompt(std::vector<Token>{5, 5});
  ggml::SampleRow row;
  std::vector<ggml::SampleAdjust> adjust;
  sampler.prepare(row, adjust);
  EXPECT_TRUE(adjust.empty());
  EXPECT_EQ(row.draw, ggml::SampleDraw::mirostat2);
  EXPECT_EQ(row.stages[0], ggml::SampleStage::temperature);
  EXPECT_EQ(row.stages[1], ggml::SampleStage::none);
  EXPECT_EQ(row.dynatemp_range, 0.0f) << "Mirostat takes the plain temperature";
  EXPECT_EQ(row.mirostat_mu, 6.0f);
  ggml::SampleResult result{};
  result.mirostat_mu = 5.5f;
  sampler.collect(result);
  sampler.prepare(row, adjust);
  EXPECT_EQ(row.mirostat_mu, 5.5f);
}

TEST(Sampler, AdaptiveAimsSoThatTheMeanMeetsItsTarget) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  params.samplers = {SamplerKind::adaptive_p};
  params.adaptive_target = 0.5f;
  params.adaptive_decay = 0.5f;
  Sampler sampler(params, vocab, 512);
  ggml::SampleRow row;
  std::vector<ggml::SampleAdjust> adjust;
  sampler.prepare(row, adjust);
  EXPECT_EQ(row.draw, ggml::SampleDraw::adaptive);
  EXPECT_FLOAT_EQ(row.adaptive_target, 0.5f);
  ggml::SampleResult result{};
  result.token = 7;
  result.adaptive_p = 0.9f;
  sampler.collect(result);
  sampler.accept(8);  // not the token that was drawn
  sampler.prepare(row, adjust);
  EXPECT_FLOAT_EQ(row.adaptive_target, 0.5f);
  sampler.accept(7);  // sums 1 and 2 become 0.9 + 0.5 = 1.4 and 1 + 1 = 2: mean 0.7
  sampler.prepare(row, adjust);
  EXPECT_FLOAT_EQ(row.adaptive_target, 0.3f);
}

TEST(Sampler, AdaptiveForgetsAtMostAHundredthOfItsMeanWithEachToken) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  params.samplers = {SamplerKind::adaptive_p};
  params.adaptive_target = 0.5f;
  params.adaptive_decay = 1;  // 0.99: sums 50 and 100
  Sampler sampler(params, vocab, 512);
  ggml::SampleRow row;
  std::vector<ggml::SampleAdjust> adjust;
  sampler.prepare(row, adjust);
  EXPECT_NEAR(row.adaptive_target, 0.5, 1e-5);
  ggml::SampleResult result{};
  result.token = 7;
  result.adaptive_p = 1;
  sampler.collect(result);
  sampler.accept(7);  // 1 + 0.99 * 50 = 50.5 and 1 + 99 = 100: mean 0.505, so 2 * 0.5 - 0.505
  sampler.prepare(row, adjust);
  EXPECT_NEAR(row.adaptive_target, 0.495, 1e-5);
}

TEST(Sampler, DryMarksTokensBesideTheOtherAdjustments) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  params.dry_multiplier = 1;
  params.dry_base = 2;
  params.repeat_penalty = 1.1f;
  params.penalty_last_n = 2;
  params.logit_bias = {{9, 1.5f}};
  Sampler sampler(params, vocab, 512);
  sampler.accept_prompt(std::vector<Token>{5, 6, 7, 9, 5, 6, 7, 8, 5, 6, 7});
  ggml::SampleRow row;
  std::vector<ggml::SampleAdjust> adjust;
  sampler.prepare(row, adjust);
  ASSERT_EQ(adjust.size(), 4u);
  EXPECT_EQ(find(adjust, 9)->bias, 1.5f);
  EXPECT_EQ(find(adjust, 9)->dry, 2.0f);
  EXPECT_EQ(find(adjust, 8)->dry, 2.0f);
  EXPECT_EQ(find(adjust, 8)->count, 0);
  EXPECT_EQ(find(adjust, 6)->count, 1);
  EXPECT_EQ(find(adjust, 7)->count, 1);
  EXPECT_EQ(find(adjust, 7)->dry, 0.0f);
}

TEST(Sampler, OnlyAChainWithInfillStaysOnTheHost) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  EXPECT_FALSE(Sampler(params, vocab, 512).on_host());
  params.samplers.push_back(SamplerKind::infill);
  Sampler sampler(params, vocab, 512);
  ASSERT_TRUE(sampler.on_host());
  ggml::SampleRow row;
  std::vector<ggml::SampleAdjust> adjust;
  sampler.prepare(row, adjust);
  std::vector<float> logits(kTokens, 0.0f);
  logits[7] = 20;
  EXPECT_EQ(sampler.sample_on_host(row, logits, adjust, {}).token, 7);
  std::fill(logits.begin(), logits.end(), 0.0f);
  EXPECT_EQ(sampler.sample_on_host(row, logits, adjust, {}).token, 2) << "nothing is likely: the end token";
}

TEST(Sampler, AWindowOfBillionsCostsNoMemory) {
  const Vocab vocab = make_vocab();
  SamplingParams params;
  params.repeat_penalty = 1.1f;
  params.penalty_last_n = 2000000000;
  params.dry_multiplier = 1;
  params.dry_penalty_last_n = 2000000000;
  Sampler sampler(params, vocab, 512);
  for (int i = 0; i < 10000; ++i) sampler.accept(5);
  ggml::SampleRow row;
  std::vector<ggml::SampleAdjust> adjust;
  sampler.prepare(row, adjust);
  EXPECT_EQ(find(adjust, 5)->count, 10000);
}

TEST(Sampler, RefusesAbsurdParametersByName) {
  const Vocab vocab = make_vocab();
  const auto message = [&](const SamplingParams& params) {
    try {
      const Sampler sampler(params, vocab, 512);
    } catch (const ggml::Error& error) {
      return error.message();
    }
    return std::string();
  };
  SamplingParams params;
  params.temperature = NAN;
  EXPECT_NE(message(params).find("temperature"), std::string::npos);
  params = {};
  params.repeat_penalty = 1e-9f;
  EXPECT_NE(message(params).find("repeat_penalty"), std::string::npos);
  params = {};
  params.penalty_last_n = -2;
  EXPECT_NE(message(params).find("repeat_last_n"), std::string::npos);
  params = {};
  params.logit_bias = {{kTokens, 1.0f}};
  EXPECT_NE(message(params).find("logit_bias"), std::string::npos);
  params = {};
  params.samplers.assign(17, SamplerKind::top_k);
  EXPECT_NE(message(params).find("samplers"), std::string::npos);
  params = {};
  params.mirostat = 3;
  EXPECT_NE(message(params).find("mirostat"), std::string::npos);
  params = {};
  params.n_probs = 1000000;
  EXPECT_NE(message(params).find("n_probs"), std::string::npos);
}

}  // namespace
}  // namespace llama
