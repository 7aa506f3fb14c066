#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cpu/test_bed.h"

/// Reduced (-ser) and group-limited (-ger) choice of experts against the definition, written down once more here in
/// double precision: no golden has them.
namespace ggml::cpu::test {
namespace {

constexpr int kEmbd = 64, kExperts = 24, kUsed = 6, kRows = 40;

struct Case {
  const char* name;
  Gating gating;
  bool bias, normalise;
  int n_groups, n_groups_used, min_used;
  float keep_ratio;
};

struct Chosen {
  std::vector<int> ids;
  std::vector<double> weights;
  double margin = 1.0;  // by which the closest decision was made
};

std::vector<double> scores_of(const Case& c, const std::vector<double>& logits) {
  std::vector<double> scores = logits;
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const double l : logits) sum += std::exp(l - most);
  for (double& s : scores) {
    if (c.gating == Gating::softmax) s = std::exp(s - most) / sum;
    if (c.gating == Gating::sigmoid) s = 1.0 / (1.0 + std::exp(-s));
  }
  return scores;
}

/// Experts of the best groups; a group is as good as its two best experts together.
std::vector<int> candidates(const Case& c, const std::vector<double>& choice, double& margin) {
  std::vector<int> all(kExperts);
  std::iota(all.begin(), all.end(), 0);
  if (c.n_groups == 1) return all;
  const int size = kExperts / c.n_groups;
  std::vector<std::pair<double, int>> groups;
  for (int g = 0; g < c.n_groups; ++g) {
    std::vector<double> of(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(of.rbegin(), of.rend());
    groups.emplace_back(-(of[0] + of[1]), g);
  }
  std::sort(groups.begin(), groups.end());
  const auto used = static_cast<std::size_t>(c.n_groups_used);
  margin = std::min(margin, groups[used].first - groups[used - 1].first);
  std::vector<int> ids;
  for (const int i : all) {
    const auto in = [&](const auto& group) { return group.second == i / size; };
    if (std::any_of(groups.begin(), groups.begin() + c.n_groups_used, in)) ids.push_back(i);
  }
  return ids;
}

Chosen choose(const Case& c, const std::vector<double>& logits, const std::vector<float>& bias) {
  const std::vector<double> scores = scores_of(c, logits);
  std::vector<double> choice = scores;
  for (std::size_t i = 0; c.bias && i < choice.size(); ++i) choice[i] += static_cast<double>(bias[i]);
  const auto at = [](const std::vector<double>& of, int i) { return of[static_cast<std::size_t>(i)]; };
  Chosen result;
  std::vector<int> ids = candidates(c, choice, result.margin);
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return at(choice, a) > at(choice, b); });
  for (std::size_t i = 0; i < kUsed; ++i)
    result.margin = std::min(result.margin, at(choice, ids[i]) - at(choice, ids[i + 1]));
  ids.resize(kUsed);
  if (c.keep_ratio > 0.0f) {
    const double least = static_cast<double>(c.keep_ratio) * at(choice, ids[0]);
    for (std::size_t rank = static_cast<std::size_t>(c.min_used); rank < kUsed; ++rank) {
      result.margin = std::min(result.margin, std::fabs(at(choice, ids[rank]) - least));
      if (at(choice, ids[rank]) < least) ids[rank] = -1;
    }
  }
  double sum = 0.0;
  for (const int id : ids) {
    const bool softmax = c.gating == Gating::softmax_selected;
    const double value = id < 0 ? 0.0 : softmax ? std::exp(at(scores, id) - at(scores, ids[0])) : at(scores, id);
    result.weights.push_back(value);
    sum += value;
  }
  if (c.normalise || c.gating == Gating::softmax_selected)
    for (double& w : result.weights) w /= sum;
  result.ids = std::move(ids);
  return result;
}

class RouteRules : public testing::TestWithParam<Case> {};

