#include "common/grammar/mask_engine.h"

#include <algorithm>

#include "ggml/error.h"

namespace common::grammar {
namespace {

constexpr std::uint32_t kUnknown = 0xFFFFFFFFu;
constexpr std::size_t kMaxLocalStacks = 512;       // readings of one text inside a token
constexpr std::size_t kMaxKeptBytes = 48u << 20;   // above it everything is dropped and found anew
constexpr std::size_t kMaxWalkBytes = 256u << 20;  // one mask may need this much for a moment
// Stacks that one mask may look at: below a second, since other requests wait for it.
constexpr std::size_t kMaxMaskWork = 2'000'000;

void set_bit(std::span<std::uint32_t> words, llama::Token token) {
  words[static_cast<std::size_t>(token) / 32] |= 1u << (token % 32);
}

}  // namespace

MaskEngine::MaskEngine(const Automaton& automaton, const TokenTrie& trie)
    : trie_(trie), states_(automaton), n_classes_(automaton.n_classes()), local_pool_(states_) {
  std::vector<StackId> none;
  (void)intern_local(none);
  path_.resize(static_cast<std::size_t>(trie.max_depth()) + 1);
}

MaskEngine::LocalId MaskEngine::intern_local(std::vector<StackId>& stacks) {
  settle(stacks, kMaxLocalStacks);
  const auto known = local_ids_.find(stacks);
  if (known != local_ids_.end()) return known->second;
  const auto id = static_cast<LocalId>(locals_.size());
  bool ends = false;
  for (const StackId stack : stacks) {
    const std::span<const StackId> tops = local_pool_.closure(stack);
    work_ += tops.size();
    for (const StackId top : tops) ends = ends || top == kBottom;
  }
  local_ids_.emplace(stacks, id);
  locals_.push_back(stacks);
  local_ends_.push_back(ends ? 1 : 0);
  local_next_.resize(local_next_.size() + n_classes_, locals_.size() == 1 ? 0 : kUnknown);
  if (size().bytes > kMaxWalkBytes || work_ > kMaxMaskWork) {
    throw ggml::Error(ggml::ErrorCode::exceeds_limit, "grammar: the masks of this grammar need too much work",
                      "make alternatives differ earlier");
  }
  return id;
}

MaskEngine::LocalId MaskEngine::local_start(StateId state) {
  std::vector<StackId> stacks{local_pool_.push(state, kBottom)};
  return intern_local(stacks);
}

MaskEngine::LocalId MaskEngine::find_local(LocalId local, std::uint8_t byte_class) {
  std::vector<StackId> after;
  // By index: the pool may grow, the sets stay.
  for (std::size_t i = 0; i < locals_[local].size(); ++i) local_pool_.step(locals_[local][i], byte_class, after);
  work_ += after.size();
  const LocalId found = intern_local(after);
  local_next_[local * n_classes_ + byte_class] = found;
  return found;
}

void MaskEngine::walk(LocalId start, TrieNode from) {
  const std::span<const TokenTrie::Node> nodes = trie_.nodes();
  const Automaton& automaton = states_.automaton();
  path_[nodes[from].depth] = start;
  const TrieNode end = nodes[from].end;
  for (TrieNode i = from + 1; i < end;) {
    const TokenTrie::Node& node = nodes[i];
    const LocalId before = path_[node.depth - 1u];
    const std::uint8_t byte_class = automaton.class_of(node.byte);
    LocalId local = local_next_[before * n_classes_ + byte_class];
    if (local == kUnknown) local = find_local(before, byte_class);
    if (local == 0) {
      i = node.end;
      continue;
    }
    path_[node.depth] = local;
    if (node.token >= 0) {
      found_.push_back(node.token);
      if (node.has_twins) {
        for (llama::Token t = trie_.twin(node.token); t >= 0; t = trie_.twin(t)) found_.push_back(t);
      }
    }
    if (local_ends_[local] != 0 && node.end > i + 1) exits_.push_back(i);
    ++i;
  }
}

MaskEngine::PartId MaskEngine::keep_walked() {
  const auto unique = [](auto& list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  };
  Part part;
  const std::size_t n_words = trie_.all().size();
  part.is_dense = found_.size() > n_words;
  if (part.is_dense) {
    part.tokens.assign(n_words, 0);
    for (const llama::Token token : found_) set_bit(part.tokens, token);
  } else {
    part.tokens.assign(found_.begin(), found_.end());
    unique(part.tokens);
  }
  unique(exits_);
  part.exits = exits_;
  part.tokens.shrink_to_fit();
  part_bytes_ += sizeof(Part) + 4 * (part.tokens.size() + part.exits.size());
  parts_.push_back(std::move(part));
  return static_cast<PartId>(parts_.size() - 1);
}

MaskEngine::PartId MaskEngine::first_part(StateId state) {
  const auto known = first_parts_.find(state);
  if (known != first_parts_.end()) return known->second;
  found_.clear();
  exits_.clear();
  const LocalId start = local_start(state);
  if (local_ends_[start] != 0) exits_.push_back(0);
  walk(start, 0);
  const PartId part = keep_walked();
  first_parts_.emplace(state, part);
  return part;
}

MaskEngine::PartId MaskEngine::next_part(PartId part, StateId below) {
  for (const auto& [state, next] : parts_[part].below) {
    if (state == below) return next;
  }
  const std::vector<TrieNode> exits = parts_[part].exits;
  // From the root the frame below does what it does by itself.
  const bool from_root = !exits.empty() && exits.front() == 0;
  const PartId whole = from_root ? first_part(below) : 0;
  found_.clear();
  exits_.clear();
  if (from_root) {
    const Part& known = parts_[whole];
    exits_ = known.exits;
    if (!known.is_dense) {
      found_.assign(known.tokens.begin(), known.tokens.end());
    } else {
      for (std::size_t w = 0; w < known.tokens.size(); ++w) {
        for (std::uint32_t bits = known.tokens[w]; bits != 0; bits &= bits - 1)
          found_.push_back(static_cast<llama::Token>(w * 32) + __builtin_ctz(bits));
      }
    }
  }
  const LocalId start = local_start(below);
  for (const TrieNode exit : exits) {
    if (exit == 0) continue;
    if (local_ends_[start] != 0) exits_.push_back(exit);
    walk(start, exit);
  }
  const PartId made = keep_walked();
  parts_[part].below.emplace_back(below, made);
  return made;
}

void MaskEngine::add_allowed(const StackPool& pool, StackId stack, std::span<std::uint32_t> words) {
  if (stack == kBottom) return;
  PartId id = first_part(pool.top(stack));
  while (true) {
    const Part& part = parts_[id];
    if (part.is_dense) {
      for (std::size_t w = 0; w < words.size(); ++w) words[w] |= part.tokens[w];
    } else {
      for (const std::uint32_t token : part.tokens) set_bit(words, static_cast<llama::Token>(token));
    }
    stack = pool.parent(stack);
    if (part.exits.empty() || stack == kBottom) return;
    id = next_part(id, pool.top(stack));
  }
}

MaskEngine::Size MaskEngine::size() const {
  Size size;
  size.states = states_.size();
  size.local_states = locals_.size();
  size.parts = parts_.size();
  // Sets and hash entries of a local state: about 120 bytes beside its row of transitions.
  size.bytes = part_bytes_ + locals_.size() * (n_classes_ * sizeof(LocalId) + 120) + local_pool_.size() * 80;
  return size;
}

void MaskEngine::trim() {
  work_ = 0;
  if (size().bytes <= kMaxKeptBytes) return;
  local_pool_.clear();
  locals_.clear();
  local_ends_.clear();
  local_next_.clear();
  local_ids_.clear();
  parts_.clear();
  first_parts_.clear();
  part_bytes_ = 0;
  std::vector<StackId> none;
  (void)intern_local(none);
}

/// Every state that a text can reach, with the states that its rule may return to.
class MaskEngine::WarmUp {
 public:
  WarmUp(MaskEngine& engine, std::chrono::steady_clock::time_point deadline) : engine_(engine), deadline_(deadline) {
    returns_.resize(engine.states_.automaton().n_rules());
    tail_callers_.resize(returns_.size());
  }

