#include "placement/assignment.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace llama {

namespace {

using Unit = AssignmentProblem::Unit;
constexpr double kForbidden = AssignmentProblem::kForbidden;
constexpr double kLeastGain = 1e-12;  // seconds: smaller gains are rounding

std::vector<std::uint64_t> usage(const AssignmentProblem& problem, const Assignment& assignment) {
  std::vector<std::uint64_t> used(problem.n_devices(), 0);
  for (std::size_t i = 0; i < assignment.size(); ++i) {
    const auto device = static_cast<std::size_t>(assignment[i]);
    used[device] += problem.units[i].bytes[device];
  }
  return used;
}

/// The assignment of least time plus price per byte, with no regard to room: exact, by going along the chain.
class PricedChain {
 public:
  PricedChain(const AssignmentProblem& problem, const std::vector<double>& prices)
      : problem_(problem), prices_(prices) {}

  Assignment solve() {
    const std::size_t n = problem_.n_devices();
    std::vector<double> best(n, kForbidden);
    std::vector<std::vector<int>> came_from;
    for (std::size_t u = 0; u < problem_.units.size(); ++u) {
      const Unit& unit = problem_.units[u];
      std::vector<int> from(n, -1);
      std::vector<double> next(n, kForbidden);
      for (std::size_t d = 0; d < n; ++d) {
        if (!unit.ordered) {
          next[d] =
              best[d] + priced(unit, free_device(unit, d)) + problem_.detour_seconds(unit, d, free_device(unit, d));
          from[d] = static_cast<int>(d);
          continue;
        }
        for (std::size_t p = 0; p <= d; ++p) {
          const double before = u == 0 ? 0.0 : best[p] + (p == d ? 0.0 : problem_.crossing_seconds);
          if (u == 0 && p != d) continue;
          if (before + priced(unit, d) < next[d]) {
            next[d] = before + priced(unit, d);
            from[d] = static_cast<int>(p);
          }
        }
      }
      best = std::move(next);
      came_from.push_back(std::move(from));
    }
    return walk_back(best, came_from);
  }

 private:
  [[nodiscard]] double priced(const Unit& unit, std::size_t device) const {
    return unit.seconds[device] + prices_[device] * static_cast<double>(unit.bytes[device]);
  }
  /// The best place of a free unit behind a body on `body`.
  [[nodiscard]] std::size_t free_device(const Unit& unit, std::size_t body) const {
    std::size_t best = body;
    const auto cost = [&](std::size_t d) { return priced(unit, d) + problem_.detour_seconds(unit, body, d); };
    for (std::size_t d = 0; d < problem_.n_devices(); ++d)
      if (cost(d) < cost(best)) best = d;
    return best;
  }
  [[nodiscard]] Assignment walk_back(const std::vector<double>& best,
                                     const std::vector<std::vector<int>>& came_from) const {
    auto device = static_cast<std::size_t>(std::min_element(best.begin(), best.end()) - best.begin());
    if (best.empty() || std::isinf(best[device])) return {};
    Assignment assignment(problem_.units.size());
    for (std::size_t u = assignment.size(); u-- > 0;) {
      const Unit& unit = problem_.units[u];
      assignment[u] = static_cast<int>(unit.ordered ? device : free_device(unit, device));
      device = static_cast<std::size_t>(came_from[u][device]);
    }
    return assignment;
  }

  const AssignmentProblem& problem_;
  const std::vector<double>& prices_;
};

/// Single moves from one assignment to another.
class Mover {
 public:
  Mover(const AssignmentProblem& problem, Assignment start)
      : problem_(problem), assignment_(std::move(start)), used_(usage(problem, assignment_)) {}

  [[nodiscard]] const Assignment& assignment() const { return assignment_; }
  [[nodiscard]] bool fits() const {
    for (std::size_t d = 0; d < used_.size(); ++d)
      if (used_[d] > problem_.capacity[d]) return false;
    return true;
  }

  /// Empties devices that hold too much, by the moves that cost the least time per byte; false: none helps.
  bool repair() {
    const std::size_t most_moves = 4 * assignment_.size() + 16;
    for (std::size_t n = 0; !fits(); ++n) {
      if (n == most_moves || !repair_one()) return false;
    }
    return true;
  }

  /// Takes moves as long as one makes the step shorter, and exchanges of two if asked to.
  void improve(bool with_exchanges) {
    const std::size_t most_rounds = 4 * assignment_.size() + 64;
    for (std::size_t n = 0; n < most_rounds; ++n)
      if (!improve_by_move() && !(with_exchanges && improve_by_exchange())) return;
  }

 private:
  /// Devices to which unit `u` can go by itself. A body takes along its order: it must stay between its neighbours.
  [[nodiscard]] bool may_go(std::size_t u, int device) const {
    const Unit& unit = problem_.units[u];
    if (device == assignment_[u] || std::isinf(unit.seconds[static_cast<std::size_t>(device)])) return false;
    if (!unit.ordered) return true;
    for (std::size_t i = u; i-- > 0;) {
      if (!problem_.units[i].ordered) continue;
      if (assignment_[i] > device) return false;
      break;
    }
    for (std::size_t i = u + 1; i < problem_.units.size(); ++i) {
      if (!problem_.units[i].ordered) continue;
      return assignment_[i] >= device;
    }
    return true;
  }

