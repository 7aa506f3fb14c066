#include "decode/ports.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ggml/error.h"

namespace llama {

StepPorts::StepPorts(const PortSizes& sizes, const KvCache& cache, const PortHomes& homes)
    : sizes_(sizes), host_device_(homes.host()) {
  const auto n_ubatch = static_cast<std::size_t>(sizes.n_ubatch);
  const auto head_rows = static_cast<std::size_t>(sizes.max_head_rows);
  const std::size_t stream_bytes = n_ubatch * static_cast<std::size_t>(sizes.n_embd) * sizeof(float);
  host_.resize(static_cast<std::size_t>(port::block_table(GroupId(cache.n_groups())).v) + 1, nullptr);
  add(port::kTokens, n_ubatch * sizeof(std::int32_t));
  add(port::kPositions, n_ubatch * sizeof(std::int32_t));
  add_streams(homes, stream_bytes);
  add(port::kOutputRows, n_ubatch * sizeof(std::int32_t));
  add(port::kHeadRows, head_rows * sizeof(std::int32_t));
  add(port::kLogits, head_rows * static_cast<std::size_t>(sizes.n_vocab) * sizeof(float));
  add(port::kSampleRows, head_rows * sizeof(ggml::SampleRow));
  add(port::kAdjust, sizes.adjust_entries * sizeof(ggml::SampleAdjust));
  add(port::kMasks, head_rows * static_cast<std::size_t>(mask_words()) * sizeof(std::uint32_t));
  add(port::kSampled, head_rows * sizeof(ggml::SampleResult));
  add(port::kTokenTypes, n_ubatch * sizeof(std::int32_t));
  add(port::kEmbeddings,
      static_cast<std::size_t>(sizes.embedding_rows) * static_cast<std::size_t>(sizes.n_embd) * sizeof(float));
  if (sizes.n_adapters > 0) host_.resize(static_cast<std::size_t>(port::adapter_scales(sizes.n_adapters).v), nullptr);
  for (int adapter = 0; adapter < sizes.n_adapters; ++adapter) {
    add(port::adapter_scales(adapter), n_ubatch * sizeof(float));
    add(port::adapter_head_scales(adapter), head_rows * sizeof(float));
  }
  if (const StateCache* states = cache.states()) {
    add(port::spans(GroupId(cache.n_groups())), static_cast<std::size_t>(sizes.n_seq_max) * sizeof(ggml::AttnSpan));
    for (std::size_t i = 0; i < states->spec().layers.size(); ++i)
      bindings_.push_back(
          {{port::pool(states->spec().layers[i]), states->layer_base(i), states->layer_bytes()}, states->device_of(i)});
  }
  for (int g = 0; g < cache.n_groups(); ++g) {
    const GroupId id(g);
    add(port::spans(id), static_cast<std::size_t>(sizes.n_seq_max) * sizeof(ggml::AttnSpan));
    add(port::block_table(id), static_cast<std::size_t>(sizes.table_entries) * sizeof(std::int32_t));
    const KvGroup& group = cache.group(id);
    for (std::size_t i = 0; i < group.spec().layers.size(); ++i)
      bindings_.push_back(
          {{port::pool(group.spec().layers[i]), group.layer_base(i), group.layer_bytes()}, group.spec().device});
  }
}

/// Borders with homes on one device share two buffers: a segment reads one and writes the other.
void StepPorts::add_streams(const PortHomes& homes, std::size_t bytes) {
  std::vector<std::array<std::byte*, 2>> buffers(homes.devices.size(), {nullptr, nullptr});
  const auto add_border = [&](ggml::PortId id, std::size_t border, ggml::DeviceId home) {
    std::byte*& data = buffers[static_cast<std::size_t>(home.v)][border % 2];
    if (data == nullptr) {
      const bool on_host = home.v == 0 && homes.devices.size() > 1;
      ggml::Device& device = on_host ? host_device_ : *homes.devices[static_cast<std::size_t>(home.v)];
      buffers_.push_back(device.allocate(std::max<std::size_t>(bytes, 64),
                                         on_host ? ggml::BufferKind::host_pinned : ggml::BufferKind::device));
      data = buffers_.back()->data();
    }
    bindings_.push_back({{id, data, bytes}, home});
    return data;
  };
  for (std::size_t border = 0; border < homes.streams.size(); ++border)
    add_border(port::stream(static_cast<int>(border)), border, homes.streams[border]);
  for (std::size_t border = 0; border < homes.layer_streams.size(); ++border) {
    const ggml::DeviceId home = homes.layer_streams[border];
    layer_streams_.push_back({add_border(port::layer_stream(static_cast<int>(border)), border, home), home});
  }
}

void StepPorts::add(ggml::PortId id, std::size_t bytes) {
  buffers_.push_back(host_device_.allocate(std::max<std::size_t>(bytes, 64), ggml::BufferKind::host_pinned));
  std::byte* data = buffers_.back()->data();
  host_[static_cast<std::size_t>(id.v)] = data;
  bindings_.push_back({{id, data, buffers_.back()->bytes()}, ggml::kEverywhere});
  // Rows beyond a step's count are not read, but what is small is cheap to have defined.
  if (id == port::kTokens || id == port::kPositions || id == port::kTokenTypes) std::memset(data, 0, bytes);
}

void StepPorts::grow_adjust(std::size_t entries) {
  for (ggml::PlacedPort& placed : bindings_) {
    ggml::PortBinding& binding = placed.binding;
    if (binding.port != port::kAdjust) continue;
    sizes_.adjust_entries = entries;
    std::unique_ptr<ggml::Buffer> bigger =
        host_device_.allocate(entries * sizeof(ggml::SampleAdjust), ggml::BufferKind::host_pinned);
    host_[static_cast<std::size_t>(port::kAdjust.v)] = bigger->data();
    for (std::unique_ptr<ggml::Buffer>& buffer : buffers_)
      if (buffer->data() == binding.data) buffer = std::move(bigger);
    binding.data = host_[static_cast<std::size_t>(port::kAdjust.v)];
    binding.bytes = entries * sizeof(ggml::SampleAdjust);
    return;
  }
  TANDEM_ASSERT(false, "the adjustment port is always bound");
}

}  // namespace llama
