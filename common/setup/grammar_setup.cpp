#include "common/setup/grammar_setup.h"

#include <nlohmann/json.hpp>

#include "common/grammar/grammar_builder.h"
#include "ggml/error.h"

namespace common {

std::string grammar_text(const SamplingSettings& settings) {
  if (settings.json_schema.empty()) return settings.grammar;
  using Json = nlohmann::ordered_json;
  constexpr int kMaxDepth = 512;
  Json schema;
  try {
    schema = Json::parse(settings.json_schema, [](int depth, Json::parse_event_t, Json&) {
      if (depth > kMaxDepth) throw ggml::Error(ggml::ErrorCode::exceeds_limit, "--json-schema: nested too deeply");
      return true;
    });
  } catch (const Json::exception& error) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, std::string("--json-schema: ") + error.what());
  }
  return grammar::schema_to_gbnf(schema);
}

}  // namespace common
