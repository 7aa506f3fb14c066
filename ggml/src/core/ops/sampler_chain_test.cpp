#include "ggml/sampler_chain.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "sampler_test_rows.h"

namespace ggml {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

using namespace test;

TEST(SamplerChain, DrawsByInverseCdfInVocabularyOrder) {
  const std::vector<float> logits = logits_of({0.1, 0.2, 0.3, 0.4});
  SampleRow row = plain_row();
  const std::pair<double, int> cases[] = {{0.0, 0},  {0.05, 0}, {0.2273, 1}, {0.299, 1},
                                          {0.31, 2}, {0.61, 3}, {0.99999, 3}};
  for (const auto& [u, token] : cases) {
    row.uniform[0] = row.uniform[1] = u;
    EXPECT_EQ(sample(row, logits).token, token) << u;
  }
}

TEST(SamplerChain, DrawsFromTheSortedListAfterTopK) {
  SampleRow row = with_stage(SampleStage::top_k);
  row.top_k = 3;
  row.uniform[0] = row.uniform[1] = 0.4;  // 4/9 belong to token 3, 3/9 to token 2, 2/9 to token 1
  EXPECT_EQ(sample(row, logits_of({0.1, 0.2, 0.3, 0.4})).token, 3);
  row.uniform[0] = row.uniform[1] = 0.5;
  const SampleResult result = sample(row, logits_of({0.1, 0.2, 0.3, 0.4}));
  EXPECT_EQ(result.token, 2);
  EXPECT_EQ(survivors(result), (std::vector<int>{3, 2, 1}));
  EXPECT_NEAR(probability(result, 0), 4.0 / 9, 1e-6);
  EXPECT_NEAR(result.logprob, std::log(3.0 / 9), 1e-6);
}

TEST(SamplerChain, TopKBreaksTiesByTheLowerToken) {
  SampleRow row = with_stage(SampleStage::top_k);
  row.top_k = 2;
  EXPECT_EQ(survivors(sample(row, {1, 2, 2, 2})), (std::vector<int>{1, 2}));
}

TEST(SamplerChain, TopPKeepsTheTokenThatCrossesTheBound) {
  SampleRow row = with_stage(SampleStage::top_p);
  const std::vector<float> logits = logits_of({0.1, 0.2, 0.3, 0.4});
  row.top_p = 0.6f;
  EXPECT_EQ(survivors(sample(row, logits)), (std::vector<int>{3, 2}));
  row.top_p = 0.75f;
  EXPECT_EQ(survivors(sample(row, logits)), (std::vector<int>{3, 2, 1}));
  row.top_p = 0.0f;
  EXPECT_EQ(survivors(sample(row, logits)), (std::vector<int>{3}));
  row.min_keep = 3;
  EXPECT_EQ(survivors(sample(row, logits)), (std::vector<int>{3, 2, 1}));
}

TEST(SamplerChain, MinPComparesWithTheLargestAndKeepsTheOrder) {
  SampleRow row = with_stage(SampleStage::min_p);
  const std::vector<float> logits = logits_of({0.1, 0.2, 0.3, 0.4});
  row.min_p = 0.6f;  // 0.24
  row.uniform[0] = row.uniform[1] = 0.3;
  const SampleResult result = sample(row, logits);
  EXPECT_EQ(survivors(result), (std::vector<int>{3, 2}));
  EXPECT_EQ(result.token, 2) << "token 2 comes first in the unsorted list and holds 3/7";
  row.min_keep = 3;
  EXPECT_EQ(survivors(sample(row, logits)), (std::vector<int>{3, 2, 1}));
  row.min_keep = 0;
  row.min_p = 1.5f;  // nobody passes; one always stays
  EXPECT_EQ(survivors(sample(row, logits)), (std::vector<int>{3}));
}

TEST(SamplerChain, TypicalKeepsTokensOfMiddlingSurprise) {
  // H = 1.2206; -ln p = 0.693, 1.386, 1.897, 2.303: distances 0.528, 0.166, 0.677, 1.082.
  SampleRow row = with_stage(SampleStage::typical);
  const std::vector<float> logits = logits_of({0.5, 0.25, 0.15, 0.1});
  row.typical_p = 0.2f;
  EXPECT_EQ(survivors(sample(row, logits)), (std::vector<int>{1}));
  row.typical_p = 0.5f;
  EXPECT_EQ(survivors(sample(row, logits)), (std::vector<int>{0, 1}));
  row.uniform[0] = row.uniform[1] = 0.1;
  EXPECT_EQ(sample(row, logits).token, 1) << "the draw walks by falling typicality";
  row.typical_p = 0.2f;
  row.min_keep = 3;
  EXPECT_EQ(survivors(sample(row, logits)), (std::vector<int>{0, 1, 2}));
}

TEST(SamplerChain, TemperatureDividesLogits) {
  SampleRow row = with_stage(SampleStage::temperature);
  row.temperature = 0.5f;
  const SampleResult result = sample(row, logits_of({0.25, 0.75}));  // squares: 1 : 9
  EXPECT_NEAR(probability(result, 0), 0.9, 1e-6);
}

TEST(SamplerChain, GreedyTakesTheLowestOfEqualTokensWhateverTheStages) {
  SampleRow row = plain_row();
  row.temperature = 0;
  row.uniform[0] = row.uniform[1] = 0.999;
  EXPECT_EQ(sample(row, {0, 3, 3, 1}).token, 1);
  row.stages[0] = SampleStage::temperature;
  const SampleResult result = sample(row, {0, 3, 3, 1});
  EXPECT_EQ(result.token, 1);
  EXPECT_EQ(result.n_probs, 1);
  EXPECT_FLOAT_EQ(result.logprob, 0);
}

TEST(SamplerChain, PenalisesByCountAndPresence) {
  SampleRow row = with_stage(SampleStage::penalties);
  row.repeat_penalty = 2;
  row.frequency_penalty = 0.5f;
  row.presence_penalty = 0.25f;
  const std::vector<float> logits{4, -1, 3, 0};
  const std::vector<SampleAdjust> adjust{{0, 0, 3, 0}, {1, 0, 1, 0}, {99, 0, 1, 0}, {-5, 0, 1, 0}};
  const SampleResult result = sample(row, {logits, adjust, {}});
  // 4 / 2 - 1.5 - 0.25 = 0.25; -1 * 2 - 0.5 - 0.25 = -2.75
  const double total = std::exp(0.25) + std::exp(-2.75) + std::exp(3.0) + 1;
  EXPECT_EQ(survivors(result), (std::vector<int>{2, 0, 3, 1}));
  EXPECT_NEAR(probability(result, 1), std::exp(0.25) / total, 1e-6);
  EXPECT_NEAR(probability(result, 3), std::exp(-2.75) / total, 1e-6);
}

TEST(SamplerChain, BiasesApplyWithoutAPenaltyStageAndCanBanTokens) {
  const SampleRow row = plain_row();
  const std::vector<SampleAdjust> adjust{{0, -kInf, 0, 0}, {2, 1.5f, 0, 0}};
  const std::vector<float> logits{5, 1, 0, 1};
  const SampleResult result = sample(row, {logits, adjust, {}});
  EXPECT_EQ(survivors(result), (std::vector<int>{2, 1, 3}));
}

TEST(SamplerChain, NeverPicksAMaskedToken) {
  SampleRow row = with_stage(SampleStage::top_k);
  row.top_k = 10;
  std::vector<float> logits(70);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i);
  std::vector<std::uint32_t> mask(3, 0);
  mask[0] = 1u << 4;
  mask[2] = 1u << 1;  // token 65
  EXPECT_EQ(survivors(sample(row, {logits, {}, mask})), (std::vector<int>{65, 4}));
  mask.assign(3, 0);
  const SampleResult none = sample(row, {logits, {}, mask});
  EXPECT_EQ(none.token, -1);
  EXPECT_EQ(none.n_probs, 0);
}

