#include "ggml/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <random>

#include "cpu/test_bed.h"
#include "ggml/cpu.h"
#include "ggml/error.h"
#include "ggml/simulated.h"

namespace ggml {
namespace {

using cpu::test::TestBed;

constexpr int kTokens = 6;
constexpr int kWidth = 64;
constexpr PortId kIn{0}, kOut{1};

std::vector<std::unique_ptr<Device>> make_machine(int n_cards, std::uint64_t seed,
                                                  const std::vector<std::string>& lacks = {}) {
  std::vector<std::unique_ptr<Device>> devices;
  CpuOptions options;
  options.n_threads = 1;
  devices.push_back(make_cpu_device(options));
  for (int i = 0; i < n_cards; ++i) {
    SimulatedDeviceSpec spec;
    spec.name = "CUDA" + std::to_string(i);
    spec.memory_bytes = 1 << 26;
    spec.seed = seed == 0 ? 0 : seed * 7 + static_cast<std::uint64_t>(i) + 1;
    spec.lacks = lacks;
    devices.push_back(make_simulated_device(spec, DeviceId(i + 1)));
  }
  return devices;
}

std::vector<Device*> pointers(const std::vector<std::unique_ptr<Device>>& devices) {
  std::vector<Device*> list;
  list.reserve(devices.size());
  for (const auto& device : devices) list.push_back(device.get());
  return list;
}

/// Some layers of norm, router, experts and a shared feed-forward, whose weights can be put anywhere.
class Layers {
 public:
  explicit Layers(int n_layers) : bed_(kTokens, 1, 17), builder_(kTokens, 1) {
    TensorId x = builder_.port(kIn, "in", DType::f32, Shape(kWidth, kTokens), Rows::tokens);
    for (int i = 0; i < n_layers; ++i) {
      const std::string n = "-" + std::to_string(i);
      const TensorId normed = builder_.norm(x, slot(DType::f32, Shape(kWidth)), NormParams{}, "norm" + n);
      const Slot router[] = {slot(DType::f32, Shape(kWidth, 8))};
      const auto route = builder_.moe_route(normed, router, {.n_expert = 8, .n_used = 2}, "route" + n);
      const Slot experts[] = {slot(DType::q8_0, Shape(kWidth, 32, 8)), slot(DType::q8_0, Shape(kWidth, 32, 8)),
                              slot(DType::q8_0, Shape(32, kWidth, 8))};
      const TensorId moe = builder_.moe_ffn(normed, route, experts, {.n_expert = 8, .n_used = 2}, "moe" + n);
      const Slot shared[] = {slot(DType::q8_0, Shape(kWidth, 32)), slot(DType::q8_0, Shape(kWidth, 32)),
                             slot(DType::q8_0, Shape(32, kWidth))};
      const TensorId ffn = builder_.ffn(normed, shared, FfnParams{}, "shared" + n);
      x = builder_.add(x, builder_.add(moe, ffn, "both" + n), "sum" + n);
    }
    builder_.output(x, kOut);
    input_ = bed_.normal(std::int64_t{kWidth} * kTokens, 1.0f);
  }

  /// Weights of a layer: norm, router, gate, up, down, shared gate, up, down.
  static constexpr std::size_t kPerLayer = 8;
  [[nodiscard]] std::size_t n_weights() const { return weights_.size(); }

  void place(std::size_t weight, Device& device) {
    Weight& w = *weights_[weight];
    if (device.weight_bytes(w.type, w.shape) == 0) return;
    memory_.push_back(device.allocate(device.weight_bytes(w.type, w.shape), BufferKind::device));
    device.load_weight(w.type, w.shape, w.placements.front().data, memory_.back()->data());
    Placement placement;
    placement.device = device.id();
    placement.kind = BufferKind::device;
    placement.data = memory_.back()->data();
    w.placements = {placement};
  }

  [[nodiscard]] const Graph& graph() const { return builder_.graph(); }

