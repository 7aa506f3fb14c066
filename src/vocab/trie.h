#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llama/types.h"

namespace llama {

/// Immutable byte trie over texts, for the matches of all lengths at one position. Thread-safe.
class Trie {
 public:
  struct Entry {
    std::string text;  // not empty
    Token value = kNoToken;
  };
  Trie() { root_.fill(-1); }
  /// The first entry wins where a text occurs twice.
  explicit Trie(std::vector<Entry> entries);

  [[nodiscard]] bool empty() const noexcept { return nodes_.empty(); }
  /// Whether any text begins with `byte`.
  [[nodiscard]] bool starts_with(unsigned char byte) const noexcept { return root_[byte] >= 0; }

  /// Calls on_match(length, value) for each text that begins `text`, shortest first.
  template <class OnMatch>
  void matches(std::string_view text, OnMatch on_match) const {
    std::int32_t node = -1;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node < 0) return;
      if (nodes_[static_cast<std::size_t>(node)].value != kNoToken) {
        on_match(i + 1, nodes_[static_cast<std::size_t>(node)].value);
      }
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
  struct Node {
    Token value = kNoToken;
    std::uint32_t first_edge = 0;  // edges are contiguous, ascending by byte
    std::uint32_t n_edges = 0;
  };
  struct Edge {
    unsigned char byte = 0;
    std::int32_t node = -1;
  };
  /// The node below `node` (-1: the root) along `byte`, or -1.
  [[nodiscard]] std::int32_t child(std::int32_t node, unsigned char byte) const noexcept;

  std::array<std::int32_t, 256> root_{};
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
};

}  // namespace llama
