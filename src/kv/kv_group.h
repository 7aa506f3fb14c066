#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ggml/device.h"
#include "ggml/kv_layout.h"
#include "kv/block_pool.h"
#include "llama/types.h"

namespace llama {

/// What a group remembers of a sequence.
enum class KvKind : std::uint8_t {
  full,    // every cell
  window,  // the last `window` cells and some more, so that a sequence can be cut back a little
};

/// Layers that store equal things for equal times.
struct KvGroupSpec {
  KvKind kind = KvKind::full;
  int window = 0;
  ggml::KvLayout layout;
  std::vector<LayerId> layers;
  int n_blocks = 0;          // of the pool; each block holds 64 cells of every layer
  ggml::DeviceId device{0};  // index in the list of the cache's devices
};

/// Cells a window group keeps beyond its window: how far a sequence can be cut back and continued.
inline constexpr int kWindowMarginCells = 256;

/// The blocks of one sequence in one group. Entry i covers the cells [64 i, 64 i + 64); -1 marks a freed one.
struct BlockTable {
  std::vector<std::int32_t> blocks;
  int first_block = 0;  // entries before are -1
  int first_cell = 0;   // cells before are forgotten; inside or at the start of first_block
};

/// One KV group: pool, memory and the tables of all sequences. Thread-compatible.
class KvGroup {
 public:
  /// Allocates the memory; throws DeviceError.
  KvGroup(const KvGroupSpec& spec, int n_sequences, int max_cells, ggml::Device& device);

  [[nodiscard]] const KvGroupSpec& spec() const { return spec_; }
  [[nodiscard]] const BlockPool& pool() const { return pool_; }
  [[nodiscard]] const BlockTable& table(SeqId seq) const { return tables_[static_cast<std::size_t>(seq.v)]; }
  /// Start of the blocks of the group's `index`-th layer; block b lies b * block_bytes() further on.
  [[nodiscard]] std::byte* layer_base(std::size_t index) const;
  [[nodiscard]] ggml::Device& device() const { return device_; }
  [[nodiscard]] std::size_t layer_bytes() const;
  [[nodiscard]] std::size_t total_bytes() const { return spec_.layers.size() * layer_bytes(); }

  /// Blocks that must be free before the sequence can grow from `length` to `length + n`.
  [[nodiscard]] int blocks_to_append(SeqId seq, int length, int n) const;
  /// Makes the cells [length, length + n) writable: new blocks, and copies of shared ones. Pre: enough free blocks.
  void append(SeqId seq, int length, int n);
  /// Frees what neither the window nor the margin reaches from `length` on.
  void forget(SeqId seq, int length);
  void truncate(SeqId seq, int length);
  [[nodiscard]] bool can_resume(SeqId seq, int length) const;
  /// The smallest length above zero at which the sequence can be continued.
  [[nodiscard]] int earliest_resume(SeqId seq) const;
  void share(SeqId dst, SeqId src, int n);
  /// Blocks to copy before the cells [begin, end) may be written.
  [[nodiscard]] int shared_blocks(SeqId seq, int begin, int end) const;
  /// Gives the sequence its own copies of the blocks of [begin, end). Pre: enough free blocks.
  void make_writable(SeqId seq, int begin, int end);
  void set_first_cell(SeqId seq, int cell) { tables_[static_cast<std::size_t>(seq.v)].first_cell = cell; }

  void check_integrity(std::span<const int> lengths) const;

 private:
  [[nodiscard]] BlockTable& mutable_table(SeqId seq) { return tables_[static_cast<std::size_t>(seq.v)]; }
  [[nodiscard]] BlockId take_clean();
  void copy_on_write(std::int32_t& entry);

  KvGroupSpec spec_;
  BlockPool pool_;
  std::unique_ptr<ggml::Buffer> memory_;
  std::vector<BlockTable> tables_;
  ggml::Device& device_;
};

}  // namespace llama
