#include "placement/layer_devices.h"

#include <algorithm>
#include <numeric>

#include "ggml/error.h"
#include "ggml/log.h"

namespace llama {

namespace {

std::string names_of(const std::vector<PlanDevice>& devices) {
  std::string names;
  for (std::size_t i = 1; i < devices.size(); ++i) names += (i > 1 ? ", " : "") + devices[i].name;
  return names.empty() ? "(none)" : names;
}

/// Shares of the devices behind the CPU, summed up from the first on.
std::vector<double> cumulative_shares(const std::vector<PlanDevice>& devices, const std::vector<float>& split) {
  std::vector<double> sums(devices.size() - 1, 0.0);
  for (std::size_t i = 0; i < sums.size() && i < split.size(); ++i) sums[i] = static_cast<double>(split[i]);
  if (std::all_of(sums.begin(), sums.end(), [](double share) { return share <= 0.0; })) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<double>(devices[i + 1].free_bytes);
  }
  std::partial_sum(sums.begin(), sums.end(), sums.begin());
  return sums;
}

}  // namespace

std::vector<ggml::DeviceId> layer_devices(int n_layer, const std::vector<PlanDevice>& devices,
                                          const PlacementRules& rules) {
  std::vector<ggml::DeviceId> result(static_cast<std::size_t>(n_layer) + 1, ggml::DeviceId(0));
  const int n_devices = static_cast<int>(devices.size()) - 1;
  const int main_gpu = rules.main_gpu.value_or(0);
  if (main_gpu > 0 && main_gpu >= n_devices)
    throw ggml::Error(ggml::ErrorCode::invalid_argument,
                      ggml::strf("-mg %d: there is no such GPU; GPU devices: %s", main_gpu, names_of(devices).c_str()),
                      "count them from 0, in the order of -dev");
  const bool only_main = rules.split_mode == SplitMode::none;
  if (n_devices < 1 || (only_main && main_gpu < 0)) return result;
  const int n_wanted = std::clamp(rules.n_gpu_layers.value_or(kAllLayers), 0, n_layer + 1);
  const int first = n_layer + 1 - n_wanted;
  const std::vector<double> sums = cumulative_shares(devices, rules.tensor_split);
  for (int layer = first; layer <= n_layer; ++layer) {
    int device = main_gpu;
    if (!only_main) {
      const double at = static_cast<double>(layer - first) / n_wanted;
      // The first device whose share ends behind this layer.
      const auto end = std::find_if(sums.begin(), sums.end(), [&](double sum) { return sum / sums.back() > at; });
      device = std::min(static_cast<int>(end - sums.begin()), n_devices - 1);
    }
    result[static_cast<std::size_t>(layer)] = ggml::DeviceId(device + 1);
  }
  return result;
}

}  // namespace llama
