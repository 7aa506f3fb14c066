#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llama/types.h"

namespace llama {

class Vocab;

/// The sequence breakers of DRY, recognised in tokens: one whose text holds a whole breaker, or one that ends with a
/// breaker's beginning and is followed by the tokens of the rest, its tail.
///
/// All breakers are searched for together, so that making this costs the same for one as for many: the texts of the
/// vocabulary are read once. Immutable; `vocab` must outlive it.
class Breakers {
 public:
  Breakers(std::span<const std::string> texts, const Vocab& vocab);

  /// Whether the token is a breaker by itself.
  [[nodiscard]] bool breaks(Token token) const;
  /// Length of the longest tail that completes a breaker which begins in recent[at]; 0 when that token is one by
  /// itself, nothing when none begins there. `recent` has the newest token first.
  [[nodiscard]] std::optional<std::size_t> tail_behind(std::span<const Token> recent, std::size_t at) const;

 private:
  /// A beginning of breakers, as a node of an Aho-Corasick automaton over bytes.
  struct Node {
    std::map<std::uint8_t, std::uint32_t> next;
    std::uint32_t fallback = 0;           // the longest proper suffix that is a beginning too
    bool holds_breaker = false;           // a breaker ends here, or at one of the fallbacks
    bool is_used = false;                 // some token ends with it
    std::vector<std::uint32_t> breakers;  // that go on from here
    std::uint32_t first_tail = 0, n_tails = 0;
  };
  struct Tail {
    std::vector<Token> tokens;
    std::uint32_t breaker;
  };
  /// A token that holds a breaker, or ends with a beginning of one.
  struct Head {
    Token token;
    std::uint32_t node;
    bool holds_breaker;
  };

  void add(std::string_view text);
  void link();
  [[nodiscard]] std::uint32_t step(std::uint32_t node, std::uint8_t byte) const;
  void read_vocabulary();
  void add_tails(Node& node, std::size_t depth);
  [[nodiscard]] const Head* head_of(Token token) const;
  [[nodiscard]] std::optional<std::size_t> longest_tail(const Node& node, const Head& head,
                                                        std::span<const Token> recent, std::size_t at) const;
  [[nodiscard]] bool counts(const Tail& tail, const Head& head) const;

  const Vocab& vocab_;
  std::vector<std::string> texts_;
  std::vector<Node> nodes_;
  std::array<std::uint32_t, 256> first_{};  // from the root, the step that is made most often
  std::vector<Tail> tails_;                 // of each node side by side, in the order of their tokens
  std::vector<Head> heads_;                 // by token
};

}  // namespace llama
