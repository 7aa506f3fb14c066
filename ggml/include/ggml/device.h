#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ggml/graph.h"

namespace ggml {

/// Real sizes of a step; Programs read them when they run, so one Program serves every count up to its buckets.
struct StepCounts {
  int n_tokens = 0;
  int n_outputs = 0;
  int n_spans = 0;
};

/// The memory behind a graph's ports. Addresses are fixed at compile time; contents change from step to step.
struct PortBinding {
  PortId port;
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Sees observed tensors and tapped slots after the node that made them has run, on the submitting thread's device
/// thread.
class Observer {
 public:
  virtual ~Observer() = default;
  /// `rows` are the real rows along the last axis; data is contiguous host memory valid during the call.
  virtual void on_tensor(const Tensor& tensor, const void* data, std::int64_t rows) = 0;
  /// The f32 input rows [K, n] of a projection, with the expert or head each row went to (empty for dense weights).
  virtual void on_slot(const Weight& weight, std::span<const float> rows, std::span<const std::int32_t> experts) = 0;
};

/// A block of device memory. Owned by whoever asked for it.
class Buffer {
 public:
  virtual ~Buffer() = default;
  [[nodiscard]] virtual std::byte* data() noexcept = 0;
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
  [[nodiscard]] virtual BufferKind kind() const noexcept = 0;
};

/// A part of a weight in host memory, as it is in the file: rows [begin, end) of all its rows.
struct WeightRows {
  DType type = DType::f32;
  Shape shape;                     // of the whole weight
  const std::byte* src = nullptr;  // its first byte
  std::int64_t begin = 0, end = 0;

  /// Of the part, in the file's form.
  [[nodiscard]] std::size_t offset() const {
    return tensor_bytes(type, shape) / static_cast<std::size_t>(shape.rows()) * static_cast<std::size_t>(begin);
  }
  [[nodiscard]] std::size_t bytes() const {
    const WeightRows rest{type, shape, src, end, end};
    return (end == shape.rows() ? tensor_bytes(type, shape) : rest.offset()) - offset();
  }
};

/// Host memory that a device reads in place for as long as this lives.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
};

/// Marks the end of submitted work.
class Event {
 public:
  virtual ~Event() = default;
  /// Blocks until the work is done; throws what the work threw (DeviceError, Error(cancelled)).
  virtual void wait() = 0;
  [[nodiscard]] virtual bool ready() = 0;
};

/// Asked between nodes of long work; true ends the step with Error(cancelled).
struct StopToken {
  bool (*stop)(void*) = nullptr;
  void* user = nullptr;
};

/// A compiled graph: kernels chosen, arguments bound. Belongs to the Executor that made it.
class Program {
 public:
  virtual ~Program() = default;
  [[nodiscard]] virtual const MemoryPlan& memory() const noexcept = 0;
  /// Per node: its op, and "native" or "decomposed" with the reason; for logs and tests.
  [[nodiscard]] virtual std::vector<std::string> describe() const = 0;
  /// Whether run() returns though the device is held up behind a HandOver::take().
  [[nodiscard]] virtual bool runs_ahead() const noexcept { return false; }
};

/// A copy between memory of a device and host memory that the device reaches.
struct HostCopy {
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;
  std::size_t bytes = 0;
};

/// Passes small results between a device and the thread that feeds it. The device can be given work before that thread
/// has made what the work needs, and neither waits for the other's driver. Thread-compatible.
class HandOver {
 public:
  using Ticket = std::uint32_t;
  virtual ~HandOver() = default;
  /// Behind what was run on the device: copies to host memory, then word to await().
  virtual Ticket give(std::span<const HostCopy> copies) = 0;
  /// Waits until the copies are there. Throws what the device threw.
  virtual void await(Ticket ticket) = 0;
  /// Behind what was run on the device: it waits for open(), then copies to its memory. What is run before that must
  /// not wait for the device.
  virtual void take(std::span<const HostCopy> copies) = 0;
  /// The host has made what all take()s so far copy.
  virtual void open() noexcept = 0;
};

struct CompileOptions {
  Observer* observer = nullptr;
  bool decompose_all = false;  // run primitives only (tests)
};

/// The event of a device whose work is done when the call returns.
class DoneEvent final : public Event {
 public:
  void wait() override {}
  [[nodiscard]] bool ready() override { return true; }
};

/// Runs graphs on one device. One submitting thread at a time.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Whether the device has a form of its own for the node; what it lacks is decomposed, and a primitive it lacks must
  /// run elsewhere.
  [[nodiscard]] virtual bool runs(const Graph& graph, const Node& node) const { return true; }
  /// Bytes of arena that `graph` needs.
  [[nodiscard]] virtual std::size_t arena_bytes(const Graph& graph, const CompileOptions& options) = 0;
  /// Chooses kernels and binds addresses. All Programs that share an arena must not run at the same time. Throws Error
  /// when a port is unbound or too small.
  virtual std::unique_ptr<Program> compile(const Graph& graph, std::span<const PortBinding> ports, Buffer& arena,
                                           const CompileOptions& options) = 0;
  virtual std::unique_ptr<Event> submit(Program& program, const StepCounts& counts, const StopToken& stop) = 0;
  /// submit without an Event (the path of a token allocates nothing). Programs of an executor run in the order of the
  /// calls; a device that works on its own may still be busy when the call returns. Its ports may be touched, and the
  /// same program run again, after synchronise().
  virtual void run(Program& program, const StepCounts& counts, const StopToken& stop) = 0;
  /// Waits for everything that was run; throws what it threw.
  virtual void synchronise() {}

