#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ggml/device.h"
#include "ggml/graph.h"
#include "ggml/scheduler.h"

namespace ggml::sched {

/// A set of devices: bit i is the i-th of the list.
using DeviceSet = std::uint32_t;
inline constexpr int kMaxDevices = 32;

/// The devices of a scheduler as the assignment asks them.
struct Machine {
  std::span<Device* const> devices;
  std::span<Executor* const> executors;

  [[nodiscard]] DeviceSet all() const {
    return devices.size() >= kMaxDevices ? ~DeviceSet{0} : (DeviceSet{1} << devices.size()) - 1;
  }
};

/// A graph whose nodes each have one device.
struct Assigned {
  Graph graph;              // coarse nodes that no single device can do are decomposed
  std::vector<int> device;  // per node
  int n_mixed = 0;          // coarse nodes decomposed because their weights lie on several devices
};

/// Decides where each node runs. Throws Error(unsupported).
[[nodiscard]] Assigned assign(const Graph& graph, std::span<const PlacedPort> ports, const Machine& machine);

/// Where a port lies; kEverywhere for one that is not in the list.
[[nodiscard]] DeviceId home_of(PortId port, std::span<const PlacedPort> ports);

}  // namespace ggml::sched
