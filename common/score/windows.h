#pragma once

#include <functional>
#include <span>
#include <vector>

#include "llama/context.h"

namespace common {

/// A run of tokens that is evaluated alone, with nothing before it.
struct Window {
  std::vector<llama::Token> tokens;
  int first = 0;  // the first position whose logits are wanted; size(): none
};

/// Logits of consecutive positions of a window.
struct WindowRows {
  std::size_t window = 0;  // index into the windows of the call
  int position = 0;        // of the first row
  int n = 0;
  std::span<const float> logits;  // [n_vocab, n], valid during the call
};

/// Evaluates several windows at the same time, in steps of at most the context's batch and few enough rows that their
/// logits stay small. Pre: no more windows than the context's sequences, none longer than its share of the context.
/// Throws what the context throws.
void run_windows(llama::Context& context, std::span<const Window> windows,
                 const std::function<void(const WindowRows&)>& use);

}  // namespace common
