#include "common/chat/syntax/grammar_writer.h"

#include <nlohmann/json.hpp>

#include "ggml/error.h"

namespace common::chat::syntax {

namespace {
/// Runs `make` and names the tool in its errors.
template <class Make>
std::string naming(const Tool& tool, Make make) {
  try {
    return make();
  } catch (const ggml::Error& e) {
    throw ggml::Error(
        e.code(),
        "Field 'tools[" + std::to_string(tool.index()) + "].function.parameters' (" + tool.name() + "): " + e.message(),
        e.hint());
  }
}
}  // namespace

std::string GrammarWriter::arguments(const grammar::Notation* notation) {
  return naming(*tool, [&] { return builder_.schema("arguments-" + tool->name(), tool->schema(), notation); });
}

std::string GrammarWriter::value(const grammar::Notation* notation) {
  const std::string name = "value-" + tool->name() + "-" + parameter->key;
  return naming(*tool, [&] {
    if (parameter->pointer.empty()) return builder_.schema(name, *parameter->schema, notation);
    // By its place in the whole document: references in it lead where they should, and errors name the place in what
    // the client sent.
    return builder_.schema_part(name, tool->schema(), parameter->pointer, notation);
  });
}

void GrammarWriter::refuse_key() {
  const std::string place = parameter->pointer.empty() ? "#/required" : parameter->pointer;
  (void)naming(*tool, [&]() -> std::string {
    throw ggml::Error(ggml::ErrorCode::invalid_argument,
                      place + ": the parameter \"" + parameter->key +
                          "\" is required, but its name cannot be written in this model's format of calls");
  });
}

}  // namespace common::chat::syntax
