#include "cpu/program.h"

#include <gtest/gtest.h>

#include <cstring>

#include "cpu/test_bed.h"
#include "ggml/error.h"

namespace ggml::cpu::test {
namespace {

struct Recorder final : Observer {
  std::vector<std::string> tensors, slots;
  std::vector<std::int64_t> rows;
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<std::int32_t>> experts;
  void on_tensor(const Tensor& tensor, const void*, std::int64_t n) override {
    tensors.push_back(tensor.name);
    rows.push_back(n);
  }
  void on_slot(const Weight& weight, std::span<const float> x, std::span<const std::int32_t> e) override {
    slots.push_back(weight.name);
    inputs.emplace_back(x.begin(), x.end());
    experts.emplace_back(e.begin(), e.end());
  }
};

/// embed-like chain: norm, linear, add; what the tests below run.
struct Chain {
  TestBed bed{8, 1, 1};
  TensorId x, y;
  std::vector<float> values;
  explicit Chain(bool tapped = false) {
    values = bed.normal(64 * 8, 1.0f);
    x = bed.input("x", Shape(64, 8), Rows::tokens, values);
    Slot slot = bed.slot(DType::q8_0, Shape(64, 64));
    slot.tapped = tapped;
    const TensorId a = bed.graph().linear(x, slot, "a");
    bed.graph().observe(a);
    y = bed.graph().add(a, x, "y");
    bed.output(y, "y");
  }
};

TEST(Program, SaysHowEachNodeRuns) {
  Chain chain;
  const Outcome native = chain.bed.run_cpu({8, 0, 1}, {});
  ASSERT_EQ(native.description.size(), 2u);
  EXPECT_EQ(native.description[0], "linear a: native linear");
  const Outcome primitives = chain.bed.run_cpu({8, 0, 1}, {.decompose_all = true});
  ASSERT_EQ(primitives.description.size(), 3u);
  EXPECT_EQ(primitives.description[0].rfind("quantise_act", 0), 0u);
}

TEST(Program, ShowsObservedTensorsAndTappedInputs) {
  for (const bool primitives : {false, true}) {
    Chain chain(true);
    Recorder recorder;
    (void)chain.bed.run_cpu({5, 0, 1}, {.n_threads = 2, .decompose_all = primitives, .observer = &recorder});
    EXPECT_EQ(recorder.tensors, (std::vector<std::string>{"a"}));
    EXPECT_EQ(recorder.rows, (std::vector<std::int64_t>{5}));
    ASSERT_EQ(recorder.inputs.size(), 1u);
    EXPECT_EQ(recorder.inputs[0], std::vector<float>(chain.values.begin(), chain.values.begin() + 5 * 64));
  }
}

TEST(Program, ShowsTheInputOfEachTappedExpertProjection) {
  TestBed bed(2, 1, 1);
  const TensorId x = bed.random_input("x", Shape(64, 2), Rows::tokens);
  const TensorId ids = bed.input("ids", Shape(2, 2), Rows::tokens, std::vector<std::int32_t>{3, -1, 1, 0});
  const TensorId weights = bed.random_input("weights", Shape(2, 2), Rows::tokens);
  std::vector<Slot> slots{bed.slot(DType::q8_0, Shape(64, 96, 4)), bed.slot(DType::q8_0, Shape(64, 96, 4)),
                          bed.slot(DType::q8_0, Shape(96, 64, 4))};
  for (Slot& slot : slots) slot.tapped = true;
  bed.output(bed.graph().moe_ffn(x, {ids, weights}, slots, {.n_expert = 4, .n_used = 2}, "y"), "y");
  Recorder recorder;
  (void)bed.run_cpu({2, 0, 1}, {.n_threads = 2, .observer = &recorder});
  ASSERT_EQ(recorder.slots.size(), 3u);
  for (const auto& experts : recorder.experts) EXPECT_EQ(experts, (std::vector<std::int32_t>{3, 1, 0}));
  EXPECT_EQ(recorder.inputs[0].size(), 3u * 64);
  EXPECT_EQ(recorder.inputs[2].size(), 3u * 96);
}

TEST(Program, GivesObserversErrorsBack) {
  struct Failing final : Observer {
    void on_tensor(const Tensor&, const void*, std::int64_t) override { throw Error(ErrorCode::io, "disk full"); }
    void on_slot(const Weight&, std::span<const float>, std::span<const std::int32_t>) override {}
  } failing;
  Chain chain;
  EXPECT_THROW(chain.bed.run_cpu({5, 0, 1}, {.n_threads = 3, .observer = &failing}), Error);
}

/// A compiled program with its memory.
struct Compiled {
  Device& device = cpu_device("", 2);
  std::unique_ptr<Executor> executor = device.make_executor();
  std::unique_ptr<Buffer> x, y, arena;
  std::unique_ptr<Program> program;
  TestBed bed{4, 1, 1};

