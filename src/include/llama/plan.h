#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ggml/graph.h"
#include "ggml/type.h"

namespace llama {

/// Where the speeds of a device come from: nobody measured or said them, --sim-device, a profile of the machine.
enum class SpeedSource : std::uint8_t { assumed, given, measured };

/// A device as the planner sees it: numbers only, so that a plan can be made for a machine that is not there. In a Plan
/// the first one is always the CPU; a ggml::DeviceId is an index into the list.
struct PlanDevice {
  std::string name;               // "CPU", "CUDA0"
  std::uint64_t total_bytes = 0;  // of memory
  std::uint64_t free_bytes = 0;
  double bandwidth = 0;   // bytes/s that a kernel reads its memory at
  double link = 0;        // bytes/s between host memory and this device; the CPU, or not known: 0
  double arithmetic = 0;  // operations/s of int8 products in prompts
  SpeedSource speeds = SpeedSource::assumed;
  std::uint64_t overhead_bytes = 0;  // that the device needs for itself once a model runs
  /// Bytes a weight takes in the form this device computes with. Empty, as for the CPU: those of the file.
  std::function<std::size_t(ggml::DType type, const ggml::Shape& shape)> weight_bytes;
  /// Whether weights of a type can be sent to this device for prompts. Empty: those of any type.
  std::function<bool(ggml::DType type)> streams;
};

/// What a device must hold. `margin` is what is asked to stay free.
struct DeviceUse {
  std::uint64_t weights = 0, kv = 0, arenas = 0, staging = 0, overhead = 0, margin = 0;
  [[nodiscard]] std::uint64_t total() const { return weights + kv + arenas + staging + overhead; }
};

/// Where one tensor of the file goes, and why.
struct TensorPlan {
  struct Place {
    ggml::DeviceId device{0};
    ggml::BufferKind kind = ggml::BufferKind::mapping;
    ggml::PlacementRole role = ggml::PlacementRole::primary;
    std::uint64_t bytes = 0;
  };
  std::string name;
  ggml::DType type = ggml::DType::f32;
  ggml::Shape shape;
  std::vector<Place> places;  // the first is the one that computes unless an op says otherwise (a tied head has two)
  std::string rule;           // as the user wrote it, "-ngl 20", or "default"
};

/// Where everything of a model goes. Made before anything is loaded; the loader and the context obey it.
struct Plan {
  std::vector<PlanDevice> devices;
  std::vector<DeviceUse> use;                // per device
  std::vector<TensorPlan> tensors;           // in the order of the file
  ggml::DeviceId input_device{0};            // the embedding of tokens
  ggml::DeviceId output_device{0};           // final norm, head, sampling
  std::vector<ggml::DeviceId> layer_device;  // per layer: ops without weights of their own, and the residual stream
  std::vector<ggml::DeviceId> kv_device;     // per layer: keys and values, and with them the attention ops
};

}  // namespace llama
