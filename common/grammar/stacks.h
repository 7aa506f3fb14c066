#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/grammar/states.h"

namespace common::grammar {

using StackId = std::uint32_t;
/// What lies below the lowest frame: the end of the text for a whole answer, "whatever called this" for a part.
inline constexpr StackId kBottom = 0;

/// Stacks of states as linked frames; equal stacks have equal ids. The top frame is where the text is, the frames below
/// are where their rules go on. No frame is at the bare end of its rule: such a frame is left at once. Not thread-safe.
class StackPool {
 public:
  explicit StackPool(StateTable& states) : states_(&states) { clear(); }

  [[nodiscard]] StateId top(StackId stack) const { return frames_[stack].state; }
  [[nodiscard]] StackId parent(StackId stack) const { return frames_[stack].parent; }
  /// The stack with one more frame, or `parent` itself when the frame's rule ends there.
  StackId push(StateId state, StackId parent);
  /// All stacks that this one may become by ending rules and calling rules, without reading anything, and whose top may
  /// read bytes or a token; kBottom among them when everything may end. The span lives until the next call of
  /// closure().
  [[nodiscard]] std::span<const StackId> closure(StackId stack);
  /// Adds to `out` (unsorted, may repeat) what `stack` becomes by a byte.
  void step(StackId stack, std::uint8_t byte_class, std::vector<StackId>& out);
  /// Forgets all stacks.
  void clear();
  [[nodiscard]] std::size_t size() const { return frames_.size(); }
  [[nodiscard]] StateTable& states() const { return *states_; }

 private:
  struct Frame {
    StateId state;
    StackId parent;
    std::uint32_t closure_begin;  // kNone: not known yet
    std::uint32_t closure_size;
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  StateTable* states_;
  std::vector<Frame> frames_;
  std::unordered_map<std::uint64_t, StackId> ids_;
  std::vector<StackId> closures_;     // all closures behind each other
  std::vector<std::uint32_t> marks_;  // [n_frames] round of closure() that saw the stack
  std::uint32_t round_ = 0;
  std::vector<StackId> work_;
};

/// Sorts and removes repeats; throws Error(exceeds_limit) beyond `limit` stacks: the grammar is too ambiguous.
void settle(std::vector<StackId>& stacks, std::size_t limit);

}  // namespace common::grammar
