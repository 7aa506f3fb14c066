#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ggml/graph.h"
#include "ggml/scheduler.h"
#include "sched/assignment.h"
#include "sched/streams.h"

namespace ggml::sched {

/// Numbers of the ports that exchanged tensors have in the graphs of splits; callers' numbers are below.
inline constexpr std::int32_t kFirstExchangePort = 1 << 24;

/// A tensor that outlives its split, or crosses to another device. On each device that uses it it has a place of its
/// own; what crosses goes through a place in host memory, which is the CPU's own.
struct Exchange {
  TensorId tensor;           // in the assigned graph; not a view
  int producer = -1;         // split; -1: it is there from the start, as a port
  int home = 0;              // device that makes it
  PortId port;               // the caller's, where it has one
  int port_home = -1;        // device in whose memory the caller's port lies
  DeviceSet devices = 0;     // that make or read it
  std::vector<int> readers;  // splits, rising
  int host_reader = -1;      // split before which the host reads it
  [[nodiscard]] bool crosses() const { return (devices & (devices - 1)) != 0; }
};

/// A run of nodes on one device, as a graph of its own.
struct Split {
  int device = 0;
  Graph graph;
  std::vector<int> made;             // exchanges whose tensors it makes
  bool writes_shared = false;        // results go to memory that every device reaches
  bool reads_shared = false;         // reads such results of another split
  std::vector<std::size_t> streams;  // that its nodes read
};

struct Splits {
  std::vector<Split> all;
  std::vector<Exchange> exchanges;
};

/// Cuts an assigned graph. Nodes may move as far as their inputs allow, so that splits become long. `late`: streams of
/// which the host looks at what rows use before it sends them: a split begins in front of what reads them.
[[nodiscard]] Splits cut(const Assigned& assigned, std::span<const PlacedPort> ports, const Streams& streams = {},
                         bool late = false);

}  // namespace ggml::sched
