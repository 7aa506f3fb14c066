#include "placement/assignment.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "test_support.h"

namespace llama {
namespace {

/// The least step time of all assignments that fit, by trying each.
double least_seconds(const AssignmentProblem& problem) {
  Assignment assignment(problem.units.size(), 0);
  double least = AssignmentProblem::kForbidden;
  for (;;) {
    if (fits(problem, assignment)) least = std::min(least, step_seconds(problem, assignment));
    std::size_t u = 0;
    while (u < assignment.size() && ++assignment[u] == static_cast<int>(problem.n_devices())) assignment[u++] = 0;
    if (u == assignment.size()) return least;
  }
}

AssignmentProblem random_problem(std::mt19937& random, std::size_t n_units, std::size_t n_devices) {
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
  AssignmentProblem problem;
  std::vector<double> speed = {uniform(20e9, 200e9)};
  for (std::size_t d = 1; d < n_devices; ++d) speed.push_back(uniform(300e9, 3000e9));
  problem.crossing_seconds = uniform(0, 40e-6);
  double total = 0;
  for (std::size_t u = 0; u < n_units; ++u) {
    AssignmentProblem::Unit unit;
    unit.ordered = u == 0 || random() % 2 == 0;
    const double bytes = uniform(1e6, 500e6), read = bytes * (unit.ordered ? 1.0 : uniform(0.02, 0.3));
    total += bytes;
    for (std::size_t d = 0; d < n_devices; ++d) {
      unit.bytes.push_back(static_cast<std::uint64_t>(bytes));
      const bool forbidden = random() % 20 == 0;
      unit.seconds.push_back(forbidden ? AssignmentProblem::kForbidden : read / speed[d]);
    }
    problem.units.push_back(std::move(unit));
  }
  problem.capacity.push_back(static_cast<std::uint64_t>(total * (random() % 4 == 0 ? uniform(0.2, 0.9) : 2.0)));
  for (std::size_t d = 1; d < n_devices; ++d)
    problem.capacity.push_back(static_cast<std::uint64_t>(total * uniform(0.0, 0.8)));
  return problem;
}

TEST(Assignment, StepIsWithinTwoPercentOfTheBestOfAllInAThousandRandomCases) {
  std::mt19937 random(17);
  int n_possible = 0;
  const int n_rounds = tandem::rounds(1000);
  for (int round = 0; round < n_rounds; ++round) {
    const std::size_t n_devices = 2 + random() % 2;
    // Trying all takes devices ^ units; the larger cases are fewer.
    const std::size_t most = round % 50 == 0 ? 12 : 9;
    const AssignmentProblem problem = random_problem(random, 1 + random() % most, n_devices);
    const double least = least_seconds(problem);
    const Assignment found = solve(problem);
    if (std::isinf(least)) {
      EXPECT_TRUE(found.empty());
      continue;
    }
    ++n_possible;
    ASSERT_FALSE(found.empty());
    EXPECT_TRUE(fits(problem, found));
    EXPECT_LE(step_seconds(problem, found), 1.02 * least);
  }
  EXPECT_GT(10 * n_possible, 6 * n_rounds);
}

/// A model of `n_layer` equal layers of body and experts, and a head.
AssignmentProblem model_problem(int n_layer, std::size_t n_devices) {
  AssignmentProblem problem;
  problem.crossing_seconds = 10e-6;
  const auto add = [&](bool ordered, double bytes, double read) {
    AssignmentProblem::Unit unit;
    unit.ordered = ordered;
    for (std::size_t d = 0; d < n_devices; ++d) {
      unit.bytes.push_back(static_cast<std::uint64_t>(bytes));
      unit.seconds.push_back(read / (d == 0 ? 60e9 : 1e12));
    }
    problem.units.push_back(std::move(unit));
  };
  for (int i = 0; i < n_layer; ++i) {
    add(true, 200e6, 200e6);
    add(false, 6e9, 190e6);
  }
  add(true, 700e6, 700e6);
  problem.capacity.assign(n_devices, static_cast<std::uint64_t>(23e9));
  problem.capacity[0] = UINT64_MAX;
  return problem;
}

TEST(Assignment, BodiesComeBeforeExpertsWhereNotAllFits) {
  const AssignmentProblem problem = model_problem(61, 2);
  const Assignment found = solve(problem);
  ASSERT_FALSE(found.empty());
  int experts = 0;
  for (std::size_t u = 0; u < found.size(); ++u) {
    if (problem.units[u].ordered)
      EXPECT_EQ(found[u], 1) << u;
    else
      experts += found[u];
  }
  EXPECT_EQ(experts, 1);  // 61 * 0.2 + 0.7 = 12.9 GB of bodies leave room for one layer's experts
}

TEST(Assignment, BigProblemsAreSolvedInATimeThatAStartCanBear) {
  const auto start = std::chrono::steady_clock::now();
  const AssignmentProblem problem = model_problem(94, 9);
  const Assignment found = solve(problem);
  EXPECT_TRUE(fits(problem, found));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(solve(problem), found);
}

TEST(Assignment, ExpertsStayWithTheirLayersWhereTwoCardsHoldAll) {
  AssignmentProblem problem = model_problem(12, 3);
  problem.capacity = {UINT64_MAX, static_cast<std::uint64_t>(50e9), static_cast<std::uint64_t>(30e9)};
  const Assignment found = solve(problem);
  ASSERT_FALSE(found.empty());
  for (std::size_t u = 0; u + 1 < found.size(); u += 2) EXPECT_EQ(found[u], found[u + 1]) << u;
}

TEST(Assignment, NothingIsFoundWhereNothingFits) {
  AssignmentProblem problem = model_problem(4, 2);
  problem.capacity.assign(2, 1000);
  EXPECT_TRUE(solve(problem).empty());
}

}  // namespace
}  // namespace llama
