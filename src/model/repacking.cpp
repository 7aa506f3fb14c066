#include "model/repacking.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "ggml/log.h"
#include "ggml/quant.h"

namespace llama {

using ggml::DType;
using ggml::Weight;

namespace {

constexpr Role kStays[] = {Role::token_embd, Role::attn_kv_b, Role::attn_k_b, Role::attn_v_b, Role::attn_k_up};
constexpr std::int64_t kBytesPerThread = 4 << 20;  // fewer are not worth a thread

/// Groups of rows one after another, each through a buffer of its size.
void interleave_in_place(DType type, std::byte* data, std::int64_t rows, std::int64_t k) {
  const std::int64_t together = ggml::type_info(type).rows_per_group;
  const std::size_t group_bytes = ggml::row_bytes(type, k) * static_cast<std::size_t>(together);
  std::vector<std::byte> group(group_bytes);
  for (std::int64_t row = 0; row < rows; row += together, data += group_bytes) {
    ggml::interleave_rows(type, data, together, k, group.data());
    std::memcpy(data, group.data(), group_bytes);
  }
}

void interleave_on_threads(DType type, std::byte* data, std::int64_t rows, std::int64_t k) {
  const auto bytes = static_cast<std::int64_t>(ggml::row_bytes(type, k));
  const std::int64_t together = ggml::type_info(type).rows_per_group;
  const std::int64_t most = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  const std::int64_t n = std::clamp<std::int64_t>(rows * bytes / kBytesPerThread, 1, most);
  const std::int64_t share = (rows / together + n - 1) / n * together;
  std::vector<std::thread> threads;
  for (std::int64_t row = share; row < rows; row += share)
    threads.emplace_back(interleave_in_place, type, data + row * bytes, std::min(share, rows - row), k);
  interleave_in_place(type, data, std::min(share, rows), k);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

Repacking::Repacking(const WeightPlaces& places, const ModelWeights& weights) {
  note(places, weights.global[Role::output].weight);
  for (const TensorSet& layer : weights.layers)
    for (std::size_t i = 0; i < kRoleCount; ++i)
      if (std::find(std::begin(kStays), std::end(kStays), static_cast<Role>(i)) == std::end(kStays))
        note(places, layer.parts[i].weight);
}

void Repacking::note(const WeightPlaces& places, const Weight* weight) {
  if (weight == nullptr || weight->shape[1] < 2 || places.is_read_by_host(*weight)) return;
  if (places.of(*weight) != std::vector<ggml::DeviceId>{ggml::DeviceId(0)}) return;
  const auto form = ggml::interleaved_form(weight->type);
  if (form && weight->shape[1] % ggml::type_info(*form).rows_per_group == 0) types_[weight] = {weight->type, *form};
}

void Repacking::apply(Weight& weight, std::byte* data) {
  declare(weight);
  interleave_on_threads(weight.type, data, weight.shape.rows(), weight.shape[0]);
}

void Repacking::declare(Weight& weight) {
  const auto change = types_.find(&weight);
  if (change != types_.end()) weight.type = change->second.to;
}

void Repacking::report(std::span<ggml::Device* const> devices, const ModelWeights& weights) const {
  std::uint64_t bytes = 0, missed_bytes = 0;
  std::size_t missed = 0;
  const ggml::Device* card = nullptr;
  for (const Weight& weight : weights.tensors) {
    const auto change = types_.find(&weight);
    if (change == types_.end()) continue;
    const std::uint64_t size = ggml::tensor_bytes(weight.type, weight.shape);
    bytes += size;
    const auto streams = [&](const ggml::Device* device) {
      return device->streams_weights(change->second.from) && !device->streams_weights(change->second.to);
    };
    const auto found = std::find_if(devices.begin() + 1, devices.end(), streams);
    if (found == devices.end()) continue;
    card = *found;
    missed_bytes += size;
    ++missed;
  }
  ggml::logf(ggml::LogLevel::info,
             "-rtr: repacked tensors=%zu bytes=%llu; the file was read into memory, not mapped; the other %zu tensors "
             "stay as they are",
             types_.size(), static_cast<unsigned long long>(bytes), weights.tensors.size() - types_.size());
  if (missed == 0) return;
  ggml::logf(ggml::LogLevel::warn,
             "-rtr: %s could have computed long prompts with %zu of the repacked tensors (%llu bytes), but takes no "
             "interleaved rows: leave -rtr out, or put them on the card (-ngl, a lower -ncmoe, -ot)",
             card->name().c_str(), missed, static_cast<unsigned long long>(missed_bytes));
}

}  // namespace llama
