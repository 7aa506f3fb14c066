#include "decode/ports.h"

#include <algorithm>
#include <cstring>

#include "ggml/error.h"

namespace llama {

StepPorts::StepPorts(const PortSizes& sizes, const KvCache& cache, ggml::Device& device) : sizes_(sizes) {
  const auto n_ubatch = static_cast<std::size_t>(sizes.n_ubatch);
  const auto head_rows = static_cast<std::size_t>(sizes.max_head_rows);
  const std::size_t stream_bytes = n_ubatch * static_cast<std::size_t>(sizes.n_embd) * sizeof(float);
  host_.resize(static_cast<std::size_t>(port::block_table(GroupId(cache.n_groups())).v) + 1, nullptr);
  add(port::kTokens, n_ubatch * sizeof(std::int32_t), device);
  add(port::kPositions, n_ubatch * sizeof(std::int32_t), device);
  add(port::kStreamEven, stream_bytes, device, ggml::BufferKind::device);
  add(port::kStreamOdd, stream_bytes, device, ggml::BufferKind::device);
  add(port::kOutputRows, n_ubatch * sizeof(std::int32_t), device);
  add(port::kHeadRows, head_rows * sizeof(std::int32_t), device);
  add(port::kLogits, head_rows * static_cast<std::size_t>(sizes.n_vocab) * sizeof(float), device);
  add(port::kSampleRows, head_rows * sizeof(ggml::SampleRow), device);
  add(port::kAdjust, sizes.adjust_entries * sizeof(ggml::SampleAdjust), device);
  add(port::kMasks, head_rows * static_cast<std::size_t>(mask_words()) * sizeof(std::uint32_t), device);
  add(port::kSampled, head_rows * sizeof(ggml::SampleResult), device);
  add(port::kTokenTypes, n_ubatch * sizeof(std::int32_t), device);
  add(port::kEmbeddings,
      static_cast<std::size_t>(sizes.embedding_rows) * static_cast<std::size_t>(sizes.n_embd) * sizeof(float), device);
  if (const StateCache* states = cache.states()) {
    add(port::spans(GroupId(cache.n_groups())), static_cast<std::size_t>(sizes.n_seq_max) * sizeof(ggml::AttnSpan),
        device);
    for (std::size_t i = 0; i < states->spec().layers.size(); ++i)
      bindings_.push_back({port::pool(states->spec().layers[i]), states->layer_base(i), states->layer_bytes()});
  }
  for (int g = 0; g < cache.n_groups(); ++g) {
    const GroupId id(g);
    add(port::spans(id), static_cast<std::size_t>(sizes.n_seq_max) * sizeof(ggml::AttnSpan), device);
    add(port::block_table(id), static_cast<std::size_t>(sizes.table_entries) * sizeof(std::int32_t), device);
    const KvGroup& group = cache.group(id);
    for (std::size_t i = 0; i < group.spec().layers.size(); ++i)
      bindings_.push_back({port::pool(group.spec().layers[i]), group.layer_base(i), group.layer_bytes()});
  }
}

void StepPorts::add(ggml::PortId id, std::size_t bytes, ggml::Device& device, ggml::BufferKind kind) {
  buffers_.push_back(device.allocate(std::max<std::size_t>(bytes, 64), kind));
  std::byte* data = buffers_.back()->data();
  host_[static_cast<std::size_t>(id.v)] = data;
  bindings_.push_back({id, data, buffers_.back()->bytes()});
  // The rows of the stream beyond a step's count are not read, but what is small is cheap to have defined.
  if (id == port::kTokens || id == port::kPositions || id == port::kTokenTypes) std::memset(data, 0, bytes);
}

void StepPorts::grow_adjust(std::size_t entries, ggml::Device& device) {
  for (std::size_t i = 0; i < bindings_.size(); ++i) {
    if (bindings_[i].port != port::kAdjust) continue;
    sizes_.adjust_entries = entries;
    std::unique_ptr<ggml::Buffer> bigger =
        device.allocate(entries * sizeof(ggml::SampleAdjust), ggml::BufferKind::host_pinned);
    host_[static_cast<std::size_t>(port::kAdjust.v)] = bigger->data();
    for (std::unique_ptr<ggml::Buffer>& buffer : buffers_)
      if (buffer->data() == bindings_[i].data) buffer = std::move(bigger);
    bindings_[i].data = host_[static_cast<std::size_t>(port::kAdjust.v)];
    bindings_[i].bytes = entries * sizeof(ggml::SampleAdjust);
    return;
  }
  TANDEM_ASSERT(false, "the adjustment port is always bound");
}

}  // namespace llama
