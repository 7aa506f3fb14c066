#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/mailbox.h"
#include "engine/request.h"
#include "engine/text_stream.h"
#include "llama/context.h"
#include "llama/sampler.h"

namespace server {

enum class SlotState : std::uint8_t {
  idle,     // no request; `tokens` are what its sequence still holds
  waiting,  // a further completion of a prompt that another slot is evaluating
  prompt,   // evaluating its prompt
  generate  // one token a step
};

/// One answer in the making, and the cache it leaves behind. Engine thread only.
///
/// Invariant: context.length(seq) == tokens.size(); tokens[0 .. n_prompt_done) equal the prompt's beginning while state
/// == prompt.
struct Slot {
  int id = 0;
  SlotState state = SlotState::idle;
  llama::SeqId seq;
  std::vector<Token> tokens;          // in the cache, in order
  std::vector<float> adapter_scales;  // with which they were computed
  std::uint64_t last_used = 0;        // tick of the last release; the idle slot with the smallest is taken first

  // Of the request (state != idle).
  std::uint64_t task = 0;
  GenerateRequest request;
  Reply reply;
  std::unique_ptr<llama::TokenMask> mask;  // null: any token
  std::unique_ptr<llama::Sampler> sampler;
  std::optional<TextStream> text;
  int parent = -1;        // waiting: the slot that evaluates the prompt
  int n_prompt_done = 0;  // prompt tokens in the cache
  int n_prompt = 0;
  Token next = -1;  // generate: sampled, not yet in the cache
  bool truncated = false;
  bool ever_used = false;
  double prompt_start_ms = 0, generate_start_ms = 0;
  Timings timings;
};

}  // namespace server
