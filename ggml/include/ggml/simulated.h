#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ggml/device.h"
#include "ggml/trace.h"

namespace ggml {

/// A device that has a card's name and size and computes on the CPU (--sim-device).
struct SimulatedDeviceSpec {
  std::string name;                // "CUDA0"
  std::uint64_t memory_bytes = 0;  // what it pretends to have
  double bandwidth = 1e12;         // bytes/s of its memory, for the cost model and the virtual clock
  double link = 25e9;              // bytes/s of its link to the host
  double arithmetic = 2e14;        // operations/s
  std::vector<std::string> lacks;  // names of ops and types that it cannot do: their decompositions run
  std::uint64_t seed = 0;          // of the delays before its work; 0: none
};

/// The time that work on simulated devices would have taken, from the cost model, and what was done when. One for all
/// devices of a machine. Thread-safe.
class SimulatedTime {
 public:
  using Span = TraceSpan;

  SimulatedTime() : SimulatedTime(std::make_shared<Trace>()) {}
  /// Takes down what was done in a trace that somebody else looks after.
  explicit SimulatedTime(std::shared_ptr<Trace> trace) : trace_(std::move(trace)) {}

  /// How far the host is: work that it submits begins later, and it gets on when it waits or computes.
  [[nodiscard]] double host() const;
  void host_reaches(double seconds);
  void add(Span span);
  /// Everything so far, by lane in order; clears it.
  [[nodiscard]] std::vector<Span> take_trace();

 private:
  mutable std::mutex mutex_;
  double host_ = 0;
  std::shared_ptr<Trace> trace_;
};

/// A device with memory of its own (kind `device`) that faults whenever anyone else touches it, a thread and a queue,
/// and the CPU's kernels on one thread. Other kinds of memory are plain host memory. `id` is what placements of weights
/// in its memory are marked with. Throws Error(invalid_argument) for a spec that makes no sense.
[[nodiscard]] std::unique_ptr<Device> make_simulated_device(const SimulatedDeviceSpec& spec, DeviceId id,
                                                            std::shared_ptr<SimulatedTime> time = nullptr);

/// The CPU device `cpu` whose work takes its modelled time in `time`. Of `spec` the bandwidth and the arithmetic count.
[[nodiscard]] std::unique_ptr<Device> make_timed_host(std::unique_ptr<Device> cpu, const SimulatedDeviceSpec& spec,
                                                      std::shared_ptr<SimulatedTime> time);

}  // namespace ggml
