#include "common/setup/grammar_setup.h"

#include <nlohmann/json.hpp>

#include "common/grammar/grammar_builder.h"
#include "common/json/parse_json.h"
#include "ggml/error.h"

namespace common {

GivenGrammar given_grammar(const SamplingSettings& settings, grammar::GrammarCache& cache) {
  GivenGrammar out;
  try {
    out.gbnf = settings.json_schema.empty()
                   ? settings.grammar
                   : grammar::schema_to_gbnf(parse_json(settings.json_schema, "the schema is"));
    if (!out.gbnf.empty()) out.compiled = cache.get(out.gbnf);
  } catch (const ggml::Error& error) {
    throw ggml::Error(error.code(), settings.grammar_source + ": " + error.message(), error.hint());
  }
  return out;
}

}  // namespace common
