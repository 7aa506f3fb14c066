#include "common/score/log_softmax.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <vector>

namespace common {
namespace {

TEST(LogSoftmax, GivesTheLogarithmOfTheProbability) {
  const std::vector<float> logits = {std::log(1.0F), std::log(2.0F), std::log(5.0F)};
  EXPECT_NEAR(score_token(logits, 0).log_p, std::log(1.0 / 8), 1e-6);
  EXPECT_NEAR(score_token(logits, 2).log_p, std::log(5.0 / 8), 1e-6);
  EXPECT_EQ(score_token(logits, 0).top, 2);
}

TEST(LogSoftmax, SurvivesLogitsThatOverflowAnExponential) {
  const std::vector<float> logits = {1000, 900, -1e30F};
  EXPECT_NEAR(score_token(logits, 0).log_p, 0, 1e-6);
  EXPECT_NEAR(score_token(logits, 1).log_p, -100, 1e-6);
  EXPECT_LT(score_token(logits, 2).log_p, -1e29);
}

TEST(LogSoftmax, EqualsGoToTheFirst) {
  EXPECT_EQ(score_token(std::vector<float>{1, 3, 3}, 0).top, 1);
}

TEST(LogSoftmax, EveryRowIsVisitedOnce) {
  for (const int threads : {1, 2, 7}) {
    std::vector<std::atomic<int>> seen(100);
    for_rows(threads, 100, [&](int i) { ++seen[static_cast<std::size_t>(i)]; });
    for (const auto& n : seen) EXPECT_EQ(n, 1);
  }
  for_rows(4, 0, [](int) { FAIL(); });
}

TEST(Likelihood, PerplexityOfEqualChoicesIsTheirNumber) {
  Likelihood likelihood;
  for (int i = 0; i < 5; ++i) likelihood.add(std::log(0.125));
  EXPECT_NEAR(likelihood.perplexity(), 8, 1e-12);
  EXPECT_EQ(likelihood.count, 5);
}

TEST(Likelihood, ErrorIsThatOfTheMean) {
  Likelihood likelihood;
  likelihood.add(-1);
  likelihood.add(-3);
  EXPECT_DOUBLE_EQ(likelihood.mean(), 2);
  EXPECT_DOUBLE_EQ(likelihood.mean_error(), 1);
  EXPECT_DOUBLE_EQ(likelihood.perplexity_error(), std::exp(2.0));
}

}  // namespace
}  // namespace common
