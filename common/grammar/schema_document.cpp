#include "common/grammar/schema_document.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "common/grammar/schema_rules.h"

namespace common::grammar {

namespace {

// What a search may take; beyond it every schema counts as one that has values, and the limits of grammars hold.
constexpr std::size_t kMaxSteps = 200'000;
constexpr std::size_t kMaxOpen = 1000;  // of levels and references in a row

std::string unescaped_key(std::string_view token) {
  std::string out;
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
      out += token[++i] == '0' ? '~' : '/';
    } else {
      out += token[i];
    }
  }
  return out;
}

}  // namespace

std::string pointer_step(std::string_view key) {
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

const SchemaJson* SchemaDocument::member_of(const SchemaJson& object, const std::string& key) {
  constexpr std::size_t kFew = 32;
  if (object.size() <= kFew) {
    const auto it = object.find(key);
    return it == object.end() ? nullptr : &*it;
  }
  auto& members = members_[&object];
  if (members.empty()) {
    for (const auto& member : object.get_ref<const SchemaJson::object_t&>())
      members.emplace(member.first, &member.second);
  }
  const auto it = members.find(key);
  return it == members.end() ? nullptr : it->second;
}

const SchemaJson* SchemaDocument::find(const std::string& pointer, std::string* missing) {
  if (pointer.compare(0, 2, "#/") != 0) return nullptr;
  const SchemaJson* at = &root_;
  for (std::size_t begin = 2; begin <= pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', begin), pointer.size());
    const std::string key = unescaped_key(std::string_view(pointer).substr(begin, end - begin));
    const bool is_index = !key.empty() && key.size() < 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (const SchemaJson* member = at->is_object() ? member_of(*at, key) : nullptr) {
      at = member;
    } else if (at->is_array() && is_index && std::stoul(key) < at->size()) {
      at = &at->at(std::stoul(key));
    } else {
      if (missing != nullptr) *missing = key;
      return nullptr;
    }
    begin = end + 1;
  }
  return at;
}

bool EmptySchemas::is_empty(const SchemaJson& schema) {
  return search(schema);
}

bool EmptySchemas::search(const SchemaJson& schema) {
  if (schema.is_boolean()) return !schema.get<bool>();
  if (!schema.is_object()) return false;
  if (const auto known = known_.find(&schema); known != known_.end()) return known->second;
  if (const auto open = open_.find(&schema); open != open_.end()) {
    outermost_ = std::min(outermost_, open->second);
    return true;
  }
  if (++n_steps_ > kMaxSteps || open_.size() >= kMaxOpen) return false;
  const std::size_t level = open_.size();
  const std::size_t outer = std::exchange(outermost_, level);
  open_.emplace(&schema, level);
  const bool empty = search_parts(schema);
  open_.erase(&schema);
  // That it is empty may be true only inside of what is open further out; that it is not is true everywhere.
  if (!empty || outermost_ == level) known_.emplace(&schema, empty);
  outermost_ = std::min(outer, outermost_);
  return empty;
}

/// In the order in which SchemaRules reads a schema.
bool EmptySchemas::search_parts(const SchemaJson& schema) {
  if (const SchemaJson* target = schema_keyword(schema, "$ref")) {
    if (!target->is_string()) return false;
    const auto& pointer = target->get_ref<const std::string&>();
    n_steps_ += pointer.size() / 16;
    const SchemaJson* found = document_.find(pointer);
    return found != nullptr && search(*found);
  }
  const auto all_empty = [this](const SchemaJson& list) {
    return std::all_of(list.begin(), list.end(), [this](const SchemaJson& branch) { return search(branch); });
  };
  for (const char* key : {"oneOf", "anyOf"})
    if (const SchemaJson* list = schema_keyword(schema, key)) return list->is_array() && all_empty(*list);
  if (schema_keyword(schema, "const") != nullptr || schema_keyword(schema, "enum") != nullptr) return false;
  const SchemaJson* type = schema_keyword(schema, "type");
  if (type != nullptr && !type->is_string()) return false;
  const auto is = [&](const char* name) { return type == nullptr || *type == name; };
  if (is("object") && (schema_keyword(schema, "properties") != nullptr || requires_some(schema)))
    return search_object(schema);
  if (const SchemaJson* list = schema_keyword(schema, "allOf"); list != nullptr && (is("object") || is("string"))) {
    return list->is_array() &&
           std::any_of(list->begin(), list->end(), [this](const SchemaJson& member) { return search(member); });
  }
  return is("array") && search_array(schema);
}

bool EmptySchemas::search_object(const SchemaJson& schema) {
  if (!requires_some(schema)) return false;
  static const SchemaJson kNoProperties = SchemaJson::object();
  const SchemaJson* properties = schema_keyword(schema, "properties");
  if (properties == nullptr || !properties->is_object()) properties = &kNoProperties;
  n_steps_ += properties->size() + schema["required"].size();
  std::unordered_set<std::string_view> required;
  for (const SchemaJson& name : schema["required"])
    if (name.is_string()) required.insert(name.get_ref<const std::string&>());
  for (const auto& [name, property] : properties->get_ref<const SchemaJson::object_t&>())
    if (required.erase(name) > 0 && search(property)) return true;
  const SchemaJson* further = schema_keyword(schema, "additionalProperties");
  return !required.empty() && further != nullptr && search(*further);
}

bool EmptySchemas::search_array(const SchemaJson& schema) {
  const ListShape shape = list_shape(schema);
  const std::size_t n_prefix = shape.prefix != nullptr ? shape.prefix->size() : 0;
  for (std::size_t i = 0; i < n_prefix && static_cast<int>(i) < shape.min; ++i)
    if (search((*shape.prefix)[i])) return true;
  return shape.min > static_cast<int>(n_prefix) && shape.rest != nullptr && search(*shape.rest);
}

}  // namespace common::grammar
