#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ggml/device.h"
#include "kv/block_pool.h"
#include "llama/types.h"

namespace llama {

/// Layers with a recurrent state of fixed size per sequence.
struct StateSpec {
  std::vector<LayerId> layers;
  std::vector<ggml::DeviceId> devices;  // of each layer: index in the list of the cache's devices; empty: all 0
  std::int64_t slot_floats = 0;         // of one layer and sequence
  int n_checkpoints = 0;                // states of a sequence's past that are kept beside the present one
};

/// Bytes of the states of one layer for `n_sequences`.
[[nodiscard]] std::size_t state_layer_bytes(const StateSpec& spec, int n_sequences);

/// The states of recurrent layers: numbered slots, each with one state of every layer. A sequence has its present state
/// and checkpoints, to which it can be cut back; sequences that share a prefix share slots by reference, since a step
/// never changes a slot that was there before it. Thread-compatible.
class StateCache {
 public:
  /// Allocates the memory; throws DeviceError.
  StateCache(const StateSpec& spec, int n_sequences, std::span<ggml::Device* const> devices);

  [[nodiscard]] const StateSpec& spec() const { return spec_; }
  [[nodiscard]] std::byte* layer_base(std::size_t index) const { return bases_[index]; }
  [[nodiscard]] ggml::DeviceId device_of(std::size_t index) const {
    return spec_.devices.empty() ? ggml::DeviceId(0) : spec_.devices[index];
  }
  [[nodiscard]] std::size_t layer_bytes() const;
  [[nodiscard]] std::size_t total_bytes() const { return spec_.layers.size() * layer_bytes(); }
  /// Bytes of one sequence's state.
  [[nodiscard]] std::size_t state_bytes() const;

  /// Takes slots for what a step of `n` tokens will leave behind.
  void append(SeqId seq, int n);
  /// The slots of one part of the running step. `first`: it starts the step; `last`: it ends it.
  struct Slots {
    std::int32_t from, to, before_last;
  };
  [[nodiscard]] Slots slots(SeqId seq, bool first, bool last) const;
  /// The step succeeded and the sequence has `length` tokens now.
  void settle(SeqId seq, int length);
  /// Forgets the running step, and states behind `length`.
  void roll_back(SeqId seq, int length);
  /// The largest length <= `length` with a state; 0 when there is none.
  [[nodiscard]] int resume_point(SeqId seq, int length) const;
  void share(SeqId dst, SeqId src, int length);

  void check_integrity(std::span<const int> lengths) const;

 private:
  struct Snapshot {
    int length;
    BlockId slot;
    bool checkpoint;  // else it goes when the next one comes
  };
  struct Sequence {
    std::vector<Snapshot> snapshots;    // by rising length; the last one is the present
    BlockId next{-1}, before_last{-1};  // of the running step
  };

  [[nodiscard]] Sequence& of(SeqId seq) { return sequences_[static_cast<std::size_t>(seq.v)]; }
  [[nodiscard]] const Sequence& of(SeqId seq) const { return sequences_[static_cast<std::size_t>(seq.v)]; }
  void drop(Sequence& sequence, std::size_t index);
  void drop_pending(Sequence& sequence);
  void thin(Sequence& sequence);

  StateSpec spec_;
  BlockPool pool_;
  std::vector<std::unique_ptr<ggml::Buffer>> memory_;  // per device that has layers
  std::vector<std::byte*> bases_;                      // per layer
  std::vector<Sequence> sequences_;
};

}  // namespace llama
