#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ggml/device.h"
#include "ggml/graph.h"
#include "ggml/trace.h"

namespace ggml {

/// Home of a port whose memory is host memory that every device reads and writes in place (host_pinned).
inline constexpr DeviceId kEverywhere{-1};

/// A port with the device in whose memory it lies: an index into the scheduler's list, or kEverywhere. Memory of the
/// first device is host memory that the others copy from and to.
struct PlacedPort {
  PortBinding binding;
  DeviceId home = kEverywhere;
};

/// What crossed the link between host memory and one device.
struct LinkUse {
  std::uint64_t copies_in = 0, bytes_in = 0;          // to the device
  std::uint64_t copies_out = 0, bytes_out = 0;        // from the device
  std::uint64_t weight_copies = 0, weight_bytes = 0;  // of those to the device: weights that products there needed
};

/// What programs did since the last reset.
struct SchedulerStats {
  std::uint64_t splits = 0;    // pieces of graphs that were run
  std::uint64_t nodes = 0;     // in them
  std::uint64_t programs = 0;  // graphs
  std::vector<LinkUse> links;  // per device; [0] stays zero
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] std::uint64_t copies() const;
  SchedulerStats& operator+=(const SchedulerStats& other);
};

/// Products on a device with weights that lie in host memory: these are sent there when they are needed, and are there
/// until others need the place (op offload).
struct Streaming {
  int device = 0;                             // in the scheduler's list; 0: no weight is sent
  std::function<bool(const Weight&)> wanted;  // of weights that lie in host memory alone
  int half = 0;                               // of the two places that weights take turns in
  bool whole = true;                          // all experts are sent; false: those that the rows of a run use
  bool ahead = true;                          // sent while the device works; false: in turn with its work
};

/// A graph cut into splits: runs of nodes on one device. Made by Scheduler::cut.
class Schedule {
 public:
  virtual ~Schedule() = default;
  [[nodiscard]] virtual int n_splits() const noexcept = 0;
  /// Coarse nodes that were decomposed because their weights lie on several devices.
  [[nodiscard]] virtual int n_mixed() const noexcept = 0;
  /// Weights that are sent to where they are computed with.
  [[nodiscard]] virtual int n_streams() const noexcept = 0;
  /// A line per split: device, nodes, what is copied before and after.
  [[nodiscard]] virtual std::vector<std::string> describe() const = 0;
};

/// Runs graphs over several devices. Weights say where an op runs; ops on a state (the KV pool) run where that lies;
/// the others go where their activations are. What a device lacks runs on the first device, which is the CPU. Tensors
/// that cross are copied; weights only where a graph is cut with a Streaming. With one device a graph is passed on as
/// it is. Thread-compatible: one submitting thread.
class Scheduler {
 public:
  /// `devices`: borrowed; the first computes in host memory wherever there are others. `trace` (borrowed) takes down
  /// when what ran, by the machine's clock.
  explicit Scheduler(std::vector<Device*> devices, Trace* trace = nullptr);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Decides where each node runs. The ports' addresses do not matter yet. Throws Error(unsupported) naming the node,
  /// where no device that holds its weights can run it.
  [[nodiscard]] std::unique_ptr<Schedule> cut(const Graph& graph, std::span<const PlacedPort> ports,
                                              const CompileOptions& options, const Streaming& streaming = {});
  /// Makes the arenas large enough. True: memory moved, and Programs that were compiled before must not be used again.
  /// Throws DeviceError.
  [[nodiscard]] bool reserve(const Schedule& schedule);
  /// Pre: reserve() was called for it. All Programs of a scheduler share its memory. Once for each schedule.
  [[nodiscard]] std::unique_ptr<Program> compile(Schedule& schedule, std::span<const PlacedPort> ports,
                                                 const CompileOptions& options);
  /// As Executor::run: devices may still be busy when it returns. After an error all devices are idle.
  void run(Program& program, const StepCounts& counts, const StopToken& stop);
  /// Begins to send what weights a program will need, as far as they are known: while others run.
  void send_ahead(Program& program);
  /// Copies inside the memory of one device, behind what was run there; on the first one it is done on return.
  void move(DeviceId device, std::byte* dst, const std::byte* src, std::size_t bytes);
  void synchronise();
  /// Remembers all that was run so far under a number from 0 to kMarks - 1, and waits for what a number stands for: so
  /// that a caller with several sets of ports can fill one while devices work with another.
  static constexpr int kMarks = 2;
  void mark(int number);
  void wait_for(int number);
  /// Waits without asking what failed: after an error that is reported anyway.
  void settle() noexcept;

  [[nodiscard]] std::size_t arena_bytes() const;  // of all devices
  /// Arena and exchange memory on one device.
  [[nodiscard]] std::size_t arena_bytes(DeviceId device) const;
  /// Memory for weights on their way, on the device that computes with them.
  [[nodiscard]] std::size_t staging_bytes() const;
  [[nodiscard]] const SchedulerStats& stats() const;
  void reset_stats();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The statistics of that many steps as text, the mean of a step and a line per link; what --sched-report prints.
[[nodiscard]] std::string report(const SchedulerStats& stats, std::uint64_t n_steps, std::span<Device* const> devices);

}  // namespace ggml
