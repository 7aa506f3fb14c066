// Each stage and each draw against numbers worked out by hand.
#include <gtest/gtest.h>

#include <limits>

#include "sampler_test_rows.h"

namespace ggml {
namespace {

using namespace test;

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(SamplerStages, TopNSigmaKeepsWhatLiesWithinDeviationsOfTheBest) {
  SampleRow row = with_stage(SampleStage::top_n_sigma);
  row.top_n_sigma = 1;  // mean 1.5, deviation 1.118: the bound is 1.882
  EXPECT_EQ(survivors(sample(row, {0, 1, 2, 3})), (std::vector<int>{3, 2}));
  row.top_n_sigma = 2;  // 0.764
  EXPECT_EQ(survivors(sample(row, {0, 1, 2, 3})), (std::vector<int>{3, 2, 1}));
  EXPECT_EQ(survivors(sample(row, {0, 1, 2, 3, -kInf})), (std::vector<int>{3, 2, 1})) << "-inf is not in the mean";
  row.top_n_sigma = 0;
  EXPECT_EQ(survivors(sample(row, {0, 1, 2, 3})).size(), 4u);
  EXPECT_EQ(survivors(sample(with_stage(SampleStage::top_n_sigma), {5})).size(), 1u);
}

TEST(SamplerStages, TokensBelowTheSigmaBoundStillCountAsCandidates) {
  SampleRow row = with_stage(SampleStage::top_n_sigma);
  row.top_n_sigma = 0.1f;
  row.uniform[0] = 0.7;
  const SampleResult one = sample(row, {0, 1, 2, 3});
  EXPECT_EQ(survivors(one), (std::vector<int>{3}));
  EXPECT_EQ(one.n_uniform, 1) << "four candidates, three of them at -inf: a number is drawn";
}

TEST(SamplerStages, DynamicTemperatureFollowsTheEntropy) {
  SampleRow row = with_stage(SampleStage::temperature);
  row.dynatemp_range = 0.5f;
  const std::vector<float> logits = logits_of({0.5, 0.25, 0.25});
  EXPECT_NEAR(probability(sample(row, logits), 0), 0.446722, 1e-6) << "T = 0.5 + 1.03972 / ln 3 = 1.446395";
  row.dynatemp_exponent = 2;
  EXPECT_NEAR(probability(sample(row, logits), 0), 0.451032, 1e-6) << "T = 0.5 + 0.946395^2 = 1.395663";
  row.dynatemp_exponent = 1;
  EXPECT_NEAR(probability(sample(row, {logits[0], logits[1], logits[2], -kInf}), 0), 0.465398, 1e-6)
      << "a candidate at -inf counts: T = 0.5 + 1.03972 / ln 4 = 1.25";
}

TEST(SamplerStages, DynamicTemperatureSortsThePlainOneDoesNot) {
  SampleRow row = with_stage(SampleStage::temperature);
  row.uniform[0] = 0.1;
  const std::vector<float> logits = logits_of({0.25, 0.75});
  EXPECT_EQ(sample(row, logits).token, 0);
  row.dynatemp_range = 0.5f;
  EXPECT_EQ(sample(row, logits).token, 1);
}

TEST(SamplerStages, DynamicTemperatureOfOneCandidateOrZeroIsDefined) {
  SampleRow row = with_stage(SampleStage::temperature);
  row.temperature = 0;
  row.dynatemp_range = 0.5f;  // 0 .. 0.5, so not greedy
  const SampleResult mixed = sample(row, logits_of({0.5, 0.5}));
  EXPECT_EQ(mixed.n_probs, 2);
  EXPECT_EQ(survivors(sample(row, {0, 500})), (std::vector<int>{1})) << "no entropy: T = 0 is greedy";
  EXPECT_EQ(survivors(sample(row, std::vector<float>{2})), (std::vector<int>{0}));
}

TEST(SamplerStages, XtcRemovesAllLikelyTokensButTheLast) {
  SampleRow row = with_stage(SampleStage::xtc);
  row.xtc_probability = 0.5f;
  row.xtc_threshold = 0.15f;
  row.xtc_uniform[0] = 0.4f;
  const std::vector<float> logits = logits_of({0.1, 0.4, 0.2, 0.3});
  SampleResult result = sample(row, logits);
  EXPECT_EQ(survivors(result), (std::vector<int>{2, 0}));
  EXPECT_NEAR(probability(result, 0), 2.0 / 3, 1e-6);
  EXPECT_EQ(result.n_xtc_uniform, 1);
  row.xtc_uniform[0] = 0.51f;
  result = sample(row, logits);
  EXPECT_EQ(survivors(result).size(), 4u) << "the number says no";
  EXPECT_EQ(result.n_xtc_uniform, 1);
  EXPECT_EQ(result.token, 0) << "and the order stays: token 0 is first";
  row.xtc_uniform[0] = 0.4f;
  row.xtc_threshold = 0.35f;
  EXPECT_EQ(survivors(sample(row, logits)).size(), 4u) << "one token above the threshold stays";
  row.xtc_threshold = 0.15f;
  row.min_keep = 3;
  EXPECT_EQ(survivors(sample(row, logits)).size(), 4u) << "two would be left, three are wanted";
  row.min_keep = 2;
  EXPECT_EQ(survivors(sample(row, logits)), (std::vector<int>{2, 0}));
}

TEST(SamplerStages, XtcDrawsNothingWhereItCannotAct) {
  SampleRow row = with_stage(SampleStage::xtc);
  row.xtc_probability = 1;
  row.xtc_threshold = 0.51f;
  EXPECT_EQ(sample(row, {1, 2}).n_xtc_uniform, 0);
  row.xtc_threshold = 0.1f;
  EXPECT_EQ(sample(row, std::vector<float>{1}).n_xtc_uniform, 0);
  EXPECT_EQ(sample(row, {1, 2}).n_xtc_uniform, 1);
  row.xtc_probability = 0;
  EXPECT_EQ(sample(row, {1, 2}).n_xtc_uniform, 0);
}

TEST(SamplerStages, XtcLeavesTheRestInOrderForTheDraw) {
  SampleRow row = with_stage(SampleStage::xtc);
  row.xtc_probability = 1;
  row.xtc_threshold = 0.0001f;
  std::vector<float> logits(3000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = i < 4 ? 9.0f : static_cast<float>((i * 37) % 3000) / 3000;
  row.uniform[0] = 0;
  EXPECT_EQ(sample(row, logits).token, 3) << "the last of the four likely ones";
  row.uniform[0] = 0.9999999;
  EXPECT_LT(logits[static_cast<std::size_t>(sample(row, logits).token)], 0.01f) << "the unlikeliest come last";
}

TEST(SamplerStages, TailFreeCutsWhereTheCurveFlattens) {
  // Second differences 0, 0.16, 0.02: running sums 0, 0.889, 1.
  SampleRow row = with_stage(SampleStage::tail_free);
  const std::vector<float> logits = logits_of({0.5, 0.3, 0.1, 0.06, 0.04});
  row.tfs_z = 0.5f;
  EXPECT_EQ(survivors(sample(row, logits)), (std::vector<int>{0}));
  row.tfs_z = 0.95f;
  EXPECT_EQ(survivors(sample(row, logits)), (std::vector<int>{0, 1}));
  row.min_keep = 3;
  EXPECT_EQ(survivors(sample(row, logits)).size(), 5u);
  row.min_keep = 0;
  row.tfs_z = 0.1f;
  EXPECT_EQ(survivors(sample(row, logits_of({0.6, 0.4}))).size(), 2u) << "two points have no curve";
}

TEST(SamplerStages, DrySubtractsItsPenaltyAtItsPlaceInTheChain) {
  SampleRow row = with_stage(SampleStage::dry);
  const std::vector<float> logits{3, 2, 1};
  const std::vector<SampleAdjust> adjust{{0, 0, 0, 2.5f}};
  EXPECT_EQ(survivors(sample(row, {logits, adjust, {}})), (std::vector<int>{1, 2, 0}));
  row.stages[0] = SampleStage::top_k;
  row.stages[1] = SampleStage::dry;
  row.top_k = 2;
  EXPECT_EQ(survivors(sample(row, {logits, adjust, {}})), (std::vector<int>{1, 0})) << "the cut came first";
  row.stages[1] = SampleStage::none;
  EXPECT_EQ(survivors(sample(row, {logits, adjust, {}})), (std::vector<int>{0, 1})) << "not listed, not applied";
}

TEST(SamplerDraws, MirostatTwoCutsByItsSurpriseBoundAndLearns) {
  SampleRow row = plain_row();
  row.draw = SampleDraw::mirostat2;
  row.mirostat_tau = 1;
  row.mirostat_eta = 0.1f;
  row.mirostat_mu = 2.5f;
  row.uniform[0] = 0.5;
  const std::vector<float> logits = logits_of({0.125, 0.5, 0.25, 0.125});  // surprises 3, 1, 2, 3
  SampleResult result = sample(row, logits);
  EXPECT_EQ(survivors(result), (std::vector<int>{1, 2}));
  EXPECT_EQ(result.token, 1) << "2/3 of what is left";
  EXPECT_NEAR(result.mirostat_mu, 2.5 - 0.1 * (0.584963 - 1), 1e-5);
  row.uniform[0] = 0.7;
  EXPECT_EQ(sample(row, logits).token, 2);
  row.mirostat_mu = 0.5f;
  result = sample(row, logits);
  EXPECT_EQ(survivors(result), (std::vector<int>{1})) << "one always stays";
  EXPECT_EQ(result.n_uniform, 0);
  EXPECT_NEAR(result.mirostat_mu, 0.6, 1e-6) << "no surprise at all";
}

TEST(SamplerDraws, MirostatOneKeepsAsManyAsZipfsLawSays) {
  // t = ln 2, ln 1.5, ln 4/3; s = 0.761499 / 0.727616 = 1.046567; k = 1.46 at mu 1, 2.84 at mu 2.
  SampleRow row = plain_row();
  row.draw = SampleDraw::mirostat1;
  row.mirostat_tau = 1;
  row.mirostat_eta = 0.1f;
  row.mirostat_mu = 2;
  row.uniform[0] = 0.7;
  const std::vector<float> logits = logits_of({0.125, 0.5, 0.25, 0.125});
  const SampleResult result = sample(row, logits);
  EXPECT_EQ(survivors(result), (std::vector<int>{1, 2}));
  EXPECT_EQ(result.token, 2);
  EXPECT_NEAR(result.mirostat_mu, 2 - 0.1 * (1.584963 - 1), 1e-5);
  row.mirostat_mu = 1;
  EXPECT_EQ(survivors(sample(row, logits)), (std::vector<int>{1}));
  row.mirostat_mu = 1000;
  EXPECT_EQ(survivors(sample(row, logits)).size(), 4u);
  for (const std::vector<float>& hostile : {std::vector<float>{7}, {1, 1, 1, 1}, {5, -kInf}, {kInf, 0}}) {
    const int token = sample(row, hostile).token;
    EXPECT_GE(token, 0);
    EXPECT_LT(token, static_cast<int>(hostile.size()));
  }
}

TEST(SamplerDraws, AdaptivePrefersProbabilitiesNearItsTarget) {
  // |p - a| / 0.3 = 1, 0, 2/3: logits 0, 5, 2.3333; probabilities 0.00626, 0.92918, 0.06456.
  SampleRow row = plain_row();
  row.draw = SampleDraw::adaptive;
  row.adaptive_target = 0.3f;
  row.uniform[0] = 0.5;
  const std::vector<float> logits = logits_of({0.6, 0.3, 0.1});
  SampleResult result = sample(row, logits);
  EXPECT_EQ(result.token, 1);
  EXPECT_NEAR(result.adaptive_p, 0.3, 1e-6);
  EXPECT_NEAR(probability(result, 0), 0.92918, 1e-4);
  EXPECT_EQ(survivors(result), (std::vector<int>{1, 2, 0}));
  row.adaptive_new = 1;
  EXPECT_NEAR(sample(row, logits).adaptive_p, 0.92918, 1e-4);
  row.uniform[0] = 0.005;
  EXPECT_EQ(sample(row, logits).token, 0) << "the draw walks the old order";
  row.adaptive_new = 0;
  row.adaptive_target = -1;
  row.uniform[0] = 0.59;
  result = sample(row, logits);
  EXPECT_EQ(result.token, 0) << "a plain draw";
  EXPECT_NEAR(result.adaptive_p, 0.6, 1e-6);
}

TEST(SamplerDraws, ASingleCandidateUsesNoRandomNumber) {
  SampleRow row = with_stage(SampleStage::top_k);
  row.top_k = 1;
  EXPECT_EQ(sample(row, {1, 2, 3}).n_uniform, 0);
  row.top_k = 2;
  EXPECT_EQ(sample(row, {1, 2, 3}).n_uniform, 1);
  row.stages[0] = SampleStage::min_p;
  row.min_p = 0.9f;
  EXPECT_EQ(sample(row, {1, 2, 3}).n_uniform, 0);
  row.stages[0] = SampleStage::top_p;
  row.top_p = 0.1f;
  EXPECT_EQ(sample(row, {1, 2, 3}).n_uniform, 0);
  row.stages[0] = SampleStage::temperature;
  row.temperature = 0;
  EXPECT_EQ(sample(row, {1, 2, 3}).n_uniform, 1) << "greedy leaves the others at -inf, they count";
  EXPECT_EQ(sample(plain_row(), std::vector<float>{1}).n_uniform, 0);
}

TEST(SamplerDraws, AForbiddenTokenIsDrawnAgainAmongTheAllowedOnes) {
  SampleRow row = plain_row();
  row.uniform[0] = 0.5;
  row.uniform[1] = 0.9;
  const std::vector<float> logits = logits_of({0.1, 0.6, 0.1, 0.2});
  const std::vector<std::uint32_t> all{0b1111}, most{0b1011}, few{0b1101};
  EXPECT_EQ(sample(row, {logits, {}, all}).token, 1);
  SampleResult result = sample(row, {logits, {}, most});
  EXPECT_EQ(result.token, 1) << "the mask forbids another token: the first draw stands";
  EXPECT_EQ(result.n_uniform, 1);
  result = sample(row, {logits, {}, few});
  EXPECT_EQ(result.token, 3) << "0.9 of {1/4, 1/4, 1/2}";
  EXPECT_EQ(result.n_uniform, 2);
  EXPECT_EQ(survivors(result), (std::vector<int>{3, 0, 2}));
  row.draw = SampleDraw::mirostat2;
  row.mirostat_mu = 10;
  row.mirostat_tau = 5;
  row.mirostat_eta = 1;
  result = sample(row, {logits, {}, few});
  EXPECT_NEAR(result.mirostat_mu, 10 - (0.736966 - 5) - (2 - 5), 1e-4) << "both draws teach";
}

}  // namespace
}  // namespace ggml
