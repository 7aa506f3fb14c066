#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/prompt_bound.h"
#include "common/args/settings.h"
#include "common/chat/chat_templates.h"
#include "common/grammar/grammar_cache.h"
#include "engine/engine.h"
#include "llama/model.h"

namespace server {

/// What the API layer needs of a loaded model. Immutable after start-up, but for the engine, which is thread-safe.
struct Service {
  const common::Settings& settings;
  const llama::Model& model;
  const common::chat::ChatTemplates& chat;
  Engine& engine;
  llama::SamplingParams sampling;  // defaults of requests
  std::string name;                // "model" in answers
  std::string build;               // "system_fingerprint", "build_info"
  std::int64_t started_unix_s = 0;
  std::shared_ptr<common::grammar::GrammarCache> grammars;  // shared with the requests that run; thread-safe
  std::string grammar;                                      // GBNF for requests that bring none; empty: any text
  /// Of the chat formats without and with tools: the special tokens that their marks consist of.
  std::array<std::vector<llama::Token>, 2> mark_tokens;
  PromptBound prompt_bound;

  [[nodiscard]] const llama::Vocab& vocab() const { return model.vocab(); }
};

}  // namespace server
