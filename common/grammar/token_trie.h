#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "llama/types.h"

namespace llama {
class Vocab;
}

namespace common::grammar {

/// The texts of a vocabulary's tokens as a trie in depth-first order: a subtree is a run of nodes. Node 0 is the root
/// (no bytes). Tokens that end the generation, have no text or begin with NUL are left out. Immutable.
class TokenTrie {
 public:
  struct Node {
    std::uint32_t end = 0;    // behind the last node of the subtree
    llama::Token token = -1;  // whose text ends here; more in same_text(); -1: none
    std::uint16_t depth = 0;  // bytes
    std::uint8_t byte = 0;
    bool has_twins = false;  // further tokens have this text
  };

  explicit TokenTrie(const llama::Vocab& vocab);

  [[nodiscard]] std::span<const Node> nodes() const { return nodes_; }
  [[nodiscard]] int max_depth() const { return max_depth_; }
  [[nodiscard]] std::int32_t n_tokens() const { return n_tokens_; }
  /// The next token with the text of `token`, or -1.
  [[nodiscard]] llama::Token twin(llama::Token token) const { return twins_[static_cast<std::size_t>(token)]; }
  /// Bit mask of all tokens in the trie.
  [[nodiscard]] std::span<const std::uint32_t> all() const { return all_; }

 private:
  std::vector<Node> nodes_;
  std::vector<llama::Token> twins_;
  std::vector<std::uint32_t> all_;
  int max_depth_ = 0;
  std::int32_t n_tokens_ = 0;
};

}  // namespace common::grammar
