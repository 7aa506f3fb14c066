#pragma once

#include <memory>
#include <string>

#include "common/args/settings.h"
#include "common/grammar/grammar_cache.h"

namespace common {

/// What every answer must follow, as the command line says.
struct GivenGrammar {
  std::string gbnf;                                          // empty: any text
  std::shared_ptr<const grammar::CompiledGrammar> compiled;  // null then
};

/// The grammar of --grammar, --grammar-file, --json-schema or --json-schema-file. Throws Error(invalid_argument or
/// exceeds_limit) naming the option as it was given, and the place of what is wrong.
[[nodiscard]] GivenGrammar given_grammar(const SamplingSettings& settings, grammar::GrammarCache& cache);

}  // namespace common
