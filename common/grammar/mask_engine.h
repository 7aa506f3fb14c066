#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/grammar/stacks.h"
#include "common/grammar/token_trie.h"

namespace common::grammar {

/// Masks of allowed tokens, found by walking the vocabulary's trie with the automaton, and kept.
///
/// What a state of a rule allows depends on the frames below it only where a token's text runs past the end of that
/// rule. So the walk starts from one frame with nothing known below: it gives the tokens that fit within the rule, and
/// the "exits", trie nodes at which the rule has ended while tokens go on. The frame below continues from the exits
/// only, and so on down, until no exits are left; most often after one or two frames. Each such path of frames is a
/// Part, kept in a tree whose edges are states. A mask is the union of the parts on a stack's path, so it costs a few
/// look-ups at any depth of nesting, and what was found at one depth serves all others.
///
/// All members need mutex() held, but mutex() and warm_up().
class MaskEngine {
 public:
  MaskEngine(const Automaton& automaton, const TokenTrie& trie);

  [[nodiscard]] std::mutex& mutex() const { return mutex_; }
  [[nodiscard]] StateTable& states() { return states_; }
  [[nodiscard]] const TokenTrie& trie() const { return trie_; }

  /// Adds the bits of all tokens whose text `stack` of `pool` allows. Throws Error(exceeds_limit).
  void add_allowed(const StackPool& pool, StackId stack, std::span<std::uint32_t> words);
  /// Begins a mask: drops what was kept when it has grown beyond its limit.
  void trim();
  /// Visits states and their callers breadth first and makes their parts, until `deadline`.
  void warm_up(std::chrono::steady_clock::time_point deadline);

  struct Size {
    std::size_t states = 0, local_states = 0, parts = 0, bytes = 0;
  };
  [[nodiscard]] Size size() const;

 private:
  using PartId = std::uint32_t;
  using LocalId = std::uint32_t;
  using TrieNode = std::uint32_t;
  struct Part {
    bool is_dense = false;
    std::vector<std::uint32_t> tokens;  // ids, or the words of a bit mask
    std::vector<TrieNode> exits;        // ascending; 0, the root, when the frames may end without reading
    std::vector<std::pair<StateId, PartId>> below;
  };
  class WarmUp;

  PartId first_part(StateId state);
  PartId next_part(PartId part, StateId below);
  void walk(LocalId start, TrieNode from);
  LocalId local_start(StateId state);
  LocalId find_local(LocalId local, std::uint8_t byte_class);
  LocalId intern_local(std::vector<StackId>& stacks);
  PartId keep_walked();

  const TokenTrie& trie_;
  mutable std::mutex mutex_;
  StateTable states_;
  const std::size_t n_classes_;

  // States of a walk: sets of stacks above an unknown bottom.
  StackPool local_pool_;
  std::vector<std::vector<StackId>> locals_;  // sorted; 0 is the empty set: dead
  std::vector<std::uint8_t> local_ends_;      // the frame may end here
  std::vector<LocalId> local_next_;           // [n_locals, n_classes]
  std::unordered_map<std::vector<StackId>, LocalId, ListHash> local_ids_;

  std::vector<Part> parts_;
  std::unordered_map<StateId, PartId> first_parts_;
  std::size_t part_bytes_ = 0;

  // Of the mask and the walk going on.
  std::size_t work_ = 0;
  std::vector<llama::Token> found_;
  std::vector<TrieNode> exits_;
  std::vector<LocalId> path_;
};

}  // namespace common::grammar
