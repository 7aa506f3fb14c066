#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sched/splits.h"

namespace ggml::sched {

inline constexpr std::size_t kNowhere = SIZE_MAX;
inline constexpr std::size_t kCallersPort = SIZE_MAX - 1;  // the caller's own memory

/// A copy of one exchange's tensor between its place in host memory and that on a device.
struct Transfer {
  int exchange = 0;
  int device = 0;
};

/// Where exchanges lie, and when they are copied. Every device has an exchange area; that of device 0 is host memory
/// which the others reach.
struct ExchangePlan {
  std::vector<std::vector<std::size_t>> offsets;  // [exchange][device]: in the device's area, or one of the above
  std::vector<std::size_t> area_bytes;            // per device

  std::vector<Transfer> first_out;  // before everything: the caller's ports
  struct AtSplit {
    std::vector<Transfer> in;   // host memory to the split's device, before it runs
    std::vector<Transfer> out;  // the other way, after it
  };
  std::vector<AtSplit> at;        // per split
  std::vector<Transfer> last_in;  // after everything: results for the caller's ports
};

[[nodiscard]] ExchangePlan plan_exchange(const Splits& splits, const Graph& graph, std::size_t n_devices);

}  // namespace ggml::sched