TEST(SamplerChain, SurvivesHostileLogits) {
  SampleRow row = plain_row();
  const SampleStage all[] = {SampleStage::penalties, SampleStage::top_k, SampleStage::typical,
                             SampleStage::top_p,     SampleStage::min_p, SampleStage::temperature};
  std::copy(std::begin(all), std::end(all), row.stages);
  row.top_k = 5;
  row.typical_p = 0.9f;
  row.top_p = 0.9f;
  row.min_p = 0.1f;
  row.temperature = 1e-30f;
  row.repeat_penalty = 0;
  row.uniform[0] = row.uniform[1] = 1;
  const float nan = std::nanf("");
  const std::vector<SampleAdjust> adjust{{0, 0, 1, 0}, {1, kInf, 2, 0}, {2, nan, 0, nan}};
  for (const std::vector<float>& logits : {std::vector<float>{nan, nan, nan},
                                           {kInf, kInf, 0},
                                           {-kInf, -kInf, -kInf},
                                           {1e38f, -1e38f, nan},
                                           {0, 0, 0},
                                           {5},
                                           {}}) {
    const SampleResult result = sample(row, {logits, adjust, {}});
    EXPECT_GE(result.token, -1);
    EXPECT_LT(result.token, static_cast<int>(logits.size()));
    if (result.token < 0) continue;
    EXPECT_FALSE(std::isnan(logits[static_cast<std::size_t>(result.token)]));
  }
}