  void run() {
    {
      const std::lock_guard lock(engine_.mutex_);
      const std::uint32_t root = engine_.states_.automaton().root();
      reach(engine_.states_.start(root), root);
    }
    for (std::size_t i = 0; i < reached_.size(); ++i) {
      if (!may_go_on()) return;
      const std::lock_guard lock(engine_.mutex_);
      engine_.work_ = 0;
      expand(reached_[i].first, reached_[i].second);
      (void)engine_.first_part(reached_[i].first);
    }
    close_returns();
    for (const auto& [state, rule] : reached_) {
      if (!may_go_on()) return;
      const std::lock_guard lock(engine_.mutex_);
      engine_.work_ = 0;
      continue_below(engine_.first_part(state), rule, kMaxFrames);
    }
  }

 private:
  static constexpr int kMaxFrames = 6;

  /// Also no more than may be kept.
  [[nodiscard]] bool may_go_on() {
    if (std::chrono::steady_clock::now() >= deadline_) return false;
    const std::lock_guard lock(engine_.mutex_);
    return engine_.size().bytes < kMaxKeptBytes / 2;
  }

  void reach(StateId state, std::uint32_t rule) {
    if (state == kDeadState || !seen_.emplace(state, rule).second) return;
    reached_.emplace_back(state, rule);
  }

