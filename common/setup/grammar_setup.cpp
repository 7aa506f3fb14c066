#include "common/setup/grammar_setup.h"

#include <nlohmann/json.hpp>

#include "common/grammar/grammar_builder.h"
#include "common/json/parse_json.h"

namespace common {

std::string grammar_text(const SamplingSettings& settings) {
  if (settings.json_schema.empty()) return settings.grammar;
  return grammar::schema_to_gbnf(parse_json(settings.json_schema, "--json-schema is"));
}

}  // namespace common