TEST(SamplerChain, ReportsRawProbabilitiesOfTheWholeVocabulary) {
  SampleRow row = with_stage(SampleStage::top_k);
  row.top_k = 1;
  row.report_post = 0;
  row.n_probs = 2;
  const SampleResult result = sample(row, logits_of({0.1, 0.2, 0.3, 0.4}));
  EXPECT_EQ(result.token, 3);
  EXPECT_NEAR(result.logprob, std::log(0.4), 1e-6);
  EXPECT_EQ(survivors(result), (std::vector<int>{3, 2}));
  EXPECT_NEAR(result.logprobs[1], std::log(0.3), 1e-6);
  row.n_probs = 0;
  EXPECT_EQ(sample(row, logits_of({0.1, 0.9})).n_probs, 0);
}

// Plain full-sort versions of the cuts, for random rows.
std::vector<int> expected_top(const std::vector<float>& logits, int k, float p) {
  std::vector<int> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  auto logit = [&](int i) { return logits[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logit(a) > logit(b); });
  if (k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(k)));
  double total = 0, running = 0;
  for (int i : order) total += std::exp(logit(i) - logit(order[0]));
  for (std::size_t i = 0; i < order.size() && p < 1; ++i) {
    running += std::exp(logit(order[i]) - logit(order[0])) / total;
    if (running >= p) order.resize(i + 1);
  }
  return order;
}

TEST(SamplerChain, SelectionsEqualAFullSort) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 2);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits(1 + random() % 5000);
    for (float& x : logits) x = round % 4 == 0 ? std::round(normal(random)) : normal(random);
    SampleRow row = plain_row();
    row.stages[0] = SampleStage::top_k;
    row.stages[1] = SampleStage::top_p;
    row.top_k = round % 3 == 0 ? 0 : static_cast<int>(1 + random() % 2000);
    row.top_p = round % 2 == 0 ? 1.0f : 0.7f + 0.001f * static_cast<float>(random() % 250);
    row.uniform[0] = row.uniform[1] = 0.9999;
    std::vector<int> expected = expected_top(logits, row.top_k, row.top_p);
    const SampleResult result = sample(row, logits);
    expected.resize(std::min<std::size_t>(expected.size(), kMaxReportedProbs));
    EXPECT_EQ(survivors(result), expected) << round;
  }
}

TEST(SamplerChain, PreselectionEqualsTheWholeVocabulary) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(100 + random() % 3000);
    for (float& x : logits) x = round % 3 == 0 ? std::round(normal(random)) : normal(random);
    std::vector<SampleAdjust> adjust;
    for (std::uint32_t i = random() % 20; i > 0; --i)
      adjust.push_back({static_cast<std::int32_t>(random() % logits.size()), i % 4 == 0 ? -kInf : normal(random),
                        static_cast<std::int32_t>(random() % 3), i % 3 == 0 ? 1.5f : 0.0f});
    std::vector<std::uint32_t> mask;
    if (round % 2 == 0)
      for (std::size_t i = 0; i <= logits.size() / 32; ++i) {
        const auto half_of_the_bits = static_cast<std::uint32_t>(random());
        mask.push_back(half_of_the_bits & static_cast<std::uint32_t>(random()));
      }
    SampleRow row = plain_row();
    row.repeat_penalty = 1.3f;
    row.presence_penalty = 0.4f;
    row.stages[1] = SampleStage::penalties;
    row.stages[2] = SampleStage::dry;
    row.stages[3] = SampleStage::top_k;
    row.top_k = round % 5 == 0 ? 1 : 1 + static_cast<int>(random() % 60);
    row.uniform[0] = row.uniform[1] = 0.6;
    const SampleResult fast = sample(row, {logits, adjust, mask});
    // A typical stage that keeps everything forces the long way; it reorders, which the cut undoes.
    row.stages[0] = SampleStage::typical;
    row.typical_p = 0.99999994f;
    row.min_keep = static_cast<std::int32_t>(logits.size());
    const SampleResult slow = sample(row, {logits, adjust, mask});
    EXPECT_EQ(fast.token, slow.token);
    EXPECT_EQ(survivors(fast), survivors(slow));
  }
}

TEST(SamplerChain, ChoosesFromAQuarterOfAMillionTokensInMilliseconds) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(262144);
  for (float& x : logits) x = normal(random);
  SampleRow row = plain_row();
  const SampleStage chain[] = {SampleStage::penalties, SampleStage::top_k, SampleStage::top_p, SampleStage::min_p,
                               SampleStage::temperature};
  std::copy(std::begin(chain), std::end(chain), row.stages);
  row.top_k = 40;
  row.top_p = 0.95f;
  row.min_p = 0.05f;
  row.temperature = 0.8f;
  row.n_probs = 0;
  std::vector<std::byte> scratch(sampler_scratch_bytes(logits.size()));
  SampleResult result{};
  double best = 1e9;
  for (int i = 0; i < 10; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run_sampler_chain(row, {logits, {}, {}}, scratch, result);
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  RecordProperty("best_us", static_cast<int>(best * 1000));
  EXPECT_LT(best, 100) << "a sort of the whole vocabulary crept in, or worse";
}

}  // namespace
}  // namespace ggml