  // Ordering with other devices. The defaults are those of a device whose work is done when the call returns.
  /// An event of this executor; ready until it is recorded. Must not die before what it was recorded behind is done.
  virtual std::unique_ptr<Event> make_event() { return std::make_unique<DoneEvent>(); }
  /// `event`, of this executor, is ready when all that was run before is done.
  virtual void record(Event& event) {}
  /// What is run later begins when `event`, of any executor, is ready.
  virtual void wait_for(Event& event) { event.wait(); }
  /// Null: the device has no such way.
  virtual std::unique_ptr<HandOver> make_hand_over() { return nullptr; }
  /// Copies between memory of this device and host memory, behind what was run before. Both stay as they are until
  /// then.
  virtual void copy(std::byte* dst, const std::byte* src, std::size_t bytes) { std::memcpy(dst, src, bytes); }
  /// Brings a part of a weight into the form of Device::load_weight, behind what was run before. `dst`: where the whole
  /// weight lies in this device's memory; `landing`: Device::landing_bytes() of it, which only this executor uses.
  virtual void load_rows(const WeightRows& rows, std::byte* dst, std::byte* landing) {
    copy(dst + rows.offset(), rows.src + rows.offset(), rows.bytes());
  }
  /// The same inside this device's memory.
  virtual void move(std::byte* dst, const std::byte* src, std::size_t bytes) { copy(dst, src, bytes); }
};

struct DeviceMemory {
  std::uint64_t total = 0, free = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;         // "CPU", "CUDA0"
  [[nodiscard]] virtual const std::string& description() const noexcept = 0;  // the processor's own name
  [[nodiscard]] virtual DeviceMemory memory() const = 0;
  [[nodiscard]] virtual DeviceId id() const noexcept { return DeviceId(0); }
  /// Gives the device another number, by which placements name it; before anything is allocated on it.
  virtual void renumber(DeviceId id) {}
  /// What else a user may want to know of it in one line ("compute capability 9.0, VMM: yes"); may be empty.
  [[nodiscard]] virtual std::string details() const { return {}; }
  /// Throws DeviceError naming device, bytes wanted and free, and what to change.
  virtual std::unique_ptr<Buffer> allocate(std::size_t bytes, BufferKind kind) = 0;
  virtual std::unique_ptr<Executor> make_executor() = 0;
  /// An executor for copies alone, which runs beside the device's other executors.
  virtual std::unique_ptr<Executor> make_copier() { return make_executor(); }
  /// Whether weights of this type may come from host memory step by step to be computed with (Executor::load_rows).
  [[nodiscard]] virtual bool streams_weights(DType type) const noexcept { return false; }
  /// Memory of this device that such weights pass through.
  [[nodiscard]] virtual std::size_t landing_bytes() const noexcept { return 0; }
  /// Lets the device copy from host memory in place. Null: it does so anyway, or the system refuses, and copies are
  /// slower; then a warning says so. The memory must outlive the result.
  [[nodiscard]] virtual std::unique_ptr<PinnedMemory> pin(std::span<const std::byte> memory) { return nullptr; }

  /// Whether it can compute with weights of this type, and has a form of its own for this op.
  [[nodiscard]] virtual bool supports(DType type) const noexcept { return true; }
  [[nodiscard]] virtual bool supports(Op op) const noexcept { return true; }
  /// Whether it can append to and attend over keys or values kept in this type.
  [[nodiscard]] virtual bool supports_cache(DType type) const noexcept { return true; }

  /// Bytes of this device's memory that a weight takes in the form the device computes with; 0: it is read in place.
  [[nodiscard]] virtual std::size_t weight_bytes(DType type, const Shape& shape) const noexcept { return 0; }
  /// Writes a weight from host memory (`src`: tensor_bytes(), as in the file) in that form to `dst`: weight_bytes() of
  /// this device's memory, aligned to 256.
  virtual void load_weight(DType type, const Shape& shape, const std::byte* src, std::byte* dst) {}
  /// Whether the host may read and write this device's memory (kind device) through its addresses.
  [[nodiscard]] virtual bool memory_is_host() const noexcept { return true; }
  /// Copies between memory of this device and host memory, either way, or inside either. Done on return.
  virtual void copy(std::byte* dst, const std::byte* src, std::size_t bytes) { std::memcpy(dst, src, bytes); }
  /// Zeroes memory of this device before anything that is run later.
  virtual void clear(std::byte* dst, std::size_t bytes) { std::memset(dst, 0, bytes); }
};

}  // namespace ggml
