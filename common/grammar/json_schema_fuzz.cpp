#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "common/grammar/grammar.h"
#include "common/grammar/grammar_builder.h"
#include "ggml/error.h"
#include "ggml/log.h"

// Any JSON as a schema: it is refused with a message, or what comes out is a grammar that parses.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using Json = nlohmann::ordered_json;
  ggml::set_log_level(ggml::LogLevel::error);
  const Json schema = Json::parse(
      bytes, bytes + size, [](int depth, Json::parse_event_t, Json&) { return depth < 256; }, false);
  if (schema.is_discarded()) return 0;
  std::string text;
  try {
    text = common::grammar::schema_to_gbnf(schema);
  } catch (const ggml::Error& error) {
    if (error.message().empty()) std::abort();
    return 0;
  }
  try {
    (void)common::grammar::Grammar::parse(text);
  } catch (const ggml::Error& error) {
    // The converter writes valid GBNF; only limits, and references that lead in circles, may show this late.
    const bool is_known = error.code() == ggml::ErrorCode::exceeds_limit ||
                          error.message().find("left recursion") != std::string::npos ||
                          error.message().find("too many repetitions") != std::string::npos;
    if (!is_known) std::abort();
  }
  return 0;
}
