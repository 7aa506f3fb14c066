#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "llama/types.h"

namespace llama {

[[nodiscard]] std::uint64_t hash_text(std::string_view text) noexcept;

/// Hash table from text to token id. Keys are views: the owner keeps the texts alive. Thread-safe once filled.
class TextIndex {
 public:
  explicit TextIndex(std::size_t expected = 0) { reserve(expected); }
  void reserve(std::size_t expected);
  /// Adds `text`; the first id wins where a text occurs twice. Returns whether it was added.
  bool insert(std::string_view text, Token id);
  [[nodiscard]] Token find(std::string_view text) const noexcept;
  /// Longest key in bytes: longer texts need no look-up.
  [[nodiscard]] std::size_t longest() const noexcept { return longest_; }

 private:
  struct Slot {
    const char* data = nullptr;
    std::uint32_t size = 0;
    Token id = kNoToken;
  };
  void grow(std::size_t slots);
  [[nodiscard]] std::size_t slot_of(std::string_view text) const noexcept;

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::size_t longest_ = 0;
};

/// What two adjacent symbols become.
struct Merge {
  std::uint32_t rank = UINT32_MAX;  // lower merges first; UINT32_MAX when the pair does not merge
  std::int32_t symbol = -1;
};

/// Hash table from a pair of symbols to its merge. Thread-safe once filled.
class MergeIndex {
 public:
  explicit MergeIndex(std::size_t expected);
  /// The first merge of a pair wins.
  void insert(std::int32_t left, std::int32_t right, Merge merge);
  [[nodiscard]] Merge find(std::int32_t left, std::int32_t right) const noexcept {
    if (left < 0 || right < 0) return {};
    const std::uint64_t key = pack(left, right);
    for (std::size_t i = mix(key) & mask_;; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kFree) return {};
    }
  }

 private:
  static constexpr std::uint64_t kFree = UINT64_MAX;  // symbols are not negative, so no pair packs to this
  struct Slot {
    std::uint64_t key = kFree;
    Merge merge;
  };
  static std::uint64_t pack(std::int32_t left, std::int32_t right) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  static std::uint64_t mix(std::uint64_t key) noexcept {
    key *= 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio: spreads consecutive ids over the table
    return key ^ (key >> 29);
  }
  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
};

}  // namespace llama
