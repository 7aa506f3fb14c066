#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace llama {

/// Which unit of a model goes to which device, so that a step takes the least time and every device holds what it gets:
/// a knapsack per device with costs along the chain of layers. Knows bytes and seconds only.
struct AssignmentProblem {
  static constexpr double kForbidden = std::numeric_limits<double>::infinity();

  /// What is placed as a whole. Ordered units (the body of a layer, the head) lie on devices whose number never falls
  /// along the chain, as -ngl and -ts can say it; free ones (the experts of the layer before them) may lie anywhere.
  struct Unit {
    bool ordered = true;
    std::vector<std::uint64_t> bytes;  // per device
    std::vector<double> seconds;       // per device, of one step; kForbidden: not there
    /// Of a free unit, per device of its body: the activations of that layer leave the device anyhow, so that this unit
    /// costs no crossings elsewhere. Empty: they do not.
    std::vector<bool> leaves_anyhow;
  };
  std::vector<Unit> units;              // the first one is ordered
  std::vector<std::uint64_t> capacity;  // per device
  double crossing_seconds = 0;          // of activations from one device to another

  [[nodiscard]] std::size_t n_devices() const { return capacity.size(); }
  /// What a free unit on `device` costs beside its own time when the body of its layer is on `body`.
  [[nodiscard]] double detour_seconds(const Unit& unit, std::size_t body, std::size_t device) const {
    const bool is_free = body == device || (!unit.leaves_anyhow.empty() && unit.leaves_anyhow[body]);
    return is_free ? 0.0 : 2 * crossing_seconds;
  }
};

/// Device of each unit; empty: nothing fits.
using Assignment = std::vector<int>;

/// Time of one step; kForbidden when a unit is where it may not be or the order is broken. Room is not looked at.
[[nodiscard]] double step_seconds(const AssignmentProblem& problem, const Assignment& assignment);
[[nodiscard]] bool fits(const AssignmentProblem& problem, const Assignment& assignment);

/// An assignment that fits with nearly the least step time; the least for small problems. Equal problems give equal
/// assignments.
[[nodiscard]] Assignment solve(const AssignmentProblem& problem);

}  // namespace llama
