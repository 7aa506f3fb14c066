#include "ggml/simulated.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "cpu/test_bed.h"
#include "ggml/error.h"

namespace ggml {
namespace {

using cpu::test::Outcome;
using cpu::test::TestBed;

SimulatedDeviceSpec spec_of(std::uint64_t bytes = 1 << 24) {
  SimulatedDeviceSpec spec;
  spec.name = "CUDA0";
  spec.memory_bytes = bytes;
  return spec;
}

/// Norm, feed-forward, router and experts over six tokens.
void build(TestBed& bed) {
  GraphBuilder& b = bed.graph();
  const TensorId x = bed.random_input("x", Shape(64, 6), Rows::tokens);
  const TensorId normed = b.norm(x, Slot{bed.weight_id(DType::f32, Shape(64), 1.0f), {}, {}}, NormParams{}, "norm");
  const Slot ffn[] = {bed.slot(DType::q8_0, Shape(64, 96)), bed.slot(DType::q8_0, Shape(64, 96)),
                      bed.slot(DType::q8_0, Shape(96, 64))};
  const TensorId y = b.ffn(normed, ffn, FfnParams{}, "ffn");
  const Slot router[] = {bed.slot(DType::f32, Shape(64, 8))};
  const auto route = b.moe_route(y, router, {.n_expert = 8, .n_used = 2}, "route");
  const Slot experts[] = {bed.slot(DType::q8_0, Shape(64, 32, 8)), bed.slot(DType::q8_0, Shape(64, 32, 8)),
                          bed.slot(DType::q8_0, Shape(32, 64, 8))};
  bed.output(b.moe_ffn(y, route, experts, {.n_expert = 8, .n_used = 2}, "moe"), "out");
}

TEST(SimulatedDevice, GivesTheBytesOfTheCpu) {
  const auto device = make_simulated_device(spec_of(), DeviceId(1));
  TestBed bed(6, 1, 3);
  build(bed);
  const StepCounts counts{.n_tokens = 6, .n_outputs = 0, .n_spans = 1};
  const Outcome expected = bed.run_cpu(counts, {});
  EXPECT_EQ(bed.run_on(*device, counts, {}).words, expected.words);
  EXPECT_EQ(bed.run_on(*device, counts, {}).values, expected.values);
}

TEST(SimulatedDevice, RunsDecompositionsOfWhatItLacksAndRefusesLackingPrimitives) {
  SimulatedDeviceSpec spec = spec_of();
  spec.lacks = {"moe_ffn", "norm"};
  const auto device = make_simulated_device(spec, DeviceId(1));
  spec.lacks.emplace_back("mul_mat_id");
  const auto less = make_simulated_device(spec, DeviceId(2));
  TestBed bed(6, 1, 3);
  build(bed);
  const StepCounts counts{.n_tokens = 6, .n_outputs = 0, .n_spans = 1};
  const Outcome expected = bed.run_cpu(counts, {});
  const Outcome got = bed.run_on(*device, counts, {});
  cpu::test::expect_close(got.values.at("out"), expected.values.at("out"), 64, 6 * 64, {}, "decomposed");
  const auto has = [&](const char* start) {
    return std::any_of(got.description.begin(), got.description.end(),
                       [&](const std::string& line) { return line.rfind(start, 0) == 0; });
  };
  EXPECT_TRUE(has("mul_mat_id"));
  EXPECT_TRUE(has("ffn"));
  EXPECT_FALSE(has("moe_ffn"));
  EXPECT_THROW(bed.run_on(*less, counts, {}), Error);
  EXPECT_FALSE(less->supports(Op::mul_mat_id));
  spec.lacks = {"q8_0"};
  EXPECT_FALSE(make_simulated_device(spec, DeviceId(1))->supports(DType::q8_0));
  spec.lacks = {"mul_mit"};
  EXPECT_THROW((void)make_simulated_device(spec, DeviceId(1)), Error);
}

TEST(SimulatedDevice, CountsItsMemoryAndSaysWhatIsMissing) {
  const auto device = make_simulated_device(spec_of(10000), DeviceId(1));
  auto first = device->allocate(8000, BufferKind::device);
  EXPECT_EQ(device->memory().free, 10000u - 8192u);
  const auto host = device->allocate(100000, BufferKind::host_pinned);  // is the host's
  std::memset(host->data(), 1, 100000);
  try {
    (void)device->allocate(4000, BufferKind::device);
    FAIL() << "allocated more than there is";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_EQ(error.message(), "CUDA0: cannot allocate 4000 bytes, 1808 of 10000 are free");
    EXPECT_NE(error.hint().find("-ngl"), std::string::npos);
  }
  first.reset();
  EXPECT_EQ(device->memory().free, 10000u);
}

TEST(SimulatedDeviceDeathTest, ItsMemoryFaultsWhenAnyoneElseTouchesIt) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto touch = [](bool from_other_device) {
    const auto device = make_simulated_device(spec_of(), DeviceId(1));
    const auto other = make_simulated_device(spec_of(), DeviceId(2));
    const auto mine = device->allocate(4096, BufferKind::device);
    const auto theirs = other->allocate(4096, BufferKind::device);
    if (from_other_device)
      other->copy(theirs->data(), mine->data(), 64);
    else
      *mine->data() = std::byte{1};
  };
  EXPECT_DEATH(touch(false), "");
  EXPECT_DEATH(touch(true), "");
}

TEST(SimulatedDevice, CopiesAndClearsItsMemoryInOrder) {
  const auto device = make_simulated_device(spec_of(), DeviceId(1));
  const auto memory = device->allocate(1024, BufferKind::device);
  std::vector<std::byte> bytes(1024, std::byte{7}), back(1024);
  device->copy(memory->data(), bytes.data(), 1024);
  device->clear(memory->data() + 512, 512);
  device->copy(back.data(), memory->data(), 1024);
  EXPECT_EQ(back[511], std::byte{7});
  EXPECT_EQ(back[512], std::byte{0});
}

TEST(SimulatedDevice, MemoryThatNobodyWroteIsNaNAlsoWhereOtherMemoryWasBefore) {
  const auto device = make_simulated_device(spec_of(), DeviceId(1));
  std::vector<float> values(256);
  const std::size_t bytes = values.size() * sizeof(float);
  for (int round = 0; round < 3; ++round) {
    const auto memory = device->allocate(bytes, BufferKind::device);
    device->copy(reinterpret_cast<std::byte*>(values.data()), memory->data(), bytes);
    EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float v) { return std::isnan(v); })) << round;
    device->clear(memory->data(), bytes);
  }
}

