#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ggml/type.h"

namespace gguf_tool {

/// A fast generator of random words (xoshiro256**); the same seed gives the same words on every machine.
class RandomWords {
 public:
  explicit RandomWords(std::uint64_t seed);
  std::uint64_t next();
  /// A standard normal value.
  double normal();
  /// Uniform in [0, 1).
  double uniform();

 private:
  std::uint64_t state_[4];
};

/// Makes rows of one type with random weights of a given spread about zero.
///
/// Immutable after construction: any number of threads may fill at once. For the float types the values are drawn from
/// a table of 65536 normal values. For the common quantised types all bits are random and the scales are set such that
/// the root mean square of the values is `spread`; rows of the others are put together from a pool of encoded blocks.
class RandomBlocks {
 public:
  /// `row`: weights of a row.
  RandomBlocks(ggml::DType type, double spread, std::int64_t row);
  /// Fills whole units. Pre: dst.size() is a multiple of unit_bytes().
  void fill(std::span<std::byte> dst, std::uint64_t seed) const;
  /// A block, or a group of rows where rows have a header or lie together.
  [[nodiscard]] std::size_t unit_bytes() const { return unit_bytes_; }

  [[nodiscard]] static bool can_fill(ggml::DType type);

 private:
  void fill_floats(std::span<std::byte> dst, RandomWords& random) const;
  void fill_quants(std::span<std::byte> dst, RandomWords& random) const;
  void make_pool();
  void fill_from_pool(std::span<std::byte> dst, RandomWords& random) const;

  ggml::DType type_;
  std::size_t block_bytes_;  // of all rows of a group
  std::size_t unit_bytes_;
  double spread_;
  std::vector<std::byte> values_;  // float types: the table of encoded values; pool types: headers, then blocks
};

}  // namespace gguf_tool
