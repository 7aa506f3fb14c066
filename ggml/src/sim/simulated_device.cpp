#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/graph_label.h"
#include "cpu/kernels/kernels.h"
#include "cpu/program.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/simulated.h"
#include "ggml/threads.h"
#include "sim/cost_model.h"
#include "sim/guarded_memory.h"
#include "sim/queue.h"

namespace ggml {
namespace {

using cpu::CpuProgram;
using cpu::KernelTable;
using sim::CostModel;
using sim::GuardedMemory;
using sim::Queue;
using sim::QueueEvent;

/// The host's memory behind a card's pinned buffers.
class HostBlock final : public Buffer {
 public:
  HostBlock(std::size_t bytes, BufferKind kind) : bytes_(bytes), kind_(kind) {
    constexpr std::size_t kLine = 64;
    lines_.resize((bytes + kLine - 1) / kLine);
  }
  [[nodiscard]] std::byte* data() noexcept override { return reinterpret_cast<std::byte*>(lines_.data()); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] BufferKind kind() const noexcept override { return kind_; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64]{};
  };
  std::vector<Line> lines_;
  std::size_t bytes_;
  BufferKind kind_;
};

/// What a device lacks, by name.
struct Missing {
  std::vector<bool> ops = std::vector<bool>(kOpCount, false);
  std::vector<bool> types = std::vector<bool>(kTypeCount, false);

  explicit Missing(const SimulatedDeviceSpec& spec) {
    for (const std::string& name : spec.lacks) {
      bool known = false;
      for (int op = 0; op < kOpCount; ++op) {
        if (name != op_name(static_cast<Op>(op))) continue;
        ops[static_cast<std::size_t>(op)] = known = true;
      }
      if (const std::optional<DType> type = type_from_name(name); type)
        types[static_cast<std::size_t>(*type)] = known = true;
      if (!known)
        throw Error(ErrorCode::invalid_argument,
                    strf("%s: cannot lack \"%s\": no op or type is called so", spec.name.c_str(), name.c_str()));
    }
  }
  [[nodiscard]] bool has(Op op) const { return !ops[static_cast<std::size_t>(op)]; }
  [[nodiscard]] bool has(DType type) const { return !types[static_cast<std::size_t>(type)]; }
  [[nodiscard]] bool has(const Graph& graph, const Node& node) const {
    if (!has(node.op)) return false;
    const auto fits = [&](TensorId id) {
      if (!id.valid()) return true;
      const Tensor& t = graph.at(id);
      const Tensor& base = t.role == TensorRole::view ? graph.at(t.base) : t;
      return base.role != TensorRole::weight || has(base.type);
    };
    return std::all_of(node.src.begin(), node.src.end(), fits) &&
           std::all_of(node.slots.begin(), node.slots.end(), [&](const Slot& slot) { return fits(slot.weight); });
  }
};

/// Everything of a device that its executors share. The queues go first: they may still work.
struct Card {
  Card(const SimulatedDeviceSpec& wanted, DeviceId device, std::shared_ptr<SimulatedTime> clock)
      : spec(wanted),
        id(device),
        missing(spec),
        costs(spec),
        kernels(cpu::select_table({})),
        pool({.n_threads = 1}),
        memory(spec.name, spec.memory_bytes),
        time(std::move(clock)),
        queue(spec, memory, time),
        copies(spec, memory, time) {}

  const SimulatedDeviceSpec spec;
  const DeviceId id;
  const Missing missing;
  const CostModel costs;
  const KernelTable& kernels;
  ThreadPool pool;
  GuardedMemory memory;
  std::shared_ptr<SimulatedTime> time;
  Queue queue;
  Queue copies;  // of weights that are sent while the device works
};

/// Decomposes what the device lacks; throws Error(unsupported) for a primitive that it lacks.
cpu::LoweredGraph lower(const Card& card, const Graph& graph, const CompileOptions& options) {
  cpu::LoweredGraph lowered = cpu::lower(decompose(
                                             graph,
                                             [](const Graph& g, const Node& node, const void* missing) {
                                               return static_cast<const Missing*>(missing)->has(g, node);
                                             },
                                             &card.missing),
                                         card.kernels, options);
  for (const Node& node : lowered.graph.nodes)
    if (!card.missing.has(lowered.graph, node))
      throw Error(ErrorCode::unsupported, strf("%s: %s lacks op %s, or the type of its weight", node.name.c_str(),
                                               card.spec.name.c_str(), op_name(node.op)));
  return lowered;
}

class SimulatedProgram final : public Program {
 public:
  SimulatedProgram(cpu::LoweredGraph lowered, const cpu::CpuProgramInputs& inputs)
      : graph_(lowered.graph), label_(label_of(graph_)), arena_(inputs.arena), program_(std::move(lowered), inputs) {}

