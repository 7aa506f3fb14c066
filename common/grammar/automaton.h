#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/grammar/syntax.h"

namespace common::grammar {

using NodeId = std::uint32_t;

enum class EdgeKind : std::uint8_t {
  empty,     // consumes nothing
  bytes,     // one byte of the classes lo..hi
  call,      // the whole of rule `value`
  token,     // the token `value`
  not_token  // any one token but `value`
};

struct Edge {
  EdgeKind kind = EdgeKind::empty;
  std::uint8_t lo = 0, hi = 0;
  std::uint32_t value = 0;
  NodeId target = 0;
};

/// The rules of a grammar as nondeterministic automata over bytes that call each other. Small rules and those used once
/// are already part of their users. Immutable.
///
/// Bytes that no edge tells apart share a class; classes are intervals, numbered upwards.
class Automaton {
 public:
  /// Throws Error(exceeds_limit) when the grammar needs too many nodes.
  explicit Automaton(const Syntax& syntax);

  [[nodiscard]] std::size_t n_nodes() const { return first_edge_.size() - 1; }
  [[nodiscard]] std::span<const Edge> edges(NodeId node) const {
    return {edges_.data() + first_edge_[node], first_edge_[node + 1] - first_edge_[node]};
  }
  [[nodiscard]] NodeId start(std::uint32_t rule) const { return rules_[rule].start; }
  /// Whether a rule ends at this node.
  [[nodiscard]] bool is_end(NodeId node) const { return is_end_[node]; }
  [[nodiscard]] std::uint32_t root() const { return root_; }
  [[nodiscard]] std::size_t n_rules() const { return rules_.size(); }
  [[nodiscard]] std::size_t n_classes() const { return n_classes_; }
  [[nodiscard]] std::uint8_t class_of(std::uint8_t byte) const { return class_of_[byte]; }

 private:
  friend class AutomatonBuilder;
  struct RuleNodes {
    NodeId start = 0, end = 0;
  };
  std::vector<std::uint32_t> first_edge_;  // [n_nodes + 1]
  std::vector<Edge> edges_;
  std::vector<bool> is_end_;
  std::vector<RuleNodes> rules_;
  std::uint32_t root_ = 0;
  std::size_t n_classes_ = 1;
  std::array<std::uint8_t, 256> class_of_{};
};

/// Which rules are copied into their users, and how large that makes them.
class InlinePlan {
 public:
  explicit InlinePlan(const Syntax& syntax);

  /// Whether `rule`, used in `user`, is copied there.
  [[nodiscard]] bool inlines(std::size_t user, std::size_t rule) const {
    return order_[rule] < order_[user] && costs_[rule].may_inline;
  }
  /// Nodes that one copy of the alternatives adds, in rule `user`.
  [[nodiscard]] std::int64_t nodes_of(std::size_t user, const Alternatives& body) const {
    return cost_of(user, body).nodes;
  }
  [[nodiscard]] bool is_used(std::size_t rule) const { return costs_[rule].uses > 0; }

 private:
  struct Cost {
    std::int64_t nodes = 0;
    int depth = 0;  // of nested groups and copies
    bool has_loop = false;
    std::int64_t uses = 0;
    bool may_inline = false;
  };
  void find_order(const Syntax& syntax);
  [[nodiscard]] Cost cost_of(std::size_t user, const Alternatives& body) const;
  [[nodiscard]] Cost cost_of(std::size_t user, const Item& item) const;

  std::vector<std::uint32_t> order_;  // [n_rules] place in the order in which rules are finished, users last
  std::vector<Cost> costs_;
};

}  // namespace common::grammar
