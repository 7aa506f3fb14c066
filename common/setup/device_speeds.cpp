#include "common/setup/device_speeds.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ggml/graph.h"
#include "ggml/roofline.h"

namespace common {
namespace {

using Clock = std::chrono::steady_clock;
using ggml::Buffer;
using ggml::BufferKind;
using ggml::Device;
using ggml::DType;
using ggml::Executor;
using ggml::Shape;

constexpr int kRuns = 7;

/// Seconds that `work` takes: the median of a few runs behind one that warms up.
template <class Work>
double seconds_of(Work work) {
  work();
  std::vector<double> seconds;
  for (int i = 0; i < kRuns; ++i) {
    const Clock::time_point start = Clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  return std::max(seconds[kRuns / 2], 1e-9);
}

/// A product of 8-bit weights with the rows of a prompt.
class PromptProduct {
 public:
  explicit PromptProduct(Device& device) : executor_(device.make_executor()) {
    const std::size_t bytes = ggml::tensor_bytes(DType::q8_0, weight_.shape);
    file_.resize(bytes);
    ggml::Placement placement;
    placement.device = device.id();
    placement.kind = device.memory_is_host() ? BufferKind::host_pageable : BufferKind::device;
    placement.data = file_.data();
    if (const std::size_t own = device.weight_bytes(weight_.type, weight_.shape); own > 0) {
      memory_ = device.allocate(own, BufferKind::device);
      device.load_weight(weight_.type, weight_.shape, file_.data(), memory_->data());
      placement.data = memory_->data();
    }
    weight_.placements = {placement};
    ggml::GraphBuilder builder(kTokens, 1);
    const Shape rows(kWidth, kTokens);
    const ggml::TensorId x = builder.port(ggml::PortId(0), "x", DType::f32, rows, ggml::Rows::tokens);
    builder.output(builder.linear(x, {builder.weight(weight_), {}, {}}, "product"), ggml::PortId(1));
    std::vector<ggml::PortBinding> ports;
    for (int i = 0; i < 2; ++i) {
      ports_[i] = device.allocate(ggml::tensor_bytes(DType::f32, rows), BufferKind::device);
      device.clear(ports_[i]->data(), ports_[i]->bytes());
      ports.push_back({ggml::PortId(i), ports_[i]->data(), ports_[i]->bytes()});
    }
    arena_ = device.allocate(executor_->arena_bytes(builder.graph(), {}), BufferKind::device);
    program_ = executor_->compile(builder.graph(), ports, *arena_, {});
  }

  void run() {
    executor_->run(*program_, {.n_tokens = kTokens, .n_outputs = 0, .n_spans = 0}, {});
    executor_->synchronise();
  }

  static constexpr int kTokens = 512;
  static constexpr std::int64_t kWidth = 2048;
  static constexpr double kOperations = 2.0 * kWidth * kWidth * kTokens;

 private:
  std::vector<std::byte> file_;  // zeros are valid blocks, and as fast as others
  ggml::Weight weight_{"probe", DType::q8_0, Shape(kWidth, kWidth), {}};
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Buffer> memory_, ports_[2], arena_;
  std::unique_ptr<ggml::Program> program_;
};

double measure_products(Device& device) {
  PromptProduct product(device);
  return PromptProduct::kOperations / seconds_of([&] { product.run(); });
}

}  // namespace

DeviceSpeeds measure_cpu(Device& cpu, const std::string& isa, int n_threads) {
  DeviceSpeeds speeds;
  {
    ggml::Roofline memory(isa, n_threads);
    std::vector<double> runs;
    for (int i = 0; i < kRuns; ++i) runs.push_back(memory.read_bytes_per_s());
    std::nth_element(runs.begin(), runs.begin() + kRuns / 2, runs.end());
    speeds.bandwidth = runs[kRuns / 2];
  }
  speeds.arithmetic = measure_products(cpu);
  return speeds;
}

DeviceSpeeds measure_card(Device& card) {
  constexpr std::size_t kMost = std::size_t{256} << 20, kLeast = std::size_t{1} << 20;
  constexpr std::uint64_t kShare = 20;  // of free memory, twice
  const std::size_t bytes = std::clamp(static_cast<std::size_t>(card.memory().free / kShare), kLeast, kMost);
  DeviceSpeeds speeds;
  {
    const std::unique_ptr<Executor> executor = card.make_executor();
    const std::unique_ptr<Buffer> host = card.allocate(bytes, BufferKind::host_pinned);
    const std::unique_ptr<Buffer> from = card.allocate(bytes, BufferKind::device);
    const std::unique_ptr<Buffer> to = card.allocate(bytes, BufferKind::device);
    std::fill_n(host->data(), bytes, std::byte{0});
    const auto amount = static_cast<double>(bytes);
    speeds.link = amount / seconds_of([&] {
                    executor->copy(from->data(), host->data(), bytes);
                    executor->synchronise();
                  });
    // What is copied inside is read and written.
    speeds.bandwidth = 2.0 * amount / seconds_of([&] {
                         executor->move(to->data(), from->data(), bytes);
                         executor->synchronise();
                       });
  }
  speeds.arithmetic = measure_products(card);
  return speeds;
}

}  // namespace common