  struct Result {
    std::vector<float> values;
    SchedulerStats stats;
    int n_splits = 0;
    int n_mixed = 0;
  };
  /// Runs on a machine with the ports in the memory of two devices.
  Result run(const std::vector<Device*>& devices, DeviceId in_home, DeviceId out_home, int n_tokens = kTokens) {
    Scheduler scheduler(devices);
    const std::size_t bytes = input_.size() * sizeof(float);
    const auto memory_for = [&](DeviceId home) {
      const bool shared = !home.valid() || home.v == 0;
      return devices[shared ? devices.size() - 1 : static_cast<std::size_t>(home.v)]->allocate(
          bytes, shared ? BufferKind::host_pinned : BufferKind::device);
    };
    const auto device_at = [&](DeviceId home) -> Device& {
      return *devices[home.valid() ? static_cast<std::size_t>(home.v) : 0];
    };
    const auto in = memory_for(in_home), out = memory_for(out_home);
    const PlacedPort ports[] = {{{kIn, in->data(), bytes}, in_home}, {{kOut, out->data(), bytes}, out_home}};
    const auto schedule = scheduler.cut(graph(), ports, {});
    EXPECT_FALSE(scheduler.reserve(*schedule));
    const auto program = scheduler.compile(*schedule, ports, {});
    Result result;
    result.values.resize(input_.size());
    // More than once: what the first run left behind must not matter.
    for (int i = 0; i < 3; ++i) {
      device_at(in_home).copy(in->data(), reinterpret_cast<const std::byte*>(input_.data()), bytes);
      scheduler.reset_stats();
      scheduler.run(*program, {.n_tokens = n_tokens, .n_outputs = 0, .n_spans = 1}, {});
      scheduler.synchronise();
      device_at(out_home).copy(reinterpret_cast<std::byte*>(result.values.data()), out->data(), bytes);
    }
    result.values.resize(static_cast<std::size_t>(n_tokens) * kWidth);
    result.stats = scheduler.stats();
    result.n_splits = schedule->n_splits();
    result.n_mixed = schedule->n_mixed();
    return result;
  }

 private:
  Slot slot(DType type, const Shape& shape) {
    const float scale = shape.dims() == 1 ? 1.0f : 1.0f / std::sqrt(static_cast<float>(shape[0]));
    // The bed's weights are ours to place.
    auto& weight = const_cast<Weight&>(bed_.weight(type, shape, scale));
    weight.name = "w" + std::to_string(weights_.size());
    weights_.push_back(&weight);
    return Slot{builder_.weight(weight), {}, {}};
  }

