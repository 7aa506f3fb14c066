#include "decode/streamed_memory.h"

#include <chrono>
#include <cstddef>
#include <span>
#include <utility>

#include "ggml/log.h"

namespace llama {

void StreamedMemory::pin(const OffloadRules& rules) {
  if (done_ || device_ == nullptr) return;
  done_ = true;
  const auto begin = std::chrono::steady_clock::now();
  std::size_t bytes = 0;
  rules.for_each_weight([&](const ggml::Weight& weight) {
    for (const ggml::Placement& p : weight.placements) {
      if (p.data == nullptr || p.kind == ggml::BufferKind::device) continue;
      const std::span<const std::byte> memory(p.data, ggml::tensor_bytes(weight.type, weight.shape));
      std::unique_ptr<ggml::PinnedMemory> pinned = device_->pin(memory);
      if (pinned == nullptr) continue;
      bytes += memory.size();
      pinned_.push_back(std::move(pinned));
    }
  });
  if (bytes == 0) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  ggml::logf(ggml::LogLevel::info, "offload device=%s pinned_mib=%.0f seconds=%.2f", device_->name().c_str(),
             static_cast<double>(bytes) / (1 << 20), took.count());
}

}  // namespace llama
