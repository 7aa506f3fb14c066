#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "common/grammar/automaton.h"

namespace common::grammar {

using StateId = std::uint32_t;
inline constexpr StateId kDeadState = 0;

/// Hash of a list of numbers (FNV-1a over words).
struct ListHash {
  std::size_t operator()(const std::vector<std::uint32_t>& list) const noexcept {
    std::uint64_t h = 14695981039346656037u;
    for (const std::uint32_t v : list) h = (h ^ v) * 1099511628211u;
    return static_cast<std::size_t>(h ^ h >> 32);
  }
};

/// The rules' automata made deterministic as far as texts have led into them: a state is a set of nodes of one rule.
/// Ids stay valid for the life of the table. Not thread-safe: even reads may add states.
class StateTable {
 public:
  struct Call {
    std::uint32_t rule;
    StateId after;  // where the caller goes on
  };
  struct TokenEdge {
    llama::Token token;
    bool negated;
    StateId after;
  };
  struct State {
    bool accepting = false;  // the rule may end here
    bool has_bytes = false, has_tokens = false;
    bool is_only_end = false;  // accepting, and nothing else
    bool is_expanded = false;
    std::vector<NodeId> nodes;      // closed under empty edges, without those that only have such edges; ascending
    std::vector<Call> calls;        // one per rule; once expanded
    std::vector<TokenEdge> tokens;  // once expanded
  };

  explicit StateTable(const Automaton& automaton);

  [[nodiscard]] const Automaton& automaton() const { return automaton_; }
  [[nodiscard]] StateId start(std::uint32_t rule);
  /// The state after a byte of this class; kDeadState when there is none. Throws Error(exceeds_limit).
  [[nodiscard]] StateId next(StateId state, std::uint8_t byte_class) {
    const StateId known = next_[state * n_classes_ + byte_class];
    return known != kUnknown ? known : find_next(state, byte_class);
  }
  [[nodiscard]] const State& state(StateId id) const { return states_[id]; }
  /// The same with calls and tokens.
  [[nodiscard]] const State& expanded(StateId id);
  [[nodiscard]] std::size_t size() const { return states_.size(); }

 private:
  static constexpr StateId kUnknown = 0xFFFFFFFFu;
  StateId find_next(StateId state, std::uint8_t byte_class);
  StateId intern(const std::vector<NodeId>& seeds);

  const Automaton& automaton_;
  const std::size_t n_classes_;
  std::deque<State> states_;   // stays in place when it grows
  std::vector<StateId> next_;  // [n_states, n_classes]
  std::unordered_map<std::vector<NodeId>, StateId, ListHash> ids_;
  std::vector<StateId> starts_;      // [n_rules] kUnknown until asked for
  std::vector<std::uint32_t> mark_;  // [n_nodes] the round in which a node was seen
  std::uint32_t round_ = 0;
  std::size_t node_entries_ = 0;  // in all states together
};

}  // namespace common::grammar
