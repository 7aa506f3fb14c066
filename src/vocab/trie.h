#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llama/types.h"

namespace llama {

/// Immutable byte trie over texts, for the matches of all lengths at one position. Thread-safe.
///
/// A double array: the child of a node along a byte lies at base ^ byte and is the node's own if it names the node as
/// its parent. A step is one read, whatever the fan-out.
class Trie {
 public:
  struct Entry {
    std::string text;  // not empty
    Token value = kNoToken;
  };
  Trie() : Trie(std::vector<Entry>{}) {}
  /// The first entry wins where a text occurs twice. Throws Error(exceeds_limit) for more nodes than can be numbered.
  explicit Trie(std::vector<Entry> entries);

  [[nodiscard]] bool empty() const noexcept { return empty_; }
  /// Whether any text begins with `byte`.
  [[nodiscard]] bool starts_with(unsigned char byte) const noexcept { return first_[byte]; }

  /// Calls on_match(length, value) for each text that begins `text`, shortest first.
  template <class OnMatch>
  void matches(std::string_view text, OnMatch on_match) const {
    std::uint32_t node = kRoot;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == kNone) return;
      if (const Token value = nodes_[node].value; value != kNoToken) on_match(i + 1, value);
    }
  }

  struct Match {
    std::size_t length = 0;  // 0 when nothing matches
    Token value = kNoToken;
  };
  /// The longest text that begins `text`.
  [[nodiscard]] Match longest(std::string_view text) const {
    Match best;
    matches(text, [&](std::size_t length, Token value) { best = {length, value}; });
    return best;
  }

 private:
  friend class TrieBuilder;
  static constexpr std::uint32_t kRoot = 0;
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Node {
    std::uint32_t base = 0;
    std::uint32_t parent = kNone;  // kNone: the root, or a free slot
    Token value = kNoToken;
  };

  /// The node below `node` along `byte`, or kNone. Slots come in blocks of 256, so base ^ byte is one of them.
  [[nodiscard]] std::uint32_t child(std::uint32_t node, unsigned char byte) const noexcept {
    const std::uint32_t next = nodes_[node].base ^ byte;
    return nodes_[next].parent == node ? next : kNone;
  }

  std::vector<Node> nodes_;
  std::array<bool, 256> first_{};  // whether the root has a child along the byte
  bool empty_ = true;
};

}  // namespace llama
