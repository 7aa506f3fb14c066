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

std::string build(grammar::GrammarBuilder& builder, const Tool& tool, const std::string& name,
                  const nlohmann::ordered_json& schema) {
  try {
    return builder.schema(name, schema);
  } catch (const ggml::Error& e) {
    throw ggml::Error(
        e.code(),
        "Field 'tools[" + std::to_string(tool.index()) + "].function.parameters' (" + tool.name() + "): " + e.message(),
        e.hint());
  }
}
}  // namespace

std::string GrammarWriter::arguments() {
  return build(builder_, *tool, "arguments-" + tool->name(), tool->schema());
}

std::string GrammarWriter::value() {
  const std::string name = "value-" + tool->name() + "-" + parameter->key;
  const auto properties = tool->schema().find("properties");
  if (properties == tool->schema().end() || !properties->contains(parameter->key))
    return build(builder_, *tool, name, *parameter->schema);
  // The whole document with a reference to the parameter at its root: references in it lead where they should, and
  // errors name the place in what the client sent.
  nlohmann::ordered_json document = tool->schema();
  document["$ref"] = "#/properties/" + pointer_step(parameter->key);
  return build(builder_, *tool, name, document);
}

}  // namespace common::chat::syntax
