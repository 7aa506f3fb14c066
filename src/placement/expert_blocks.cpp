#include "placement/expert_blocks.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "ggml/log.h"

namespace llama {

namespace {

/// What follows ".ffn_up", ".ffn_gate", ...; empty when the name has none of them.
std::string_view after_projection(std::string_view name) {
  constexpr std::string_view kStem = ".ffn_";
  const std::size_t at = name.find(kStem);
  if (at == std::string_view::npos) return {};
  name.remove_prefix(at + kStem.size());
  for (const std::string_view projection : {"gate_up", "gate", "up", "down"}) {
    if (!name.starts_with(projection)) continue;
    return name.substr(projection.size());
  }
  return {};
}

/// `n` shared out in proportion to `sizes`: whole parts first, then one each by largest remainder, ties to the lower
/// index.
std::vector<int> proportional_shares(const std::vector<int>& sizes, int n) {
  const int total = std::accumulate(sizes.begin(), sizes.end(), 0);
  std::vector<int> shares(sizes.size(), 0);
  if (total == 0) return shares;
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::int64_t> remainders(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t product = std::int64_t{n} * sizes[i];
    shares[i] = static_cast<int>(product / total);
    remainders[i] = product % total;
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  int left = n - std::accumulate(shares.begin(), shares.end(), 0);
  for (const std::size_t i : order) {
    if (left == 0) break;
    ++shares[i];
    --left;
  }
  return shares;
}

}  // namespace

bool is_routed_expert(std::string_view name) {
  std::string_view rest = after_projection(name);
  return rest.starts_with("_exps") || rest.starts_with("_chexps");
}

bool is_dense_ffn(std::string_view name) {
  return after_projection(name).starts_with(".");
}

std::vector<int> cpu_expert_blocks(const std::vector<int>& blocks, const std::vector<ggml::DeviceId>& layer_device,
                                   int n, ExpertBlocks which) {
  n = std::clamp(n, 0, static_cast<int>(blocks.size()));
  const auto device_of = [&](int block) { return layer_device[static_cast<std::size_t>(block)].v; };
  std::map<int, std::vector<int>> by_device;
  for (const int block : blocks) by_device[device_of(block)].push_back(block);
  const std::size_t n_devices = by_device.size() - by_device.count(0);
  if (which == ExpertBlocks::automatic) which = n_devices > 1 ? ExpertBlocks::even : ExpertBlocks::first;
  if (which == ExpertBlocks::first) return {blocks.begin(), blocks.begin() + n};
  if (which == ExpertBlocks::last) return {blocks.end() - n, blocks.end()};

  std::vector<int> taken;
  const auto take = [&](const std::vector<int>& from, int count) {
    taken.insert(taken.end(), from.begin(), from.begin() + std::min(count, static_cast<int>(from.size())));
  };
  // Blocks that are on the CPU already cost nothing.
  if (by_device.contains(0)) take(by_device[0], n);
  by_device.erase(0);
  std::vector<int> sizes;
  sizes.reserve(by_device.size());
  for (const auto& [device, own] : by_device) sizes.push_back(static_cast<int>(own.size()));
  const std::vector<int> shares = proportional_shares(sizes, n - static_cast<int>(taken.size()));
  std::size_t i = 0;
  for (const auto& [device, own] : by_device) take(own, shares[i++]);
  std::sort(taken.begin(), taken.end());
  return taken;
}

std::string n_cpu_moe_text(int n, ExpertBlocks which) {
  constexpr const char* kForms[] = {"", ":first", ":last", ":even"};
  return ggml::strf("--n-cpu-moe %d%s", n, kForms[static_cast<int>(which)]);
}

std::vector<int> expert_blocks(const PlanModel& model) {
  std::vector<int> blocks;
  for (const PlanTensor& tensor : model.tensors)
    if (tensor.expert) blocks.push_back(tensor.layer);
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  return blocks;
}

}  // namespace llama
