#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ggml/device.h"
#include "kv/kv_cells.h"
#include "kv/kv_group.h"
#include "kv/state_cache.h"
#include "llama/types.h"

namespace llama {

/// The KV cache of one context: groups, and the lengths of the sequences. A cell is the place of one token in its
/// sequence. Sequences share blocks by reference; who writes into a shared block gets a copy of it first.
/// Thread-compatible.
class KvCache {
 public:
  /// Throws DeviceError when the memory cannot be had. `max_cells`: length that no sequence exceeds.
  /// `states`: the model's recurrent layers, null when it has none.
  /// `devices`: those that groups and states name by number; borrowed.
  KvCache(std::span<const KvGroupSpec> groups, const StateSpec* states, int n_sequences, int max_cells,
          std::span<ggml::Device* const> devices);
  KvCache(std::span<const KvGroupSpec> groups, int n_sequences, int max_cells, ggml::Device& device)
      : KvCache(groups, nullptr, n_sequences, max_cells, std::vector<ggml::Device*>{&device}) {}

  [[nodiscard]] int n_groups() const { return static_cast<int>(groups_.size()); }
  [[nodiscard]] const KvGroup& group(GroupId id) const { return groups_[static_cast<std::size_t>(id.v)]; }
  /// Null when the model has no recurrent layers.
  [[nodiscard]] const StateCache* states() const { return states_ ? &*states_ : nullptr; }
  [[nodiscard]] std::size_t total_bytes() const;
  /// Bytes that one more cell takes in all layers of full groups.
  [[nodiscard]] std::size_t bytes_per_cell() const;

  /// Throws Error(unavailable) when all `n_sequences` are alive.
  SeqId create();
  void remove(SeqId seq);
  /// Throws Error(invalid_argument) for a sequence that is not alive.
  void check_alive(SeqId seq) const;
  [[nodiscard]] bool is_alive(SeqId seq) const noexcept;
  [[nodiscard]] int length(SeqId seq) const { return lengths_[static_cast<std::size_t>(seq.v)]; }

  struct Growth {
    SeqId seq;
    int n_cells = 0;
  };
  /// Whether all of these fit together. Allocates nothing.
  [[nodiscard]] bool can_append(std::span<const Growth> growths) const;
  /// Makes room for the new cells of all, or throws Error(exceeds_limit) with the figures and changes nothing.
  void append(std::span<const Growth> growths);
  /// After the new cells were written: frees what no window reaches any more.
  void settle(SeqId seq);

  /// Cuts the sequence; throws Error(unsupported) where resume_point(seq, n) is not n.
  void truncate(SeqId seq, int n_cells);
  /// The same without the check: undoes an append() that was not settled.
  void roll_back(SeqId seq, int n_cells);
  [[nodiscard]] int resume_point(SeqId seq, int n_cells) const;
  /// `dst` (empty) shares the first n cells of `src`. Throws Error(invalid_argument | unsupported).
  void share_prefix(SeqId dst, SeqId src, int n_cells);

  /// How keys of a layer are rotated; index = LayerId.
  struct LayerRope {
    ggml::RopeParams params;
    const float* factors = nullptr;
    bool hadamard = false;  // keys are stored Hadamard-transformed
  };
  /// Drops the cells [begin, begin + n), moves the later ones up and turns their keys back by n positions.
  void shift(SeqId seq, int begin, int n, std::span<const LayerRope> ropes);

  void check_integrity() const;

 private:
  void check_shift(SeqId seq, int begin, int n) const;

  std::vector<KvGroup> groups_;
  std::optional<StateCache> states_;
  std::vector<int> lengths_;
  std::vector<bool> alive_;
};

}  // namespace llama
