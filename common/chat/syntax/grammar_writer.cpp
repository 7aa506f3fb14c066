#include "common/chat/syntax/grammar_writer.h"

#include <nlohmann/json.hpp>

#include "ggml/error.h"

namespace common::chat::syntax {

namespace {
/// As a step of a JSON pointer.
std::string pointer_step(const std::string& key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

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
  const auto properties = tool->schema().find("properties");
  const bool is_reached_otherwise = properties == tool->schema().end() || !properties->contains(parameter->key);
  return naming(*tool, [&] {
    if (is_reached_otherwise) return builder_.schema(name, *parameter->schema, notation);
    // By its place in the whole document: references in it lead where they should, and errors name the place in what
    // the client sent.
    return builder_.schema_part(name, tool->schema(), "#/properties/" + pointer_step(parameter->key), notation);
  });
}

}  // namespace common::chat::syntax