  /// Units that move with `u`: itself, and of a body with `experts` also what lies with it, if all may go there. Empty:
  /// not possible, or no more than `u` itself.
  [[nodiscard]] std::vector<std::size_t> group_of(std::size_t u, int device, bool experts) const {
    if (!may_go(u, device)) return {};
    std::vector<std::size_t> group{u};
    if (!experts) return group;
    if (!problem_.units[u].ordered) return {};
    for (std::size_t i = u + 1; i < assignment_.size() && !problem_.units[i].ordered; ++i) {
      if (assignment_[i] != assignment_[u]) continue;
      if (std::isinf(problem_.units[i].seconds[static_cast<std::size_t>(device)])) return {};
      group.push_back(i);
    }
    if (group.size() == 1) return {};
    return group;
  }

  void go(const std::vector<std::size_t>& group, int device) {
    for (const std::size_t u : group) go(u, device);
  }

  void go(std::size_t u, int device) {
    const auto from = static_cast<std::size_t>(assignment_[u]), to = static_cast<std::size_t>(device);
    used_[from] -= problem_.units[u].bytes[from];
    used_[to] += problem_.units[u].bytes[to];
    assignment_[u] = device;
  }

  [[nodiscard]] std::uint64_t excess() const {
    std::uint64_t sum = 0;
    for (std::size_t d = 0; d < used_.size(); ++d)
      if (used_[d] > problem_.capacity[d]) sum += used_[d] - problem_.capacity[d];
    return sum;
  }

  bool repair_one() {
    const std::uint64_t before = excess();
    const double time = step_seconds(problem_, assignment_);
    double least = kForbidden;
    std::vector<std::size_t> best_group;
    int best_device = -1;
    for_each_move([&](const std::vector<std::size_t>& group, int device) {
      const int home = assignment_[group.front()];
      const auto from = static_cast<std::size_t>(home);
      if (used_[from] <= problem_.capacity[from]) return false;
      go(group, device);
      const std::uint64_t after = excess();
      if (after < before) {
        const double cost = (step_seconds(problem_, assignment_) - time) / static_cast<double>(before - after);
        if (cost < least) {
          least = cost;
          best_group = group;
          best_device = device;
        }
      }
      go(group, home);
      return false;
    });
    if (best_device < 0) return false;
    go(best_group, best_device);
    return true;
  }

  /// Calls `body(group, device)` for every possible move until it says true.
  template <class Body>
  bool for_each_move(const Body& body) {
    for (std::size_t u = 0; u < assignment_.size(); ++u)
      for (int device = 0; device < static_cast<int>(problem_.n_devices()); ++device)
        for (const bool experts : {false, true}) {
          const std::vector<std::size_t> group = group_of(u, device, experts);
          if (!group.empty() && body(group, device)) return true;
        }
    return false;
  }

  bool improve_by_move() {
    const double time = step_seconds(problem_, assignment_);
    return for_each_move([&](const std::vector<std::size_t>& group, int device) {
      const int home = assignment_[group.front()];
      go(group, device);
      if (fits() && step_seconds(problem_, assignment_) < time - kLeastGain) return true;
      go(group, home);
      return false;
    });
  }

  /// One unit leaves a device, another takes its room.
  bool improve_by_exchange() {
    const double time = step_seconds(problem_, assignment_);
    const int n = static_cast<int>(problem_.n_devices());
    for (std::size_t out = 0; out < assignment_.size(); ++out) {
      const int home = assignment_[out];
      for (int away = 0; away < n; ++away) {
        if (!may_go(out, away)) continue;
        go(out, away);
        for (std::size_t in = 0; in < assignment_.size(); ++in) {
          if (in == out || !may_go(in, home)) continue;
          const int from = assignment_[in];
          go(in, home);
          if (fits() && step_seconds(problem_, assignment_) < time - kLeastGain) return true;
          go(in, from);
        }
        go(out, home);
      }
    }
    return false;
  }

  const AssignmentProblem& problem_;
  Assignment assignment_;
  std::vector<std::uint64_t> used_;
};

/// Goes through all assignments that could still be better, until a number of them has been looked at.
class BranchAndBound {
 public:
  BranchAndBound(const AssignmentProblem& problem, Assignment& best)
      : problem_(problem), best_(best), left_(problem.units.size() + 1, 0.0), used_(problem.n_devices(), 0) {
    best_seconds_ = best.empty() ? kForbidden : step_seconds(problem, best);
    for (std::size_t u = problem.units.size(); u-- > 0;)
      left_[u] = left_[u + 1] + *std::min_element(problem.units[u].seconds.begin(), problem.units[u].seconds.end());
    current_.reserve(problem.units.size());
  }

  void run() { visit(0.0, -1); }