  [[nodiscard]] const MemoryPlan& memory() const noexcept override { return program_.memory(); }
  [[nodiscard]] std::vector<std::string> describe() const override { return program_.describe(); }
  [[nodiscard]] bool runs_ahead() const noexcept override { return true; }
  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const std::string& label() const { return label_; }

  /// On the device's thread. What earlier programs left in the arena is gone: nobody may read it.
  void run(ThreadPool& pool, const StepCounts& counts) {
    if (program_.memory().arena_bytes <= sim::kLargestPoisoned)
      std::memset(arena_.data(), 0xFF, program_.memory().arena_bytes);
    program_.run(pool, 1, counts, {});
  }

 private:
  Graph graph_;
  std::string label_;
  Buffer& arena_;
  CpuProgram program_;
};

/// Hands over by commands of the queue.
class SimulatedHandOver final : public HandOver {
 public:
  SimulatedHandOver(Executor& executor, Queue& queue) : executor_(executor), queue_(queue), gate_(nullptr) {
    for (std::unique_ptr<QueueEvent>& event : given_) event = std::make_unique<QueueEvent>(nullptr);
  }
  ~SimulatedHandOver() override {
    open();
    try {
      queue_.drain();
    } catch (...) {
      return;  // whoever waited for the work was told
    }
  }
  SimulatedHandOver(const SimulatedHandOver&) = delete;
  SimulatedHandOver& operator=(const SimulatedHandOver&) = delete;

  Ticket give(std::span<const HostCopy> copies) override {
    for (const HostCopy& c : copies) executor_.copy(c.dst, c.src, c.bytes);
    queue_.record(*given_[++last_ % kPending]);
    return last_;
  }
  void await(Ticket ticket) override {
    TANDEM_ASSERT(last_ - ticket < kPending, "a device is not given that much ahead");
    given_[ticket % kPending]->wait();
  }
  void take(std::span<const HostCopy> copies) override {
    queue_.hold(gate_);
    for (const HostCopy& c : copies) executor_.copy(c.dst, c.src, c.bytes);
  }
  void open() noexcept override { Queue::open(gate_); }

 private:
  static constexpr Ticket kPending = 16;
  Executor& executor_;
  Queue& queue_;
  QueueEvent gate_;
  std::array<std::unique_ptr<QueueEvent>, kPending> given_;
  Ticket last_ = 0;
};

class SimulatedExecutor final : public Executor {
 public:
  /// `lane`: what the trace calls copies, behind the device's name.
  SimulatedExecutor(Card& card, Queue& queue, const char* lane) : card_(card), queue_(queue), lane_(lane) {}

  [[nodiscard]] bool runs(const Graph& graph, const Node& node) const override {
    return card_.missing.has(graph, node) && cpu::has_implementation(graph, card_.kernels, node);
  }
  [[nodiscard]] std::size_t arena_bytes(const Graph& graph, const CompileOptions& options) override {
    const cpu::LoweredGraph lowered = lower(card_, graph, options);
    std::vector<std::size_t> offsets;
    return plan_memory(lowered.graph, cpu::measure_scratch(lowered, card_.kernels, card_.pool.size()), offsets)
        .arena_bytes;
  }
  std::unique_ptr<Program> compile(const Graph& graph, std::span<const PortBinding> ports, Buffer& arena,
                                   const CompileOptions& options) override {
    return std::make_unique<SimulatedProgram>(
        lower(card_, graph, options),
        cpu::CpuProgramInputs{card_.kernels, card_.pool.size(), ports, arena, options.observer, card_.id});
  }
  std::unique_ptr<Event> submit(Program& program, const StepCounts& counts, const StopToken& stop) override {
    run(program, counts, stop);
    std::unique_ptr<Event> event = make_event();
    record(*event);
    return event;
  }
  void run(Program& program, const StepCounts& counts, const StopToken& stop) override {
    if (stop.stop != nullptr && stop.stop(stop.user)) throw Error(ErrorCode::cancelled, "the step was cancelled");
    auto& simulated = static_cast<SimulatedProgram&>(program);
    const double seconds = card_.time == nullptr ? 0.0 : card_.costs.run_seconds(simulated.graph(), counts);
    queue_.push([this, &simulated, counts] { simulated.run(card_.pool, counts); }, {"", simulated.label(), seconds});
  }
  void synchronise() override { queue_.drain(); }

