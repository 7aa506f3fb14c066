#include <nlohmann/json.hpp>

#include "common/grammar/schema_rules.h"

namespace common::grammar {

std::string JsonRules::character() {
  return add("json-char", R"([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))");
}

std::string JsonRules::string() {
  if (is_json()) return add("json-string", R"("\"" )" + character() + R"(* "\"")");
  if (string_.empty()) string_ = b_.rule(notation_->name() + "-string", notation_->string(notation_->text(b_)));
  return string_;
}

std::string JsonRules::string_of(const std::string& text) {
  return is_json() ? "\"\\\"\" " + text + " \"\\\"\"" : notation_->string(text);
}

std::string JsonRules::integer() {
  return add("json-integer", R"("-"? ("0" | [1-9] [0-9]{0,15}))");
}

std::string JsonRules::number() {
  return add("json-number",
             R"("-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? ("0" | [1-9] [0-9]{0,15}))?)");
}

std::string JsonRules::boolean() {
  return add("json-boolean", R"("true" | "false")");
}

std::string JsonRules::null() {
  return add("json-null", R"("null")");
}

std::string JsonRules::named(const char* name) const {
  return is_json() ? "json-" + std::string(name) : "json-" + notation_->name() + "-" + name;
}

Notation::Frame JsonRules::object_frame() const {
  return is_json() ? Notation::Frame{"\"{\"", "\",\"", "\"}\""} : notation_->object();
}

Notation::Frame JsonRules::array_frame() const {
  return is_json() ? Notation::Frame{"\"[\"", "\",\"", "\"]\""} : notation_->array();
}

std::string JsonRules::member(const std::string& key, const std::string& value) {
  if (!is_json()) return notation_->member(key, value);
  const std::string name =
      GrammarBuilder::literal(SchemaJson(key).dump(-1, ' ', false, SchemaJson::error_handler_t::replace));
  return GrammarBuilder::sequence({name, space(), "\":\"", space(), value});
}

std::string JsonRules::constant(const SchemaJson& value) {
  if (is_json() || value.is_primitive()) {
    if (!is_json() && value.is_string())
      return notation_->string(GrammarBuilder::literal(value.get_ref<const std::string&>()));
    return GrammarBuilder::literal(value.dump(-1, ' ', false, SchemaJson::error_handler_t::replace));
  }
  const Notation::Frame frame = value.is_object() ? object_frame() : array_frame();
  std::vector<std::string> parts{frame.open};
  for (const auto& [key, inner] : value.items()) {
    if (parts.size() > 1) parts.push_back(frame.separator);
    parts.push_back(value.is_object() ? member(key, constant(inner)) : item(constant(inner)));
  }
  parts.push_back(frame.close);
  const std::string all = GrammarBuilder::sequence(parts);
  return all.empty() ? GrammarBuilder::literal("") : all;
}

void JsonRules::add_containers() {
  const std::string s = space();
  const std::string value = named("value");
  const std::string one =
      is_json() ? GrammarBuilder::sequence({string(), s, "\":\"", s, value}) : other_member({}, value);
  const auto list = [&](const Notation::Frame& frame, const std::string& item) {
    const std::string more = GrammarBuilder::repeat(GrammarBuilder::sequence({frame.separator, s, item}), 0);
    return GrammarBuilder::sequence(
        {frame.open, s, GrammarBuilder::optional(GrammarBuilder::sequence({item, more, s})), frame.close});
  };
  std::string kinds = string() + " | " + number() + " | " + boolean() + " | " + null();
  b_.json_rule(named("array"), list(array_frame(), item(value)));
  if (one.empty()) {
    b_.json_rule(named("object"), string());
  } else {
    b_.json_rule(named("object"), list(object_frame(), b_.json_rule(named("member"), one)));
    kinds = named("object") + " | " + named("array") + " | " + kinds;
  }
  b_.json_rule(value, kinds);
}

std::string JsonRules::value() {
  add_containers();
  return named("value");
}

std::string JsonRules::object() {
  add_containers();
  return named("object");
}

std::string JsonRules::array() {
  add_containers();
  return named("array");
}

}  // namespace common::grammar