  Compiled() {
    Slot slot = bed.slot(DType::f32, Shape(16, 16));
    TensorId t = bed.graph().port(PortId(0), "x", DType::f32, Shape(16, 4), Rows::tokens);
    for (int i = 0; i < 50; ++i) t = bed.graph().linear(t, slot, "t" + std::to_string(i));
    bed.graph().output(t, PortId(1));
    x = device.allocate(256, BufferKind::host_pageable);
    y = device.allocate(256, BufferKind::host_pageable);
    arena = device.allocate(executor->arena_bytes(bed.graph().graph(), {}), BufferKind::host_pageable);
  }
  void compile(std::size_t y_bytes = 256) {
    const PortBinding ports[] = {{PortId(0), x->data(), 256}, {PortId(1), y->data(), y_bytes}};
    program = executor->compile(bed.graph().graph(), ports, *arena, {});
  }
};

TEST(Program, StopsBetweenNodesWhenAsked) {
  Compiled c;
  c.compile();
  int calls = 0;
  const StopToken stop{[](void* user) { return ++*static_cast<int*>(user) == 3; }, &calls};
  try {
    c.executor->run(*c.program, {4, 0, 1}, stop);
    FAIL() << "was not cancelled";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
  }
  EXPECT_EQ(calls, 3);
  calls = 100;
  EXPECT_NO_THROW(c.executor->run(*c.program, {4, 0, 1}, stop)) << "a program can run again after it was stopped";
  calls = 0;
  const std::unique_ptr<Event> event = c.executor->submit(*c.program, {4, 0, 1}, stop);
  EXPECT_TRUE(event->ready());
  EXPECT_THROW(event->wait(), Error);
}

TEST(Program, RefusesPortsThatAreMissingOrTooSmallAndCountsBeyondTheBucket) {
  Compiled c;
  EXPECT_THROW(c.compile(252), Error);
  EXPECT_THROW(c.executor->compile(c.bed.graph().graph(), {}, *c.arena, {}), Error);
  c.compile();
  EXPECT_THROW(c.executor->run(*c.program, {5, 0, 1}, {}), Error);
  EXPECT_NO_THROW(c.executor->run(*c.program, {0, 0, 0}, {}));
}

TEST(CpuDevice, SaysWhatItIsAndHowMuchMemoryThereIs) {
  Device& device = cpu_device("", 1);
  EXPECT_EQ(device.name(), "CPU");
  EXPECT_FALSE(device.description().empty());
  EXPECT_GT(device.memory().total, 0u);
  EXPECT_LE(device.memory().free, device.memory().total);
}

TEST(CpuDevice, NamesWantedAndFreeBytesWhenMemoryIsShort) {
  try {
    (void)cpu_device("", 1).allocate(std::size_t{1} << 50, BufferKind::host_pageable);
    FAIL() << "a pebibyte was given";
  } catch (const DeviceError& e) {
    EXPECT_EQ(e.code(), ErrorCode::out_of_memory);
    EXPECT_NE(e.message().find("1125899906842624"), std::string::npos) << e.message();
    EXPECT_FALSE(e.hint().empty());
  }
}

TEST(CpuDevice, RefusesAnIsaThatDoesNotExist) {
  CpuOptions options;
  options.n_threads = 1;
  options.isa = "mmx";
  EXPECT_THROW((void)make_cpu_device(options), Error);
  options.isa = "";
  options.n_threads = -1;
  EXPECT_THROW((void)make_cpu_device(options), Error);
}

TEST(CpuDevice, AlignsBuffersForVectors) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{5000}, std::size_t{5} << 20}) {
    const std::unique_ptr<Buffer> buffer = cpu_device("", 1).allocate(bytes, BufferKind::host_pageable);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u);
    EXPECT_EQ(buffer->bytes(), bytes);
    std::memset(buffer->data(), 1, bytes);
  }
}

}  // namespace
}  // namespace ggml::cpu::test
