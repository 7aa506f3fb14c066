#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ggml/kv_layout.h"
#include "ggml/op.h"

namespace llama {

/// Turns keys by a fixed number of positions: what moves them from one place of a sequence to another (context shift).
/// The magnitude that YaRN gives a key stays as it is.
class KeyRotation {
 public:
  /// `factors` [n_rot / 2] or null. `positions` may be negative. `hadamard`: keys were transformed after their rotation
  /// (-khad), which has to be undone before they are turned and done again.
  KeyRotation(const ggml::RopeParams& params, const float* factors, int positions, bool hadamard = false);
  /// Rotates one head's key, f32 [dk].
  void apply(std::span<float> key) const;

 private:
  ggml::RopeLayout layout_;
  std::size_t first_;
  bool hadamard_;
  std::vector<float> cos_, sin_;  // one per pair
};

/// One layer's keys and values of one block, cell by cell.
class KvCells {
 public:
  KvCells(const ggml::KvLayout& layout, std::byte* block) : layout_(layout), block_(block) {}

  /// Copies cell `from` of another block (or of this one) to cell `to`, keys and values, as stored.
  void copy_cell(int to, const KvCells& other, int from);
  /// Decodes, rotates and stores again the keys of one cell. `scratch` [dk].
  void rotate_key(int cell, const KeyRotation& rotation, std::span<float> scratch);

 private:
  const ggml::KvLayout& layout_;
  std::byte* block_;
};

}  // namespace llama
