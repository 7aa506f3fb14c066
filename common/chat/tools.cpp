#include "common/chat/tools.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace common::chat {

namespace {
using nlohmann::ordered_json;

constexpr int kMaxReferences = 32;  // a chain of references that is longer goes in a circle

bool type_is(const ordered_json& type, std::string_view name) {
  if (type.is_string()) return type.get_ref<const std::string&>() == name;
  return type.is_array() &&
         std::any_of(type.begin(), type.end(), [&](const auto& t) { return t.is_string() && t == std::string(name); });
}

ValueKind kind_at(const ordered_json& given, const ordered_json& root, int depth);

/// Over the branches of anyOf, oneOf or allOf: text if any may be one.
ValueKind kind_of_branches(const ordered_json& branches, const ordered_json& root, int depth) {
  ValueKind kind = ValueKind::json;
  for (const auto& branch : branches) {
    const ValueKind k = kind_at(branch, root, depth + 1);
    if (k == ValueKind::text) return k;
    if (k == ValueKind::either) kind = k;
  }
  return kind;
}

ValueKind kind_at(const ordered_json& given, const ordered_json& root, int depth) {
  const ordered_json& schema = resolved(given, root);
  if (!schema.is_object() || depth > kMaxReferences) return ValueKind::either;
  if (const auto type = schema.find("type"); type != schema.end())
    return type_is(*type, "string") ? ValueKind::text : ValueKind::json;
  if (const auto constant = schema.find("const"); constant != schema.end())
    return constant->is_string() ? ValueKind::text : ValueKind::json;
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    const bool any = std::any_of(values->begin(), values->end(), [](const auto& v) { return v.is_string(); });
    return any ? ValueKind::text : ValueKind::json;
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"})
    if (const auto branches = schema.find(key); branches != schema.end() && branches->is_array())
      return kind_of_branches(*branches, root, depth);
  for (const char* key : {"pattern", "minLength", "maxLength", "format"})
    if (schema.contains(key)) return ValueKind::text;
  for (const char* key : {"properties", "items", "prefixItems", "additionalProperties"})
    if (schema.contains(key)) return ValueKind::json;
  return ValueKind::either;
}
}  // namespace

const ordered_json& resolved(const ordered_json& schema, const ordered_json& root) {
  const ordered_json* at = &schema;
  for (int i = 0; i < kMaxReferences && at->is_object(); ++i) {
    const auto reference = at->find("$ref");
    if (reference == at->end() || !reference->is_string()) return *at;
    const auto& text = reference->get_ref<const std::string&>();
    if (text.rfind("#/", 0) != 0) return *at;
    try {
      const ordered_json::json_pointer pointer(text.substr(1));
      if (!root.contains(pointer)) return *at;
      at = &root.at(pointer);
    } catch (const ordered_json::exception&) {
      return *at;  // the grammar's builder says what is wrong with it
    }
  }
  return *at;
}

ValueKind value_kind(const ordered_json& schema, const ordered_json& root) {
  return kind_at(schema, root, 0);
}

Tool::Tool(std::string name, const ordered_json* parameters, int index)
    : name_(std::move(name)),
      schema_(
          std::make_unique<ordered_json>(parameters && parameters->is_object() ? *parameters : ordered_json::object())),
      index_(index) {}
Tool::~Tool() = default;
Tool::Tool(Tool&&) noexcept = default;
Tool& Tool::operator=(Tool&&) noexcept = default;

ValueKind Tool::parameter_kind(std::string_view key) const {
  const auto properties = schema_->find("properties");
  if (properties == schema_->end() || !properties->is_object()) return ValueKind::either;
  const auto property = properties->find(std::string(key));
  return property == properties->end() ? ValueKind::either : value_kind(*property, *schema_);
}

std::vector<Tool::Parameter> Tool::parameters() const {
  std::vector<Parameter> out;
  const ordered_json& object = resolved(*schema_, *schema_);
  const auto properties = object.find("properties");
  if (properties == object.end() || !properties->is_object()) return out;
  const auto required = object.find("required");
  for (const auto& [key, schema] : properties->items()) {
    const bool needed = required != object.end() && required->is_array() &&
                        std::find(required->begin(), required->end(), key) != required->end();
    out.push_back({key, &schema, needed});
  }
  return out;
}

ToolSet::ToolSet(const ordered_json& tools, std::string_view only) {
  int index = -1;
  for (const auto& tool : tools) {
    ++index;
    const auto& function = tool["function"];
    const auto& name = function["name"].get_ref<const std::string&>();
    if (!only.empty() && name != only) continue;
    const auto parameters = function.find("parameters");
    tools_.emplace_back(name, parameters == function.end() ? nullptr : &*parameters, index);
  }
}

const Tool* ToolSet::find(std::string_view name) const {
  const auto it = std::find_if(tools_.begin(), tools_.end(), [&](const Tool& t) { return t.name() == name; });
  return it == tools_.end() ? nullptr : &*it;
}

}  // namespace common::chat
