#include "common/grammar/states.h"

#include <algorithm>
#include <map>

#include "ggml/error.h"

namespace common::grammar {
namespace {

constexpr std::size_t kMaxTableEntries = std::size_t{8} << 20;
constexpr std::size_t kMaxNodeEntries = std::size_t{8} << 20;

}  // namespace

StateTable::StateTable(const Automaton& automaton)
    : automaton_(automaton),
      n_classes_(automaton.n_classes()),
      starts_(automaton.n_rules(), kUnknown),
      mark_(automaton.n_nodes(), 0) {
  (void)intern({});  // kDeadState
}

StateId StateTable::start(std::uint32_t rule) {
  if (starts_[rule] == kUnknown) starts_[rule] = intern({automaton_.start(rule)});
  return starts_[rule];
}

StateId StateTable::find_next(StateId state, std::uint8_t byte_class) {
  std::vector<NodeId> targets;
  for (const NodeId node : states_[state].nodes) {
    for (const Edge& edge : automaton_.edges(node)) {
      if (edge.kind == EdgeKind::bytes && edge.lo <= byte_class && byte_class <= edge.hi)
        targets.push_back(edge.target);
    }
  }
  const StateId found = intern(targets);
  next_[state * n_classes_ + byte_class] = found;
  return found;
}

StateId StateTable::intern(const std::vector<NodeId>& seeds) {
  ++round_;
  std::vector<NodeId> work;
  std::vector<NodeId> nodes;
  const auto see = [&](NodeId node) {
    if (mark_[node] == round_) return;
    mark_[node] = round_;
    work.push_back(node);
  };
  for (const NodeId node : seeds) see(node);
  State made;
  bool has_calls = false;
  while (!work.empty()) {
    const NodeId node = work.back();
    work.pop_back();
    bool is_needed = automaton_.is_end(node);
    made.accepting = made.accepting || is_needed;
    for (const Edge& edge : automaton_.edges(node)) {
      if (edge.kind == EdgeKind::empty) {
        see(edge.target);
        continue;
      }
      is_needed = true;
      made.has_bytes = made.has_bytes || edge.kind == EdgeKind::bytes;
      has_calls = has_calls || edge.kind == EdgeKind::call;
      made.has_tokens = made.has_tokens || edge.kind == EdgeKind::token || edge.kind == EdgeKind::not_token;
    }
    if (is_needed) nodes.push_back(node);
  }
  std::sort(nodes.begin(), nodes.end());
  const auto [it, is_new] = ids_.try_emplace(nodes, static_cast<StateId>(states_.size()));
  if (!is_new) return it->second;
  node_entries_ += nodes.size();
  if (next_.size() + n_classes_ > kMaxTableEntries || node_entries_ > kMaxNodeEntries) {
    ids_.erase(it);
    throw ggml::Error(ggml::ErrorCode::exceeds_limit, "grammar: following the text needs too many states",
                      "use fewer or smaller repetitions, and fewer alternatives that begin alike");
  }
  made.is_only_end = made.accepting && !made.has_bytes && !made.has_tokens && !has_calls;
  made.nodes = std::move(nodes);
  states_.push_back(std::move(made));
  // Dead stays dead; everything else is found when it is asked for.
  next_.resize(next_.size() + n_classes_, states_.size() == 1 ? kDeadState : kUnknown);
  return it->second;
}

const StateTable::State& StateTable::expanded(StateId id) {
  State& state = states_[id];
  if (state.is_expanded) return state;
  std::map<std::uint32_t, std::vector<NodeId>> calls;
  std::map<std::pair<std::uint32_t, bool>, std::vector<NodeId>> tokens;
  for (const NodeId node : state.nodes) {
    for (const Edge& edge : automaton_.edges(node)) {
      if (edge.kind == EdgeKind::call) calls[edge.value].push_back(edge.target);
      if (edge.kind == EdgeKind::token) tokens[{edge.value, false}].push_back(edge.target);
      if (edge.kind == EdgeKind::not_token) tokens[{edge.value, true}].push_back(edge.target);
    }
  }
  std::vector<Call> made_calls;
  std::vector<TokenEdge> made_tokens;
  made_calls.reserve(calls.size());
  made_tokens.reserve(tokens.size());
  for (const auto& [rule, targets] : calls) made_calls.push_back({rule, intern(targets)});
  for (const auto& [key, targets] : tokens)
    made_tokens.push_back({static_cast<llama::Token>(key.first), key.second, intern(targets)});
  state.calls = std::move(made_calls);
  state.tokens = std::move(made_tokens);
  state.is_expanded = true;
  return state;
}

}  // namespace common::grammar