TEST_P(RouteRules, AreThoseOfTheDefinition) {
  const Case& c = GetParam();
  TestBed bed(kRows, 1, 11);
  const std::vector<float> x = bed.normal(kEmbd * kRows, 1.0f), w = bed.normal(kEmbd * kExperts, 0.2f);
  const std::vector<float> bias = bed.normal(kExperts, 0.1f);
  const TensorId in = bed.input("x", Shape(kEmbd, kRows), Rows::tokens, x);
  std::vector<Slot> slots(c.bias ? 2 : 1);
  slots[0].weight = bed.graph().weight(bed.weight_of(DType::f32, Shape(kEmbd, kExperts), w));
  if (c.bias) slots[1].weight = bed.graph().weight(bed.weight_of(DType::f32, Shape(kExperts), bias));
  const MoeRouteParams p{.n_expert = kExperts,
                         .n_used = kUsed,
                         .gating = c.gating,
                         .has_selection_bias = c.bias,
                         .normalise = c.normalise,
                         .n_groups = c.n_groups,
                         .n_groups_used = c.n_groups_used,
                         .min_used = c.min_used,
                         .keep_ratio = c.keep_ratio};
  const GraphBuilder::Route route = bed.graph().moe_route(in, slots, p, "route");
  bed.output(route.ids, "ids");
  bed.output(route.weights, "weights");
  const StepCounts counts{kRows, 0, 1};
  std::vector<Outcome> outcomes{bed.run_reference(counts)};
  for (const std::string& isa : isa_names())
    for (const bool primitives : {false, true})
      outcomes.push_back(bed.run_cpu(counts, {.isa = isa, .n_threads = 2, .decompose_all = primitives}));

  int n_checked = 0, n_dropped = 0;
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::vector<double> logits(kExperts, 0.0);
    for (std::int64_t e = 0; e < kExperts; ++e)
      for (std::int64_t i = 0; i < kEmbd; ++i)
        logits[static_cast<std::size_t>(e)] += static_cast<double>(w[static_cast<std::size_t>(e * kEmbd + i)]) *
                                               static_cast<double>(x[static_cast<std::size_t>(row * kEmbd + i)]);
    const Chosen want = choose(c, logits, bias);
    if (want.margin < 1e-5) continue;  // f32 may decide otherwise
    ++n_checked;
    n_dropped += static_cast<int>(std::count(want.ids.begin(), want.ids.end(), -1));
    for (const Outcome& got : outcomes)
      for (std::size_t i = 0; i < kUsed; ++i) {
        const std::size_t at = static_cast<std::size_t>(row) * kUsed + i;
        EXPECT_EQ(got.words.at("ids")[at], want.ids[i]) << "row " << row << " rank " << i;
        EXPECT_NEAR(got.values.at("weights")[at], want.weights[i], 1e-5) << "row " << row << " rank " << i;
      }
  }
  EXPECT_GT(n_checked, kRows / 2);
  EXPECT_EQ(n_dropped > 0, c.keep_ratio > 0.0f);
}

INSTANTIATE_TEST_SUITE_P(Cases, RouteRules,
                         testing::Values(Case{"ser_softmax", Gating::softmax, false, true, 1, 1, 2, 0.4f},
                                         Case{"ser_softmax_as_it_is", Gating::softmax, false, false, 1, 1, 0, 0.4f},
                                         Case{"ser_sigmoid_bias", Gating::sigmoid, true, true, 1, 1, 3, 0.8f},
                                         Case{"ser_exactly_four", Gating::softmax, false, true, 1, 1, 4, 1.0f},
                                         Case{"ger_softmax", Gating::softmax, false, true, 6, 2, 0, 0.0f},
                                         Case{"ger_sigmoid_bias", Gating::sigmoid, true, true, 4, 2, 0, 0.0f},
                                         Case{"both", Gating::sigmoid, true, true, 4, 2, 2, 0.8f}),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ggml::cpu::test
