#include "divergence.h"

#include <gtest/gtest.h>

#include <cmath>

namespace perplexity {
namespace {

std::vector<float> logs(std::initializer_list<double> probabilities) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

TEST(Divergence, OfTwoDistributionsIsThatOfTheTextbook) {
  const PositionDivergence d = compare(logs({0.2, 0.5, 0.3}), logs({0.5, 0.25, 0.25}), 0);
  const double expected = 0.5 * std::log(0.5 / 0.2) + 0.25 * std::log(0.25 / 0.5) + 0.25 * std::log(0.25 / 0.3);
  EXPECT_NEAR(d.kl, expected, 1e-6);
  EXPECT_NEAR(d.log_p, std::log(0.2), 1e-6);
  EXPECT_NEAR(d.log_p_base, std::log(0.5), 1e-6);
  EXPECT_NEAR(d.dp, -0.3, 1e-6);
  EXPECT_FALSE(d.same_top);
}

TEST(Divergence, OfEqualDistributionsIsZero) {
  const PositionDivergence d = compare(logs({0.2, 0.5, 0.3}), logs({0.2, 0.5, 0.3}), 2);
  EXPECT_NEAR(d.kl, 0, 1e-7);
  EXPECT_NEAR(d.dp, 0, 1e-7);
  EXPECT_TRUE(d.same_top);
}

TEST(Divergence, LeavesOutWhatTheBaseHoldsImpossible) {
  std::vector<float> base = logs({0.5, 0.5});
  base.push_back(-16.5F);
  EXPECT_NEAR(compare({{0, 0, 10}}, base, 0).kl, 0.5 * 2 * (std::log(0.5) + 10 + std::log1p(2 * std::exp(-10.0))),
              1e-3);
}

TEST(Divergence, PercentilesAreInterpolated) {
  const std::vector<float> sorted = {0, 10, 20, 30};
  EXPECT_EQ(percentile(sorted, 0), 0);
  EXPECT_EQ(percentile(sorted, 1), 30);
  EXPECT_EQ(percentile(sorted, 0.5), 15);
  EXPECT_FLOAT_EQ(percentile(sorted, 0.9), 27);
  EXPECT_EQ(percentile(std::vector<float>{7}, 0.3), 7);
}

TEST(Divergence, StatisticsAreMeansWithTheirErrors) {
  DivergenceStats stats;
  for (int i = 0; i < 100; ++i) {
    PositionDivergence p;
    p.log_p = i % 2 == 0 ? -1 : -3;
    p.log_p_base = -1;
    p.kl = 0.5;
    p.dp = 0.1;
    p.same_top = i % 4 != 0;
    stats.add(p);
  }
  EXPECT_NEAR(stats.perplexity().value, std::exp(2), 1e-9);
  EXPECT_NEAR(stats.perplexity().error, std::exp(2) / std::sqrt(99), 1e-9);
  EXPECT_NEAR(stats.base_perplexity().value, std::exp(1), 1e-9);
  EXPECT_NEAR(stats.log_ratio().value, 1, 1e-9);
  EXPECT_NEAR(stats.log_ratio().error, 1 / std::sqrt(99), 1e-9);
  EXPECT_NEAR(stats.kl().value, 0.5, 1e-9);
  EXPECT_NEAR(stats.dp_rms().value, 0.1, 1e-9);
  EXPECT_NEAR(stats.same_top().value, 0.75, 1e-9);
  EXPECT_NEAR(stats.same_top().error, std::sqrt(0.75 * 0.25 / 99), 1e-9);
}

TEST(Divergence, ReportsHaveTheLabelsThatScriptsLookFor) {
  DivergenceStats stats;
  for (int i = 0; i < 200; ++i) {
    PositionDivergence p;
    p.log_p = -1 - i / 200.0;
    p.log_p_base = -1;
    p.kl = i / 200.0;
    p.dp = (i - 100) / 1000.0;
    p.same_top = true;
    stats.add(p);
  }
  const std::string report = stats.report();
  for (const char* label : {"====== Perplexity statistics ======\n",
                            "Mean PPL(Q)                   : ",
                            "Mean PPL(base)                : ",
                            "Cor(ln(PPL(Q)), ln(PPL(base))): ",
                            "Mean ln(PPL(Q)/PPL(base))     : ",
                            "Mean PPL(Q)/PPL(base)         : ",
                            "Mean PPL(Q)-PPL(base)         : ",
                            "\n====== KL divergence statistics ======\n",
                            "Mean    KLD: ",
                            "Maximum KLD: ",
                            "99.9%   KLD: ",
                            "Median  KLD: ",
                            " 5.0%   KLD: ",
                            " 0.1%   KLD: ",
                            "Minimum KLD: ",
                            "\n====== Token probability statistics ======\n",
                            "Mean    Δp: ",
                            "Maximum Δp: ",
                            "75.0%   Δp: ",
                            "Median  Δp: ",
                            "25.0%   Δp: ",
                            " 1.0%   Δp: ",
                            "Minimum Δp: ",
                            "RMS Δp    : ",
                            "Same top p: 100.000 ±"})
    EXPECT_NE(report.find(label), std::string::npos) << label << "\n" << report;
  EXPECT_TRUE(stats.table_row(3).starts_with("   3       ")) << stats.table_row(3);
  EXPECT_TRUE(DivergenceStats::table_head().starts_with("chunk             PPL "));
}

}  // namespace
}  // namespace perplexity
