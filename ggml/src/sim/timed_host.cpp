#include <utility>

#include "core/graph_label.h"
#include "ggml/error.h"
#include "ggml/simulated.h"
#include "sim/cost_model.h"

namespace ggml {
namespace {

class TimedProgram final : public Program {
 public:
  TimedProgram(std::unique_ptr<Program> program, Graph graph)
      : program_(std::move(program)), graph_(std::move(graph)), label_(label_of(graph_)) {}
  [[nodiscard]] const MemoryPlan& memory() const noexcept override { return program_->memory(); }
  [[nodiscard]] std::vector<std::string> describe() const override { return program_->describe(); }
  [[nodiscard]] Program& inner() { return *program_; }
  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const std::string& label() const { return label_; }

 private:
  std::unique_ptr<Program> program_;
  Graph graph_;
  std::string label_;
};

class TimedExecutor final : public Executor {
 public:
  TimedExecutor(std::unique_ptr<Executor> executor, const sim::CostModel& costs, SimulatedTime& time)
      : executor_(std::move(executor)), costs_(costs), time_(time) {}

  [[nodiscard]] bool runs(const Graph& graph, const Node& node) const override { return executor_->runs(graph, node); }
  [[nodiscard]] std::size_t arena_bytes(const Graph& graph, const CompileOptions& options) override {
    return executor_->arena_bytes(graph, options);
  }
  std::unique_ptr<Program> compile(const Graph& graph, std::span<const PortBinding> ports, Buffer& arena,
                                   const CompileOptions& options) override {
    return std::make_unique<TimedProgram>(executor_->compile(graph, ports, arena, options), graph);
  }
  std::unique_ptr<Event> submit(Program& program, const StepCounts& counts, const StopToken& stop) override {
    auto& timed = static_cast<TimedProgram&>(program);
    std::unique_ptr<Event> event = executor_->submit(timed.inner(), counts, stop);
    pass(timed, counts);
    return event;
  }
  void run(Program& program, const StepCounts& counts, const StopToken& stop) override {
    auto& timed = static_cast<TimedProgram&>(program);
    executor_->run(timed.inner(), counts, stop);
    pass(timed, counts);
  }

 private:
  void pass(const TimedProgram& program, const StepCounts& counts) {
    const double begin = time_.host();
    const double end = begin + costs_.run_seconds(program.graph(), counts);
    time_.add({"CPU", program.label(), begin, end});
    time_.host_reaches(end);
  }

  std::unique_ptr<Executor> executor_;
  const sim::CostModel& costs_;
  SimulatedTime& time_;
};

class TimedHost final : public Device {
 public:
  TimedHost(std::unique_ptr<Device> cpu, const SimulatedDeviceSpec& spec, std::shared_ptr<SimulatedTime> time)
      : cpu_(std::move(cpu)), spec_(spec), costs_(spec_), time_(std::move(time)) {}

  [[nodiscard]] const std::string& name() const noexcept override { return cpu_->name(); }
  [[nodiscard]] const std::string& description() const noexcept override { return cpu_->description(); }
  [[nodiscard]] DeviceMemory memory() const override { return cpu_->memory(); }
  [[nodiscard]] DeviceId id() const noexcept override { return cpu_->id(); }
  std::unique_ptr<Buffer> allocate(std::size_t bytes, BufferKind kind) override { return cpu_->allocate(bytes, kind); }
  std::unique_ptr<Executor> make_executor() override {
    return std::make_unique<TimedExecutor>(cpu_->make_executor(), costs_, *time_);
  }

 private:
  std::unique_ptr<Device> cpu_;
  const SimulatedDeviceSpec spec_;
  const sim::CostModel costs_;
  std::shared_ptr<SimulatedTime> time_;
};

}  // namespace

std::unique_ptr<Device> make_timed_host(std::unique_ptr<Device> cpu, const SimulatedDeviceSpec& spec,
                                        std::shared_ptr<SimulatedTime> time) {
  TANDEM_ASSERT(cpu != nullptr && time != nullptr && cpu->memory_is_host(), "a CPU device and a clock are given");
  return std::make_unique<TimedHost>(std::move(cpu), spec, std::move(time));
}

}  // namespace ggml
