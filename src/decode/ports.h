#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ggml/device.h"
#include "ggml/kv_layout.h"
#include "ggml/sample_row.h"
#include "ggml/scheduler.h"
#include "kv/kv_cache.h"
#include "llama/types.h"

namespace llama {

/// Numbers of the memory that step graphs read and write. Fixed for the life of a context, so that compiled programs
/// stay valid from step to step.
namespace port {
inline constexpr ggml::PortId kTokens{0};       // [T] i32
inline constexpr ggml::PortId kPositions{1};    // [T] i32
inline constexpr ggml::PortId kOutputRows{4};   // [T] i32: rows that leave the last layer when it is trimmed
inline constexpr ggml::PortId kHeadRows{5};     // [outputs] i32: rows that the head evaluates
inline constexpr ggml::PortId kLogits{6};       // [n_vocab, outputs]
inline constexpr ggml::PortId kSampleRows{7};   // SampleRow per output
inline constexpr ggml::PortId kAdjust{8};       // SampleAdjust list
inline constexpr ggml::PortId kMasks{9};        // [ceil(n_vocab / 32), outputs]
inline constexpr ggml::PortId kSampled{10};     // SampleResult per output
inline constexpr ggml::PortId kTokenTypes{11};  // [T] i32, all zero
inline constexpr ggml::PortId kEmbeddings{12};  // [n_embd, T or sequences]

/// [n_embd, T] residual stream between segments: segment i writes border i, segment i + 1 reads it. Two buffers per
/// device take turns.
inline constexpr int kFirstStream = 2048;  // groups (fewer than layers: at most 512) and adapters come before it
[[nodiscard]] constexpr ggml::PortId stream(int segment_border) {
  return ggml::PortId(kFirstStream + segment_border);
}
/// The same in front of each layer, for steps that walk layer after layer; the last border is behind the last layer.
inline constexpr int kFirstLayerStream = 3072;
[[nodiscard]] constexpr ggml::PortId layer_stream(int border) {
  return ggml::PortId(kFirstLayerStream + border);
}
[[nodiscard]] constexpr ggml::PortId spans(GroupId group) {
  return ggml::PortId(16 + 2 * group.v);
}
[[nodiscard]] constexpr ggml::PortId block_table(GroupId group) {
  return ggml::PortId(17 + 2 * group.v);
}
/// [1, T] f32: factors of a LoRA adapter, per row; and [1, outputs] per row that the head evaluates.
inline constexpr int kFirstAdapter = 1536;  // groups come before it
[[nodiscard]] constexpr ggml::PortId adapter_scales(int adapter) {
  return ggml::PortId(kFirstAdapter + 2 * adapter);
}
[[nodiscard]] constexpr ggml::PortId adapter_head_scales(int adapter) {
  return ggml::PortId(kFirstAdapter + 2 * adapter + 1);
}
inline constexpr int kFirstPool = 4096;
[[nodiscard]] constexpr ggml::PortId pool(LayerId layer) {
  return ggml::PortId(kFirstPool + layer.v);
}
}  // namespace port

/// Capacities of a context's step inputs and outputs.
struct PortSizes {
  int n_ubatch = 0;
  int n_seq_max = 0;
  int n_embd = 0;
  int n_vocab = 0;
  int max_head_rows = 0;   // rows the head evaluates at a time
  int embedding_rows = 0;  // 0: none are given
  int table_entries = 0;   // of one group's block tables, all sequences together
  std::size_t adjust_entries = 0;
  int n_adapters = 0;
};

/// The devices of a context, and where the stream lies.
struct PortHomes {
  std::span<ggml::Device* const> devices;
  std::vector<ggml::DeviceId> streams;             // per border between segments
  std::vector<ggml::DeviceId> layers;              // per layer; empty: all on the first device
  std::vector<ggml::DeviceId> layer_streams = {};  // per border between layers; empty: no step walks them one by one

  /// The one that gives host memory which all of them reach.
  [[nodiscard]] ggml::Device& host() const { return *devices[devices.size() > 1 ? 1 : 0]; }
};

/// The buffers behind the ports, with typed access for the host. Thread-compatible.
class StepPorts {
 public:
  StepPorts(const PortSizes& sizes, const KvCache& cache, const PortHomes& homes);

  [[nodiscard]] std::span<const ggml::PlacedPort> bindings() const { return bindings_; }
  [[nodiscard]] const PortSizes& sizes() const { return sizes_; }

  [[nodiscard]] std::int32_t* tokens() { return as<std::int32_t>(port::kTokens); }
  [[nodiscard]] std::int32_t* positions() { return as<std::int32_t>(port::kPositions); }
  [[nodiscard]] std::int32_t* output_rows() { return as<std::int32_t>(port::kOutputRows); }
  [[nodiscard]] std::int32_t* head_rows() { return as<std::int32_t>(port::kHeadRows); }
  [[nodiscard]] const float* logits() { return as<float>(port::kLogits); }
  [[nodiscard]] const float* embeddings() { return as<float>(port::kEmbeddings); }
  [[nodiscard]] ggml::SampleRow* sample_rows() { return as<ggml::SampleRow>(port::kSampleRows); }
  [[nodiscard]] ggml::SampleAdjust* adjust() { return as<ggml::SampleAdjust>(port::kAdjust); }
  [[nodiscard]] std::uint32_t* masks() { return as<std::uint32_t>(port::kMasks); }
  [[nodiscard]] const ggml::SampleResult* sampled() { return as<ggml::SampleResult>(port::kSampled); }
  [[nodiscard]] ggml::AttnSpan* spans(GroupId group) { return as<ggml::AttnSpan>(port::spans(group)); }
  [[nodiscard]] std::int32_t* block_table(GroupId group) { return as<std::int32_t>(port::block_table(group)); }
  [[nodiscard]] float* adapter_scales(int adapter) { return as<float>(port::adapter_scales(adapter)); }
  [[nodiscard]] float* adapter_head_scales(int adapter) { return as<float>(port::adapter_head_scales(adapter)); }
  [[nodiscard]] int mask_words() const { return (sizes_.n_vocab + 31) / 32; }

  /// The stream between layers.
  struct Stream {
    std::byte* data = nullptr;
    ggml::DeviceId home{0};
  };
  [[nodiscard]] const Stream& layer_stream(int border) const {
    return layer_streams_[static_cast<std::size_t>(border)];
  }

  /// Makes room for more adjustments; programs compiled before point to the old memory and must be built anew.
  void grow_adjust(std::size_t entries);

 private:
  /// What the host reads or writes lies in host memory that all devices reach in place.
  void add(ggml::PortId id, std::size_t bytes);
  void add_streams(const PortHomes& homes, std::size_t bytes);
  template <class T>
  [[nodiscard]] T* as(ggml::PortId id) {
    return reinterpret_cast<T*>(host_[static_cast<std::size_t>(id.v)]);
  }

  PortSizes sizes_;
  ggml::Device& host_device_;
  std::vector<ggml::PlacedPort> bindings_;
  std::vector<std::unique_ptr<ggml::Buffer>> buffers_;
  std::vector<std::byte*> host_;  // by port number, below kFirstStream
  std::vector<Stream> layer_streams_;
};

/// One set, or two where several cards work on neighbouring ubatches at one time: while one set is in use the other is
/// filled.
using PortSets = std::vector<std::unique_ptr<StepPorts>>;

}  // namespace llama
