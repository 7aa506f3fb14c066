#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ggml/cpu.h"
#include "ggml/simulated.h"
#include "llama/plan.h"

namespace llama::golden {

/// A CPU and some simulated cards. They come first in a test: what lies in their memory must go before them.
class SimulatedMachine {
 public:
  struct Options {
    int n_cards = 1;
    std::uint64_t card_bytes = std::uint64_t{1} << 28;
    std::uint64_t seed = 0;  // of the cards' delays
    std::vector<std::string> lacks = {};
    std::shared_ptr<ggml::SimulatedTime> time = nullptr;  // set: what work takes is added up
    ggml::SimulatedDeviceSpec host = {};                  // speeds of the CPU for that
    double card_bandwidth = 1e12;
    double card_link = 25e9;
  };
  explicit SimulatedMachine(const Options& options) {
    ggml::CpuOptions cpu;
    cpu.n_threads = 1;  // as the cards: equal bytes
    devices_.push_back(ggml::make_cpu_device(cpu));
    if (options.time != nullptr)
      devices_.back() = ggml::make_timed_host(std::move(devices_.back()), options.host, options.time);
    for (int i = 0; i < options.n_cards; ++i) {
      ggml::SimulatedDeviceSpec spec;
      spec.name = "CUDA" + std::to_string(i);
      spec.memory_bytes = options.card_bytes;
      spec.lacks = options.lacks;
      spec.bandwidth = options.card_bandwidth;
      spec.link = options.card_link;
      spec.seed = options.seed == 0 ? 0 : options.seed + 1000003u * static_cast<std::uint64_t>(i);
      devices_.push_back(ggml::make_simulated_device(spec, ggml::DeviceId(i + 1), options.time));
    }
    for (const auto& device : devices_) pointers_.push_back(device.get());
  }

  [[nodiscard]] const std::vector<ggml::Device*>& devices() const { return pointers_; }
  [[nodiscard]] ggml::Device& cpu() const { return *pointers_.front(); }

  /// A plan with everything on one device.
  [[nodiscard]] static Plan all_on(int device, int n_layer) {
    Plan plan;
    plan.input_device = plan.output_device = ggml::DeviceId(device);
    plan.layer_device.assign(static_cast<std::size_t>(n_layer), ggml::DeviceId(device));
    plan.kv_device = plan.layer_device;
    return plan;
  }
  static void put(Plan& plan, const std::string& tensor, int device) {
    TensorPlan entry;
    entry.name = tensor;
    entry.places.emplace_back();
    entry.places.back().device = ggml::DeviceId(device);
    plan.tensors.push_back(std::move(entry));
  }

 private:
  std::vector<std::unique_ptr<ggml::Device>> devices_;
  std::vector<ggml::Device*> pointers_;
};

}  // namespace llama::golden
