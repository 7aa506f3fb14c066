#include "common/grammar/schema_rules.h"

namespace common::grammar {

std::string JsonRules::character() {
  return add("json-char", R"([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))");
}

std::string JsonRules::string() {
  return add("json-string", R"("\"" )" + character() + R"(* "\"")");
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

void JsonRules::add_containers() {
  const std::string s = space();
  const std::string member = add("json-member", string() + " " + s + " \":\" " + s + " json-value");
  add("json-object", "\"{\" " + s + " (" + member + " (\",\" " + s + " " + member + ")* " + s + ")? \"}\"");
  add("json-array", "\"[\" " + s + " (json-value (\",\" " + s + " json-value)* " + s + ")? \"]\"");
  add("json-value", "json-object | json-array | " + string() + " | " + number() + " | " + boolean() + " | " + null());
}

std::string JsonRules::value() {
  add_containers();
  return "json-value";
}

std::string JsonRules::object() {
  add_containers();
  return "json-object";
}

std::string JsonRules::array() {
  add_containers();
  return "json-array";
}

}  // namespace common::grammar
