#pragma once

#include <span>
#include <vector>

#include "engine/engine.h"

namespace server {

/// The rows of one step, reused from step to step.
struct Engine::Rows {
  std::vector<llama::StepSequence> sequences;
  std::vector<Slot*> slots;  // beside `sequences`
  int n_tokens = 0;
  int n_decode = 0;
  int n_unread = 0;  // answers left out because their readers have fallen behind
};

[[nodiscard]] std::size_t common_prefix(std::span<const Token> a, std::span<const Token> b);
[[nodiscard]] SlotStatus slot_status(const Slot& slot);
/// The lines that users' scripts read at the end of a request.
void log_timings(const Slot& slot, const llama::ContextStats& stats);

}  // namespace server