  void expand(StateId id, std::uint32_t rule) {
    for (std::size_t c = 0; c < engine_.n_classes_; ++c)
      reach(engine_.states_.next(id, static_cast<std::uint8_t>(c)), rule);
    const StateTable::State& state = engine_.states_.expanded(id);
    for (const StateTable::TokenEdge& edge : state.tokens) reach(edge.after, rule);
    for (const StateTable::Call& call : state.calls) {
      reach(engine_.states_.start(call.rule), call.rule);
      reach(call.after, rule);
      if (engine_.states_.state(call.after).is_only_end) {
        tail_callers_[call.rule].push_back(rule);
      } else {
        returns_[call.rule].push_back({call.after, rule});
      }
    }
  }

  /// A rule that ends with a call returns from it to wherever it returns itself.
  void close_returns() {
    const auto unique = [](auto& list) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    };
    for (auto& list : tail_callers_) unique(list);
    for (auto& list : returns_) unique(list);
    for (bool grew = true; grew && std::chrono::steady_clock::now() < deadline_;) {
      grew = false;
      for (std::size_t r = 0; r < returns_.size(); ++r) {
        const std::size_t before = returns_[r].size();
        for (const std::uint32_t caller : tail_callers_[r]) {
          if (caller != r) returns_[r].insert(returns_[r].end(), returns_[caller].begin(), returns_[caller].end());
        }
        unique(returns_[r]);
        grew = grew || returns_[r].size() != before;
      }
    }
  }

  void continue_below(PartId part, std::uint32_t rule, int n_frames) {
    if (n_frames == 0 || engine_.parts_[part].exits.empty()) return;
    for (const auto& [below, caller] : returns_[rule]) {
      if (std::chrono::steady_clock::now() >= deadline_ || engine_.size().bytes >= kMaxKeptBytes / 2) return;
      engine_.work_ = 0;
      continue_below(engine_.next_part(part, below), caller, n_frames - 1);
    }
  }

  MaskEngine& engine_;
  const std::chrono::steady_clock::time_point deadline_;
  std::vector<std::pair<StateId, std::uint32_t>> reached_;  // state, its rule
  std::unordered_map<StateId, std::uint32_t> seen_;
  std::vector<std::vector<std::pair<StateId, std::uint32_t>>> returns_;  // per rule: state, its rule
  std::vector<std::vector<std::uint32_t>> tail_callers_;                 // per rule: rules that end with it
};

void MaskEngine::warm_up(std::chrono::steady_clock::time_point deadline) {
  WarmUp(*this, deadline).run();
}

}  // namespace common::grammar
