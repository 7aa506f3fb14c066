#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "common/grammar/grammar_mask.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "grammar_test_support.h"

// Any text as a grammar: it is refused with a message, or it gives masks. What a mask allows must be accepted.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace common::grammar;
  ggml::set_log_level(ggml::LogLevel::error);
  static const llama::Vocab vocab = testing::vocab_of({"a", "ab", "b", "{\"", "\":", "}", "é", "🚀a", "  ", "<x>"});
  static const auto shared = std::make_shared<const GrammarVocab>(vocab);
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  std::shared_ptr<const Grammar> grammar;
  try {
    grammar = Grammar::parse(text, &vocab);
  } catch (const ggml::Error& error) {
    if (error.message().empty()) std::abort();
    return 0;
  }
  const auto compiled = std::make_shared<const CompiledGrammar>(grammar, shared);
  GrammarMask mask(compiled);
  std::vector<std::uint32_t> words(shared->vocab().n_tokens() / 32 + 1);
  std::uint32_t random = static_cast<std::uint32_t>(size) * 2654435761u + 1;
  for (int step = 0; step < 12; ++step) {
    if (!mask.fill(words)) std::abort();
    std::vector<llama::Token> allowed;
    for (llama::Token t = 0; t < vocab.n_tokens(); ++t) {
      if ((words[static_cast<std::size_t>(t) / 32] >> (t % 32) & 1u) != 0) allowed.push_back(t);
    }
    if (allowed.empty()) {
      if (mask.failure().empty()) std::abort();
      return 0;
    }
    random = random * 1664525u + 1013904223u;
    const llama::Token token = allowed[(random >> 8) % allowed.size()];
    mask.accept(token);
    const bool is_limit =
        mask.failure().find("too many") != std::string::npos || mask.failure().find("too much") != std::string::npos;
    if (!mask.failure().empty() && !is_limit) std::abort();
    if (vocab.is_eog(token)) return 0;
  }
  return 0;
}
