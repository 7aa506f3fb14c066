#include "common/grammar/stacks.h"

#include <algorithm>

#include "ggml/error.h"

namespace common::grammar {
namespace {

constexpr std::size_t kMaxClosure = 5000;
constexpr std::size_t kMaxStep = 100'000;  // stacks that one byte may lead to, repeats included

[[noreturn]] void too_ambiguous() {
  throw ggml::Error(ggml::ErrorCode::exceeds_limit, "grammar: the text can be read in too many different ways at once",
                    "make alternatives differ earlier");
}

}  // namespace

void StackPool::clear() {
  frames_.clear();
  ids_.clear();
  closures_.clear();
  marks_.clear();
  frames_.push_back({kDeadState, kBottom, 0, 1});
  closures_.push_back(kBottom);
  marks_.push_back(0);
}

StackId StackPool::push(StateId state, StackId parent) {
  if (states_->state(state).is_only_end) return parent;
  const std::uint64_t key = std::uint64_t{state} << 32 | parent;
  const auto [it, is_new] = ids_.try_emplace(key, static_cast<StackId>(frames_.size()));
  if (is_new) {
    frames_.push_back({state, parent, kNone, 0});
    marks_.push_back(0);
  }
  return it->second;
}

std::span<const StackId> StackPool::closure(StackId stack) {
  if (frames_[stack].closure_begin == kNone) {
    ++round_;
    const auto begin = static_cast<std::uint32_t>(closures_.size());
    std::size_t n_seen = 0;
    const auto see = [&](StackId id) {
      if (marks_[id] == round_) return;
      marks_[id] = round_;
      work_.push_back(id);
      if (++n_seen > kMaxClosure) {
        work_.clear();
        closures_.resize(begin);
        too_ambiguous();
      }
    };
    work_.clear();
    see(stack);
    while (!work_.empty()) {
      const StackId id = work_.back();
      work_.pop_back();
      if (id == kBottom) {
        closures_.push_back(kBottom);
        continue;
      }
      const StackId parent = frames_[id].parent;
      const StateTable::State& state = states_->expanded(frames_[id].state);
      if (state.has_bytes || state.has_tokens) closures_.push_back(id);
      if (state.accepting) see(parent);
      for (const StateTable::Call& call : state.calls) see(push(states_->start(call.rule), push(call.after, parent)));
    }
    frames_[stack].closure_begin = begin;
    frames_[stack].closure_size = static_cast<std::uint32_t>(closures_.size() - begin);
  }
  return {closures_.data() + frames_[stack].closure_begin, frames_[stack].closure_size};
}

void StackPool::step(StackId stack, std::uint8_t byte_class, std::vector<StackId>& out) {
  for (const StackId id : closure(stack)) {
    if (id == kBottom) continue;
    const StateId next = states_->next(frames_[id].state, byte_class);
    if (next != kDeadState) out.push_back(push(next, frames_[id].parent));
  }
  if (out.size() > kMaxStep) too_ambiguous();
}

void settle(std::vector<StackId>& stacks, std::size_t limit) {
  std::sort(stacks.begin(), stacks.end());
  stacks.erase(std::unique(stacks.begin(), stacks.end()), stacks.end());
  if (stacks.size() > limit) too_ambiguous();
}

}  // namespace common::grammar
