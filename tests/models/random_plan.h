#pragma once

#include <algorithm>
#include <random>
#include <string>

#include "ggml/gguf.h"
#include "llama/plan.h"
#include "models/golden.h"
#include "models/simulated_machine.h"

namespace llama::golden {

/// Where each layer, its cells and some tensors lie.
struct RandomPlan {
  Plan plan;
  std::string what;
  bool whole_layers = true;  // no op has its tensors on several devices
};

/// Draws plans for a golden model over the CPU and some cards (device 0 is the CPU).
class PlanMaker {
 public:
  PlanMaker(const Golden& golden, int n_devices, std::mt19937& random)
      : file_(ggml::gguf::File::open(golden.path)), n_devices_(n_devices), random_(random) {}

  RandomPlan make(int n_layer) {
    RandomPlan made;
    made.plan.input_device = ggml::DeviceId(any());
    made.plan.output_device = ggml::DeviceId(any());
    // Runs of layers, as -ngl and -ts make them, or a device for each.
    const bool runs = random_() % 2 == 0;
    int device = any();
    for (int i = 0; i < n_layer; ++i) {
      if (!runs || random_() % 3 == 0) device = any();
      made.plan.layer_device.emplace_back(device);
      made.what += std::to_string(device);
    }
    made.plan.kv_device = made.plan.layer_device;
    const auto kind = random_() % 6;
    if (kind == 1 || kind == 5) {
      made.what += " kv=CPU";
      std::fill(made.plan.kv_device.begin(), made.plan.kv_device.end(), ggml::DeviceId(0));
    }
    if (kind == 2) {
      made.what += " kv=any";
      for (ggml::DeviceId& home : made.plan.kv_device) home = ggml::DeviceId(any());
    }
    if (kind == 3) {
      made.what += " exps=CPU";
      for (const auto& tensor : file_.tensors())
        if (tensor.name.find("_exps.") != std::string::npos) SimulatedMachine::put(made.plan, tensor.name, 0);
    }
    if (kind >= 4) {
      made.what += " tensors=any";
      for (const auto& tensor : file_.tensors())
        if (kind == 4 || random_() % 4 == 0) SimulatedMachine::put(made.plan, tensor.name, any());
      made.whole_layers = false;
    }
    // Latent attention works with matrices and cells in one op.
    if (file_.metadata().get_string("general.architecture") == "deepseek2") made.whole_layers &= kind == 0 || kind == 3;
    return made;
  }

 private:
  int any() { return static_cast<int>(random_() % static_cast<unsigned>(n_devices_)); }

  ggml::gguf::File file_;
  int n_devices_;
  std::mt19937& random_;
};

}  // namespace llama::golden