TEST(SimulatedDevice, WhoDoesNotWaitComesTooEarly) {
  SimulatedDeviceSpec spec = spec_of();
  spec.seed = 12345;
  const auto device = make_simulated_device(spec, DeviceId(1));
  const auto executor = device->make_executor();
  const auto memory = device->allocate(64, BufferKind::device);
  const auto event = executor->make_event();
  std::vector<std::byte> from(64), to(64);
  int early = 0;
  for (int i = 1; i <= 60; ++i) {
    std::fill(from.begin(), from.end(), static_cast<std::byte>(i));
    executor->copy(memory->data(), from.data(), 64);
    executor->copy(to.data(), memory->data(), 64);
    executor->record(*event);
    early += event->ready() ? 0 : 1;
    event->wait();
    ASSERT_EQ(to[63], static_cast<std::byte>(i));
  }
  EXPECT_GT(early, 10);
}

TEST(SimulatedDevice, QueuesWaitForEachOthersEvents) {
  SimulatedDeviceSpec spec = spec_of();
  spec.seed = 99;
  const auto a = make_simulated_device(spec, DeviceId(1));
  const auto b = make_simulated_device(spec, DeviceId(2));
  const auto on_a = a->make_executor();
  const auto on_b = b->make_executor();
  const auto memory_a = a->allocate(64, BufferKind::device);
  const auto memory_b = b->allocate(64, BufferKind::device);
  const auto event = on_a->make_event();
  std::vector<std::byte> from(64), between(64), to(64);
  for (int i = 1; i <= 40; ++i) {
    std::fill(from.begin(), from.end(), static_cast<std::byte>(i));
    on_a->copy(memory_a->data(), from.data(), 64);
    on_a->copy(between.data(), memory_a->data(), 64);
    on_a->record(*event);
    on_b->wait_for(*event);
    on_b->copy(memory_b->data(), between.data(), 64);
    on_b->copy(to.data(), memory_b->data(), 64);
    on_b->synchronise();
    ASSERT_EQ(to[0], static_cast<std::byte>(i));
  }
}

TEST(SimulatedTime, PassesAsTheSpecSays) {
  auto time = std::make_shared<SimulatedTime>();
  SimulatedDeviceSpec spec = spec_of();
  spec.link = 1e6;
  const auto device = make_simulated_device(spec, DeviceId(1), time);
  const auto executor = device->make_executor();
  const auto memory = device->allocate(1 << 20, BufferKind::device);
  std::vector<std::byte> bytes(1 << 20);
  executor->copy(memory->data(), bytes.data(), 500000);
  EXPECT_EQ(time->host(), 0.0);  // the host goes on
  executor->synchronise();
  EXPECT_NEAR(time->host(), 0.5, 0.01);
  const auto trace = time->take_trace();
  ASSERT_EQ(trace.size(), 1u);
  EXPECT_EQ(trace[0].lane, "CUDA0 link");
  EXPECT_NEAR(trace[0].end - trace[0].begin, 0.5, 0.01);
}

TEST(SimulatedTime, TheHostPaysForItsOwnWork) {
  auto time = std::make_shared<SimulatedTime>();
  SimulatedDeviceSpec spec = spec_of();
  spec.bandwidth = 1e6;
  CpuOptions options;
  options.n_threads = 1;
  const auto host = make_timed_host(make_cpu_device(options), spec, time);
  TestBed bed(6, 1, 3);
  build(bed);
  (void)bed.run_on(*host, {.n_tokens = 6, .n_outputs = 0, .n_spans = 1}, {});
  // Three matrices of 64 x 96 weights, most of the experts' 3 x 8 of 64 x 32, in q8_0.
  EXPECT_GT(time->host(), 0.04);
  EXPECT_LT(time->host(), 0.12);
}

}  // namespace
}  // namespace ggml