  /// In modelled time copies and events cost what they cost on cards of any kind.
  std::unique_ptr<HandOver> make_hand_over() override {
    return card_.time != nullptr ? nullptr : std::make_unique<SimulatedHandOver>(*this, queue_);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<QueueEvent>(card_.time); }
  void record(Event& event) override { queue_.record(static_cast<QueueEvent&>(event)); }
  void wait_for(Event& event) override {
    if (auto* queued = dynamic_cast<QueueEvent*>(&event))
      queue_.wait_for(*queued);
    else
      event.wait();
  }
  void copy(std::byte* dst, const std::byte* src, std::size_t bytes) override {
    queue_.push([dst, src, bytes] { std::memcpy(dst, src, bytes); },
                {lane_, strf("%zu bytes", bytes), card_.costs.copy_seconds(bytes)});
  }
  void move(std::byte* dst, const std::byte* src, std::size_t bytes) override {
    queue_.push([dst, src, bytes] { std::memcpy(dst, src, bytes); }, {"", "move", card_.costs.move_seconds(bytes)});
  }

 private:
  Card& card_;
  Queue& queue_;
  const char* lane_;
};

class SimulatedDevice final : public Device {
 public:
  SimulatedDevice(const SimulatedDeviceSpec& spec, DeviceId id, std::shared_ptr<SimulatedTime> time)
      : description_(strf("simulated, %.1f GB/s, link %.1f GB/s", spec.bandwidth / 1e9, spec.link / 1e9)),
        card_(spec, id, std::move(time)) {}

  [[nodiscard]] const std::string& name() const noexcept override { return card_.spec.name; }
  [[nodiscard]] const std::string& description() const noexcept override { return description_; }
  [[nodiscard]] DeviceMemory memory() const override { return card_.memory.numbers(); }
  [[nodiscard]] DeviceId id() const noexcept override { return card_.id; }
  std::unique_ptr<Buffer> allocate(std::size_t bytes, BufferKind kind) override {
    if (kind != BufferKind::device) return std::make_unique<HostBlock>(bytes, kind);
    return card_.memory.allocate(bytes);
  }
  std::unique_ptr<Executor> make_executor() override {
    return std::make_unique<SimulatedExecutor>(card_, card_.queue, " link");
  }
  std::unique_ptr<Executor> make_copier() override {
    return std::make_unique<SimulatedExecutor>(card_, card_.copies, " weights");
  }
  [[nodiscard]] bool streams_weights(DType type) const noexcept override { return supports(type); }

  [[nodiscard]] bool supports(DType type) const noexcept override { return card_.missing.has(type); }
  [[nodiscard]] bool supports(Op op) const noexcept override { return card_.missing.has(op); }
  [[nodiscard]] bool supports_cache(DType type) const noexcept override { return card_.missing.has(type); }
  [[nodiscard]] std::size_t weight_bytes(DType type, const Shape& shape) const noexcept override {
    return tensor_bytes(type, shape);
  }
  void load_weight(DType type, const Shape& shape, const std::byte* src, std::byte* dst) override {
    copy(dst, src, tensor_bytes(type, shape));
  }
  [[nodiscard]] bool memory_is_host() const noexcept override { return false; }
  void copy(std::byte* dst, const std::byte* src, std::size_t bytes) override {
    card_.queue.perform([=] { std::memcpy(dst, src, bytes); },
                        {" link", strf("%zu bytes", bytes), card_.costs.copy_seconds(bytes)});
  }
  void clear(std::byte* dst, std::size_t bytes) override {
    card_.queue.perform([=] { std::memset(dst, 0, bytes); }, {"", "clear", 0.0});
  }

 private:
  std::string description_;
  Card card_;
};

}  // namespace

std::unique_ptr<Device> make_simulated_device(const SimulatedDeviceSpec& spec, DeviceId id,
                                              std::shared_ptr<SimulatedTime> time) {
  if (spec.name.empty() || !id.valid() || !(spec.bandwidth > 0) || !(spec.link > 0) || !(spec.arithmetic > 0)) {
    throw Error(ErrorCode::invalid_argument,
                strf("simulated device \"%s\": bandwidth %g, link %g and arithmetic %g must be positive",
                     spec.name.c_str(), spec.bandwidth, spec.link, spec.arithmetic));
  }
  return std::make_unique<SimulatedDevice>(spec, id, std::move(time));
}

}  // namespace ggml