  TestBed bed_;
  GraphBuilder builder_;
  std::vector<Weight*> weights_;
  std::vector<float> input_;
  std::vector<std::unique_ptr<Buffer>> memory_;
};

std::vector<float> on_cpu(int n_layers, int n_tokens = kTokens) {
  const auto machine = make_machine(0, 0);
  Layers layers(n_layers);
  return layers.run(pointers(machine), kEverywhere, kEverywhere, n_tokens).values;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  cpu::test::expect_close(a, b, kWidth, static_cast<std::int64_t>(b.size()), {.row = 2e-5, .outlier_row = 2e-5}, what);
}

TEST(Scheduler, PassesAGraphOnWhenEverythingLiesOnOneDevice) {
  const auto machine = make_machine(1, 5);
  Layers layers(2);
  for (std::size_t w = 0; w < layers.n_weights(); ++w) layers.place(w, *machine[1]);
  const auto result = layers.run(pointers(machine), DeviceId(1), DeviceId(1));
  EXPECT_EQ(result.values, on_cpu(2));
  EXPECT_EQ(result.n_splits, 1);
  EXPECT_EQ(result.stats.copies(), 0u);
}

TEST(Scheduler, RunsWholeLayersWhereTheirWeightsLieAndCopiesTheStreamOnly) {
  const auto machine = make_machine(2, 5);
  Layers layers(3);
  for (std::size_t w = 0; w < Layers::kPerLayer; ++w) layers.place(w, *machine[1]);
  for (std::size_t w = Layers::kPerLayer; w < 2 * Layers::kPerLayer; ++w) layers.place(w, *machine[2]);
  const auto result = layers.run(pointers(machine), DeviceId(1), kEverywhere);
  EXPECT_EQ(result.values, on_cpu(3));  // no op was taken apart: equal bytes
  EXPECT_EQ(result.n_splits, 3);
  EXPECT_EQ(result.n_mixed, 0);
  const std::uint64_t stream = sizeof(float) * kWidth * kTokens;
  EXPECT_EQ(result.stats.bytes(), 3 * stream);  // 1 to the host, on to 2, and to the host
  EXPECT_EQ(result.stats.copies(), 3u);
}

TEST(Scheduler, CopiesRealRowsOnly) {
  const auto machine = make_machine(1, 5);
  Layers layers(2);
  for (std::size_t w = 0; w < Layers::kPerLayer; ++w) layers.place(w, *machine[1]);
  const auto result = layers.run(pointers(machine), DeviceId(1), kEverywhere, 2);
  EXPECT_EQ(result.values, on_cpu(2, 2));
  EXPECT_EQ(result.stats.bytes(), sizeof(float) * kWidth * 2);
}

TEST(Scheduler, TakesExpertsApartWhoseProjectionsLieOnSeveralDevices) {
  const auto machine = make_machine(1, 5);
  Layers layers(2);
  for (std::size_t w = 0; w < layers.n_weights(); ++w) {
    const std::size_t kind = w % Layers::kPerLayer;
    if (kind != 3 && kind != 4) layers.place(w, *machine[1]);  // up and down stay on the CPU
  }
  const auto result = layers.run(pointers(machine), DeviceId(1), DeviceId(1));
  expect_near(result.values, on_cpu(2), "mixed experts");
  EXPECT_EQ(result.n_mixed, 2);
  // For each layer the card's part that the CPU waits for, the shared experts beside the CPU, the CPU; and the end.
  EXPECT_EQ(result.n_splits, 7);
  // Out: the input, ids, weights, gate's result. In: the sum.
  const std::uint64_t out = sizeof(float) * kTokens * (kWidth + 2 + 2 + 2 * 32), in = sizeof(float) * kTokens * kWidth;
  EXPECT_EQ(result.stats.links[1].bytes_out, 2 * out);
  EXPECT_EQ(result.stats.links[1].bytes_in, 2 * in);
}

TEST(Scheduler, AnyPlacementGivesTheSameResults) {
  const std::vector<float> expected = on_cpu(3);
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const int n_cards = 1 + static_cast<int>(random() % 4);
    static const std::vector<std::vector<std::string>> kLacks{
        {}, {"norm"}, {"moe_ffn", "ffn"}, {"add"}, {"moe_route"}, {"linear", "gated"}, {"top_k", "moe_route"}};
    const auto machine = make_machine(n_cards, round % 3 == 0 ? 0 : random(), kLacks[random() % kLacks.size()]);
    Layers layers(3);
    const bool by_layer = random() % 3 == 0;
    int device = 0;
    for (std::size_t w = 0; w < layers.n_weights(); ++w) {
      if (!by_layer || w % Layers::kPerLayer == 0) device = static_cast<int>(random() % machine.size());
      layers.place(w, *machine[static_cast<std::size_t>(device)]);
    }
    const auto home = [&] { return DeviceId(static_cast<std::int32_t>(random() % (machine.size() + 1)) - 1); };
    const auto result = layers.run(pointers(machine), home(), home());
    expect_near(result.values, expected, "round " + std::to_string(round));
  }
}

TEST(Scheduler, RunsOnTheCpuWhatADeviceLacks) {
  const auto machine = make_machine(1, 5, {"add"});
  Layers layers(1);
  for (std::size_t w = 0; w < layers.n_weights(); ++w) layers.place(w, *machine[1]);
  const auto result = layers.run(pointers(machine), DeviceId(1), DeviceId(1));
  expect_near(result.values, on_cpu(1), "add on the CPU");
  EXPECT_EQ(result.n_splits, 2);
}

TEST(Scheduler, RefusesAnOpThatNoDeviceWithItsWeightsCanRun) {
  const auto machine = make_machine(1, 0, {"moe_ffn", "mul_mat_id"});
  Layers layers(1);
  for (std::size_t w = 0; w < layers.n_weights(); ++w) layers.place(w, *machine[1]);
  const auto devices = pointers(machine);
  Scheduler scheduler(devices);
  const PlacedPort ports[] = {{{kIn, nullptr, 0}, DeviceId(1)}, {{kOut, nullptr, 0}, DeviceId(1)}};
  try {
    (void)scheduler.cut(layers.graph(), ports, {});
    FAIL() << "was cut";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(error.message().find("mul_mat_id"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("CUDA0"), std::string::npos) << error.message();
  }
}

/// The layers compiled, with input and output in pinned memory of `card`.
class Compiled {
 public:
  Compiled(Scheduler& scheduler, Device& card, const Layers& layers)
      : memory_(card.allocate(2 * kBytes, BufferKind::host_pinned)),
        ports_{
            {{{kIn, memory_->data(), kBytes}, kEverywhere}, {{kOut, memory_->data() + kBytes, kBytes}, kEverywhere}}},
        schedule_(scheduler.cut(layers.graph(), ports_, {})) {
    (void)scheduler.reserve(*schedule_);
    program = scheduler.compile(*schedule_, ports_, {});
  }

 private:
  static constexpr std::size_t kBytes = sizeof(float) * kWidth * kTokens;
  std::unique_ptr<Buffer> memory_;
  std::array<PlacedPort, 2> ports_;
  std::unique_ptr<Schedule> schedule_;

 public:
  std::unique_ptr<Program> program;
};

TEST(Scheduler, AnErrorLeavesAllDevicesIdle) {
  const auto machine = make_machine(2, 5);
  Layers layers(2);
  for (std::size_t w = 0; w < layers.n_weights(); ++w) layers.place(w, *machine[1 + w / Layers::kPerLayer]);
  const auto devices = pointers(machine);
  Scheduler scheduler(devices);
  const Compiled compiled(scheduler, *machine[1], layers);
  int asked = 0;
  const StopToken stop{[](void* n) { return ++*static_cast<int*>(n) > 1; }, &asked};
  const StepCounts counts{.n_tokens = kTokens, .n_outputs = 0, .n_spans = 1};
  EXPECT_THROW(scheduler.run(*compiled.program, counts, stop), Error);
  // More tokens than the program is for.
  EXPECT_THROW(
      {
        scheduler.run(*compiled.program, {.n_tokens = kTokens + 1, .n_outputs = 0, .n_spans = 1}, {});
        scheduler.synchronise();
      },
      Error);
  scheduler.run(*compiled.program, counts, {});
  scheduler.synchronise();
}

TEST(Scheduler, TakesDownWhatRanWhenByTheClock) {
  const auto machine = make_machine(1, 5);
  Layers layers(1);
  for (std::size_t w = 0; w < layers.n_weights(); ++w)
    if (w < 2 || w >= 5) layers.place(w, *machine[1]);  // the experts stay on the CPU
  const auto devices = pointers(machine);
  Trace trace;
  {
    Scheduler scheduler(devices, &trace);
    const Compiled compiled(scheduler, *machine[1], layers);
    for (int i = 0; i < 2; ++i)
      scheduler.run(*compiled.program, {.n_tokens = kTokens, .n_outputs = 0, .n_spans = 1}, {});
    scheduler.synchronise();
  }  // what was given out is in the trace when the scheduler is gone
  const std::vector<TraceSpan> spans = trace.take();
  const auto lane = [&](const std::string& name) {
    std::vector<TraceSpan> found;
    std::copy_if(spans.begin(), spans.end(), std::back_inserter(found), [&](const auto& s) { return s.lane == name; });
    return found;
  };
  EXPECT_EQ(lane("CPU").size(), 2u);
  EXPECT_EQ(lane("CUDA0").size(), 2u);
  EXPECT_GT(lane("CUDA0 link").size(), 0u);
  EXPECT_EQ(lane("CPU").front().name, "moe-0 .. sum-0");
  for (const char* name : {"CPU", "CUDA0"}) {
    const std::vector<TraceSpan> on = lane(name);
    for (std::size_t i = 0; i < on.size(); ++i) {
      EXPECT_LE(on[i].begin, on[i].end);
      if (i == 0) continue;
      EXPECT_GE(on[i].begin, on[i - 1].end) << on[i].name;
    }
  }
}

TEST(Scheduler, ReportsWhatCrossedEachLink) {
  const auto machine = make_machine(1, 0);
  SchedulerStats stats;
  stats.splits = 3;
  stats.nodes = 20;
  stats.links.resize(2);
  stats.links[1] = {2, 1024, 1, 512};
  const auto devices = pointers(machine);
  EXPECT_EQ(report(stats, 1, devices),
            "1 steps, each: 3.0 splits of 20 nodes, 3.0 copies, 1536 bytes\n"
            "CUDA0: 2.0 copies in, 1024 bytes; 1.0 copies out, 512 bytes");
  SchedulerStats sum = stats;
  sum += stats;
  sum.splits += 1;
  EXPECT_EQ(report(sum, 2, devices),
            "2 steps, each: 3.5 splits of 20 nodes, 3.0 copies, 1536 bytes\n"
            "CUDA0: 2.0 copies in, 1024 bytes; 1.0 copies out, 512 bytes");
  EXPECT_EQ(report({}, 0, devices), "0 steps, each: 0.0 splits of 0 nodes, 0.0 copies, 0 bytes");
}

}  // namespace
}  // namespace ggml
