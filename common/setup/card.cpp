#include "common/setup/card.h"

#include <string>

#include "ggml/cuda.h"
#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"

namespace common {
namespace {

using ggml::logf;
using ggml::LogLevel;

/// Layers that the model's header says it has.
int layers_of(const std::string& path) {
  const ggml::gguf::File file = ggml::gguf::File::open(path);
  const std::string arch(file.metadata().get_string("general.architecture").value_or(""));
  return static_cast<int>(file.metadata().get_u32(arch + ".block_count").value_or(0));
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
  std::unique_ptr<ggml::Device> card = std::move(cuda.devices.front());
  if (!wanted) {
    logf(LogLevel::info, "the CPU computes everything; -ngl all puts the whole model on %s (%s)", card->name().c_str(),
         card->description().c_str());
    return nullptr;
  }
  if (const std::string why = why_on_cpu(settings.placement, layers_of(settings.model.path)); !why.empty()) {
    logf(LogLevel::warn, "%s; a card takes a whole model or nothing in this version: the CPU computes everything",
         why.c_str());
    return nullptr;
  }
  logf(LogLevel::info, "%s (%s) computes the whole model", card->name().c_str(), card->description().c_str());
  return card;
}

}  // namespace common