 private:
  static constexpr int kMostVisits = 1000000;

  void visit(double seconds, int body) {
    if (++visits_ > kMostVisits) return;
    const std::size_t u = current_.size();
    if (u == problem_.units.size()) {
      if (seconds < best_seconds_ - kLeastGain) {
        best_seconds_ = seconds;
        best_ = current_;
      }
      return;
    }
    const Unit& unit = problem_.units[u];
    // Later devices first: those are the fast ones.
    for (int d = static_cast<int>(problem_.n_devices()) - 1; d >= 0; --d) {
      if (unit.ordered && d < body) break;
      const auto device = static_cast<std::size_t>(d);
      double crossings = 0.0;
      if (d != body && body >= 0)
        crossings = unit.ordered ? problem_.crossing_seconds
                                 : problem_.detour_seconds(unit, static_cast<std::size_t>(body), device);
      const double time = seconds + unit.seconds[device] + crossings;
      if (!(time + left_[u + 1] < best_seconds_ - kLeastGain)) continue;
      if (used_[device] + unit.bytes[device] > problem_.capacity[device]) continue;
      used_[device] += unit.bytes[device];
      current_.push_back(d);
      visit(time, unit.ordered ? d : body);
      current_.pop_back();
      used_[device] -= unit.bytes[device];
    }
  }

  const AssignmentProblem& problem_;
  Assignment& best_;
  double best_seconds_;
  std::vector<double> left_;  // least time of units u and later
  std::vector<std::uint64_t> used_;
  Assignment current_;
  int visits_ = 0;
};

/// Seconds per byte at which a device's room is worth nothing more to anyone.
double highest_price(const AssignmentProblem& problem) {
  double highest = 0.0;
  for (const Unit& unit : problem.units) {
    for (std::size_t d = 0; d < problem.n_devices(); ++d) {
      if (unit.bytes[d] == 0 || std::isinf(unit.seconds[d])) continue;
      for (const double other : unit.seconds)
        if (!std::isinf(other))
          highest = std::max(highest, (std::abs(other - unit.seconds[d]) + 2 * problem.crossing_seconds) /
                                          static_cast<double>(unit.bytes[d]));
    }
  }
  return highest;
}

/// Raises the price of devices that are asked to hold too much, lowers those of others, and keeps the best of what the
/// prices lead to.
Assignment solve_by_prices(const AssignmentProblem& problem) {
  constexpr int kRounds = 40;
  const double highest = highest_price(problem);
  std::vector<double> prices(problem.n_devices(), 0.0);
  Assignment best;
  double best_seconds = kForbidden;
  std::vector<Assignment> seen;
  for (int round = 0; round < kRounds; ++round) {
    const Assignment priced = PricedChain(problem, prices).solve();
    if (priced.empty()) break;
    const std::vector<std::uint64_t> used = usage(problem, priced);
    if (std::find(seen.begin(), seen.end(), priced) == seen.end()) {
      seen.push_back(priced);
      Mover mover(problem, priced);
      if (mover.repair()) {
        mover.improve(false);
        const double seconds = step_seconds(problem, mover.assignment());
        if (seconds < best_seconds) {
          best_seconds = seconds;
          best = mover.assignment();
        }
      }
    }
    if (round == 0 && fits(problem, priced)) break;
    const double step = highest / (1.0 + round);
    for (std::size_t d = 0; d < prices.size(); ++d) {
      const double capacity = static_cast<double>(std::max<std::uint64_t>(problem.capacity[d], 1));
      const double excess = std::clamp(static_cast<double>(used[d]) / capacity - 1.0, -1.0, 1.0);
      prices[d] = std::clamp(prices[d] + step * excess, 0.0, 2 * highest);
    }
  }
  return best;
}

}  // namespace

double step_seconds(const AssignmentProblem& problem, const Assignment& assignment) {
  double seconds = 0.0;
  int body = -1;
  for (std::size_t u = 0; u < assignment.size(); ++u) {
    const Unit& unit = problem.units[u];
    const int device = assignment[u];
    seconds += unit.seconds[static_cast<std::size_t>(device)];
    if (unit.ordered) {
      if (device < body) return kForbidden;
      if (body >= 0 && device != body) seconds += problem.crossing_seconds;
      body = device;
    } else {
      seconds += problem.detour_seconds(unit, static_cast<std::size_t>(body), static_cast<std::size_t>(device));
    }
  }
  return seconds;
}

bool fits(const AssignmentProblem& problem, const Assignment& assignment) {
  const std::vector<std::uint64_t> used = usage(problem, assignment);
  for (std::size_t d = 0; d < used.size(); ++d)
    if (used[d] > problem.capacity[d]) return false;
  return true;
}

Assignment solve(const AssignmentProblem& problem) {
  if (problem.units.empty()) return {};
  Assignment best = solve_by_prices(problem);
  if (!best.empty()) {
    Mover mover(problem, best);
    mover.improve(true);
    best = mover.assignment();
  }
  BranchAndBound(problem, best).run();
  return best;
}

}  // namespace llama
