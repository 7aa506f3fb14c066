#include "common/grammar/automaton.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "ggml/error.h"
#include "ggml/log.h"

namespace common::grammar {

using ggml::Error;
using ggml::ErrorCode;

namespace {

constexpr std::size_t kMaxNodes = 1'000'000;
// A group that is repeated becomes a rule of its own when its copies would be larger than this.
constexpr std::int64_t kMaxCopiedGroupNodes = 256;

/// A run of UTF-8 sequences that differ only inside a range at each byte.
struct ByteSequence {
  int length = 0;
  std::uint8_t lo[4]{}, hi[4]{};
};

/// Splits a range of code points into byte sequences (the method of utf8-ranges: first by length, then so that all
/// trailing bytes below the first difference run through their whole range).
void split_utf8(CodeRange range, std::vector<ByteSequence>& out) {
  constexpr std::uint32_t kLastOfLength[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
  for (const std::uint32_t last : kLastOfLength) {
    if (range.lo <= last && range.hi > last) {
      split_utf8({range.lo, last}, out);
      split_utf8({last + 1, range.hi}, out);
      return;
    }
  }
  for (int i = 1; i < 4; ++i) {
    const std::uint32_t mask = (1u << (6 * i)) - 1;
    if ((range.lo & ~mask) == (range.hi & ~mask)) continue;
    if ((range.lo & mask) != 0) {
      split_utf8({range.lo, range.lo | mask}, out);
      split_utf8({(range.lo | mask) + 1, range.hi}, out);
      return;
    }
    if ((range.hi & mask) != mask) {
      split_utf8({range.lo, (range.hi & ~mask) - 1}, out);
      split_utf8({range.hi & ~mask, range.hi}, out);
      return;
    }
  }
  std::string first, last;
  append_utf8(first, range.lo);
  append_utf8(last, range.hi);
  ByteSequence sequence;
  sequence.length = static_cast<int>(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    sequence.lo[i] = static_cast<std::uint8_t>(first[i]);
    sequence.hi[i] = static_cast<std::uint8_t>(last[i]);
  }
  out.push_back(sequence);
}

}  // namespace

/// Writes the nodes and edges of all rules that are called.
class AutomatonBuilder {
 public:
  AutomatonBuilder(const Syntax& syntax, Automaton& out) : syntax_(syntax), plan_(syntax), out_(out) {}

  void run() {
    out_.root_ =
        called_rule({static_cast<std::size_t>(syntax_.root), &body_of(static_cast<std::size_t>(syntax_.root))});
    while (!pending_.empty()) {
      const Pending next = pending_.front();
      pending_.pop_front();
      const Automaton::RuleNodes nodes = out_.rules_[next.number];
      add(next.user, *next.body, nodes.start, nodes.end);
    }
    finish();
  }

 private:
  struct RawEdge {
    NodeId source;
    Edge edge;  // of bytes: lo and hi are bytes until finish()
  };
  struct Callee {
    std::size_t user;  // the rule in whose text the body stands
    const Alternatives* body;
  };
  struct Pending {
    std::size_t user;
    const Alternatives* body;
    std::uint32_t number;
  };

  [[nodiscard]] const Alternatives& body_of(std::size_t rule) const { return syntax_.rules[rule].body; }

  NodeId node() {
    if (n_nodes_ == kMaxNodes) {
      throw Error(ErrorCode::exceeds_limit, ggml::strf("grammar: its automaton needs more than %zu nodes", kMaxNodes),
                  "use fewer or smaller repetitions");
    }
    return static_cast<NodeId>(n_nodes_++);
  }
  void edge(NodeId source, EdgeKind kind, std::uint32_t value, NodeId target) {
    edges_.push_back({source, {kind, 0, 0, value, target}});
  }
  void empty_edge(NodeId source, NodeId target) { edge(source, EdgeKind::empty, 0, target); }
  void byte_edge(NodeId source, std::uint8_t lo, std::uint8_t hi, NodeId target) {
    edges_.push_back({source, {EdgeKind::bytes, lo, hi, 0, target}});
  }

  /// The number of a rule that is called; its body is written later.
  std::uint32_t called_rule(Callee callee) {
    const auto [it, is_new] = numbers_.try_emplace(callee.body, static_cast<std::uint32_t>(out_.rules_.size()));
    if (is_new) {
      const NodeId start = node();
      out_.rules_.push_back({start, node()});
      pending_.push_back({callee.user, callee.body, it->second});
    }
    return it->second;
  }

  void add(std::size_t user, const Alternatives& body, NodeId from, NodeId to) {
    for (const Sequence& sequence : body) {
      NodeId at = from;
      for (std::size_t i = 0; i < sequence.size(); ++i) {
        const NodeId next = i + 1 == sequence.size() ? to : node();
        add_repeated(user, sequence[i], at, next);
        at = next;
      }
      if (sequence.empty()) empty_edge(from, to);
    }
  }

