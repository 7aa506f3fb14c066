#include "common/setup/card.h"

#include <cstdint>
#include <string>

#include "ggml/cuda.h"
#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"

namespace common {
namespace {

using ggml::logf;
using ggml::LogLevel;

/// What the model's header says of its size.
struct Size {
  int n_layer = 0;
  std::uint64_t bytes = 0;
};

Size size_of(const std::string& path) {
  const ggml::gguf::File file = ggml::gguf::File::open(path);
  Size size;
  const std::string arch(file.metadata().get_string("general.architecture").value_or(""));
  size.n_layer = static_cast<int>(file.metadata().get_u32(arch + ".block_count").value_or(0));
  for (const ggml::gguf::TensorInfo& tensor : file.tensors()) size.bytes += tensor.bytes;
  return size;
}

/// Why the settings cannot run on a card that takes whole models only; empty: they can.
std::string why_on_cpu(const PlacementSettings& placement, int n_layer) {
  if (!placement.tensor_rules.empty()) return "-ot places single tensors";
  if (placement.cpu_moe || placement.n_cpu_moe > 0) return "--cpu-moe and --n-cpu-moe keep experts on the CPU";
  if (!placement.kv_offload) return "-nkvo keeps the KV cache in host memory";
  if (placement.n_gpu_layers && *placement.n_gpu_layers <= n_layer) return "-ngl asks for a part of the layers";
  return {};
}

}  // namespace

std::unique_ptr<ggml::Device> choose_card(const Settings& settings) {
  const std::optional<int>& wanted = settings.placement.n_gpu_layers;
  if (wanted == 0 || settings.model.path.empty()) return nullptr;
  ggml::CudaDevices cuda = ggml::find_cuda_devices();
  if (cuda.devices.empty()) {
    logf(wanted ? LogLevel::info : LogLevel::debug, "the CPU computes everything: %s", cuda.problem.c_str());
    return nullptr;
  }
  const Size size = size_of(settings.model.path);
  if (const std::string why = why_on_cpu(settings.placement, size.n_layer); !why.empty()) {
    logf(LogLevel::warn, "%s; a card takes a whole model or nothing in this version: the CPU computes everything",
         why.c_str());
    return nullptr;
  }
  std::unique_ptr<ggml::Device> card = std::move(cuda.devices.front());
  const std::uint64_t free = card->memory().free;
  constexpr std::uint64_t kRoom = std::uint64_t{1} << 30;  // context, workspace
  const std::uint64_t needed = size.bytes + size.bytes / 8 + kRoom;
  if (!wanted && needed > free) {
    logf(LogLevel::info, "%s has %llu MiB free, the model needs about %llu: the CPU computes everything",
         card->name().c_str(), static_cast<unsigned long long>(free >> 20),
         static_cast<unsigned long long>(needed >> 20));
    return nullptr;
  }
  logf(LogLevel::info, "%s (%s) computes the whole model", card->name().c_str(), card->description().c_str());
  return card;
}

}  // namespace common