  void add_repeated(std::size_t user, const Item& item, NodeId from, NodeId to) {
    if (item.min == 1 && item.max == 1) {
      add_once(user, item, from, to);
      return;
    }
    NodeId at = from;
    for (int i = 0; i < item.min; ++i) {
      const NodeId next = node();
      add_once(user, item, at, next);
      at = next;
    }
    if (item.max == kNoLimit) {
      const NodeId loop = node();
      const NodeId back = node();
      empty_edge(at, loop);
      add_once(user, item, loop, back);
      empty_edge(back, loop);
      empty_edge(loop, to);
      return;
    }
    for (int i = item.min; i < item.max; ++i) {
      empty_edge(at, to);
      const NodeId next = node();
      add_once(user, item, at, next);
      at = next;
    }
    empty_edge(at, to);
  }

  void add_once(std::size_t user, const Item& item, NodeId from, NodeId to) {
    switch (item.kind) {
      case ItemKind::literal:
        add_literal(item.text, from, to);
        return;
      case ItemKind::characters:
        add_characters(item.ranges, from, to);
        return;
      case ItemKind::group:
        if (item.max == kNoLimit || item.max > 1) {
          const std::int64_t copies = item.max == kNoLimit ? item.min + 1 : item.max;
          if (copies > 1 && plan_.nodes_of(user, item.body) * copies > kMaxCopiedGroupNodes) {
            edge(from, EdgeKind::call, called_rule({user, &item.body}), to);
            return;
          }
        }
        add(user, item.body, from, to);
        return;
      case ItemKind::rule: {
        const auto rule = static_cast<std::size_t>(item.rule);
        if (plan_.inlines(user, rule)) {
          add(rule, body_of(rule), from, to);
        } else {
          edge(from, EdgeKind::call, called_rule({rule, &body_of(rule)}), to);
        }
        return;
      }
      case ItemKind::token:
        edge(from, item.negated ? EdgeKind::not_token : EdgeKind::token, static_cast<std::uint32_t>(item.token), to);
        return;
    }
  }

  void add_literal(const std::string& text, NodeId from, NodeId to) {
    if (text.empty()) {
      empty_edge(from, to);
      return;
    }
    for (std::size_t i = 0; i < text.size(); ++i) {
      const NodeId next = i + 1 == text.size() ? to : node();
      const auto byte = static_cast<std::uint8_t>(text[i]);
      byte_edge(from, byte, byte, next);
      from = next;
    }
  }

  /// Sequences with equal tails share the nodes of the tail.
  void add_characters(const std::vector<CodeRange>& ranges, NodeId from, NodeId to) {
    std::vector<ByteSequence> sequences;
    for (const CodeRange& range : ranges) split_utf8(range, sequences);
    using Tail = std::tuple<NodeId, std::uint8_t, std::uint8_t>;  // what follows, and the bytes before it
    std::map<Tail, NodeId> tails;
    for (const ByteSequence& sequence : sequences) {
      NodeId next = to;
      for (int i = sequence.length - 1; i > 0; --i) {
        const auto [it, is_new] = tails.try_emplace({next, sequence.lo[i], sequence.hi[i]}, 0);
        if (is_new) {
          it->second = node();
          byte_edge(it->second, sequence.lo[i], sequence.hi[i], next);
        }
        next = it->second;
      }
      byte_edge(from, sequence.lo[0], sequence.hi[0], next);
    }
  }

  void number_classes() {
    std::array<bool, 257> begins{};
    begins[0] = true;
    for (const RawEdge& raw : edges_) {
      if (raw.edge.kind != EdgeKind::bytes) continue;
      begins[raw.edge.lo] = true;
      begins[raw.edge.hi + 1] = true;
    }
    std::size_t n = 0;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      if (begins[byte]) ++n;
      out_.class_of_[byte] = static_cast<std::uint8_t>(n - 1);
    }
    out_.n_classes_ = n;
    for (RawEdge& raw : edges_) {
      if (raw.edge.kind != EdgeKind::bytes) continue;
      raw.edge.lo = out_.class_of_[raw.edge.lo];
      raw.edge.hi = out_.class_of_[raw.edge.hi];
    }
  }

  void finish() {
    number_classes();
    out_.first_edge_.assign(n_nodes_ + 1, 0);
    for (const RawEdge& raw : edges_) ++out_.first_edge_[raw.source + 1];
    for (std::size_t i = 0; i < n_nodes_; ++i) out_.first_edge_[i + 1] += out_.first_edge_[i];
    out_.edges_.resize(edges_.size());
    std::vector<std::uint32_t> next(out_.first_edge_.begin(), out_.first_edge_.end() - 1);
    for (const RawEdge& raw : edges_) out_.edges_[next[raw.source]++] = raw.edge;
    out_.is_end_.assign(n_nodes_, false);
    for (const Automaton::RuleNodes& rule : out_.rules_) out_.is_end_[rule.end] = true;
  }

  const Syntax& syntax_;
  const InlinePlan plan_;
  Automaton& out_;
  std::size_t n_nodes_ = 0;
  std::vector<RawEdge> edges_;
  std::map<const Alternatives*, std::uint32_t> numbers_;
  std::deque<Pending> pending_;
};

Automaton::Automaton(const Syntax& syntax) {
  AutomatonBuilder(syntax, *this).run();
}

}  // namespace common::grammar
