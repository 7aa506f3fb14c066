// What the keywords of a schema may be: also of those that the grammar leaves out, since a mistake in them is one.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "common/grammar/regex_syntax.h"
#include "common/grammar/schema_check.h"
#include "common/grammar/schema_rules.h"
#include "ggml/log.h"

namespace common::grammar {

using ggml::strf;

namespace {

enum class Kind : std::uint8_t {
  text,
  pattern,  // a regular expression
  flag,
  number,
  number_or_flag,  // draft 4 has exclusive bounds as flags
  above_zero,
  count,
  list,           // of at least one value
  names_or_flag,  // strings; draft 3 marks a property as required by a flag of its own
  schema,
  schema_or_list,
  schema_list,
  schema_map,
  pattern_map,  // schemas by regular expressions
  type
};

constexpr std::size_t kMaxTypes = 7;  // as many as there are; a list has each once
constexpr std::size_t kMaxSchemas = 80'000;

struct Keyword {
  const char* name;
  Kind kind;
};

constexpr Keyword kKeywords[] = {
    {"$ref", Kind::text},
    {"$schema", Kind::text},
    {"$defs", Kind::schema_map},
    {"definitions", Kind::schema_map},
    {"title", Kind::text},
    {"description", Kind::text},
    {"type", Kind::type},
    {"enum", Kind::list},
    {"allOf", Kind::schema_list},
    {"anyOf", Kind::schema_list},
    {"oneOf", Kind::schema_list},
    {"not", Kind::schema},
    {"if", Kind::schema},
    {"then", Kind::schema},
    {"else", Kind::schema},
    {"properties", Kind::schema_map},
    {"patternProperties", Kind::pattern_map},
    {"additionalProperties", Kind::schema},
    {"unevaluatedProperties", Kind::schema},
    {"propertyNames", Kind::schema},
    {"required", Kind::names_or_flag},
    {"minProperties", Kind::count},
    {"maxProperties", Kind::count},
    {"items", Kind::schema_or_list},
    {"prefixItems", Kind::schema_list},
    {"additionalItems", Kind::schema},
    {"unevaluatedItems", Kind::schema},
    {"contains", Kind::schema},
    {"minItems", Kind::count},
    {"maxItems", Kind::count},
    {"minContains", Kind::count},
    {"maxContains", Kind::count},
    {"uniqueItems", Kind::flag},
    {"pattern", Kind::pattern},
    {"format", Kind::text},
    {"minLength", Kind::count},
    {"maxLength", Kind::count},
    {"minimum", Kind::number},
    {"maximum", Kind::number},
    {"exclusiveMinimum", Kind::number_or_flag},
    {"exclusiveMaximum", Kind::number_or_flag},
    {"multipleOf", Kind::above_zero},
};

const char* expectation(Kind kind) {
  switch (kind) {
    case Kind::text:
    case Kind::pattern:
      return "a string";
    case Kind::flag:
      return "true or false";
    case Kind::number:
    case Kind::number_or_flag:
      return "a number";
    case Kind::above_zero:
      return "a number above 0";
    case Kind::count:
      return "a whole number of 0 or more";
    case Kind::list:
      return "a list of at least one value";
    case Kind::names_or_flag:
      return "a list of names";
    case Kind::schema:
      return "a schema";
    case Kind::schema_or_list:
      return "a schema or a list of schemas";
    case Kind::schema_list:
      return "a list of at least one schema";
    case Kind::schema_map:
    case Kind::pattern_map:
      return "an object of schemas";
    case Kind::type:
      return "a type name or a list of them";
  }
  return "";
}

bool is_schema(const SchemaJson& value) {
  return value.is_object() || value.is_boolean();
}

bool is_count(const SchemaJson& value) {
  if (!value.is_number()) return false;
  const auto number = value.get<double>();
  return number >= 0 && std::floor(number) == number;
}

bool are_strings(const SchemaJson& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const auto& v) { return v.is_string(); });
}

bool fits(Kind kind, const SchemaJson& value) {
  switch (kind) {
    case Kind::text:
    case Kind::pattern:
      return value.is_string();
    case Kind::flag:
      return value.is_boolean();
    case Kind::number:
      return value.is_number();
    case Kind::number_or_flag:
      return value.is_number() || value.is_boolean();
    case Kind::above_zero:
      return value.is_number() && value.get<double>() > 0;
    case Kind::count:
      return is_count(value);
    case Kind::list:
    case Kind::schema_list:
      return value.is_array() && !value.empty();
    case Kind::names_or_flag:
      return are_strings(value) || value.is_boolean();
    case Kind::schema:
      return is_schema(value);
    case Kind::schema_or_list:
      return is_schema(value) || value.is_array();
    case Kind::schema_map:
    case Kind::pattern_map:
      return value.is_object();
    case Kind::type:
      return value.is_string() || (are_strings(value) && !value.empty() && value.size() <= kMaxTypes);
  }
  return false;
}

/// Calls `visit` with each schema that the keyword's value holds, and with its place.
template <class Visit>
void for_each_schema(Kind kind, const SchemaJson& value, const SchemaPlace& place, Visit visit) {
  const bool is_list = kind == Kind::schema_list || kind == Kind::schema_or_list;
  if (kind == Kind::schema_map || kind == Kind::pattern_map) {
    for (const auto& [name, member] : value.items()) visit(member, place.at(name));
  } else if (is_list && value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) visit(value[i], place.at(i));
  } else if (kind == Kind::schema || kind == Kind::schema_or_list) {
    visit(value, place);
  }
}

void check_pattern(const std::string& pattern, const SchemaPlace& place) {
  if (const auto fault = find_regex_fault(pattern)) pattern_error(place, pattern, fault->offset, fault->what);
}

/// What the value of a keyword holds: schemas where they should be, regular expressions that can be read.
void check_members(Kind kind, const SchemaJson& value, const SchemaPlace& place) {
  for_each_schema(kind, value, place, [](const SchemaJson& member, const SchemaPlace& where) {
    if (!is_schema(member)) schema_error(where, "expected a schema, got " + schema_text(member));
  });
  if (kind == Kind::pattern) check_pattern(value.get_ref<const std::string&>(), place);
  if (kind == Kind::pattern_map) {
    for (const auto& [name, member] : value.items()) check_pattern(name, place.at(name));
  }
}

const std::unordered_map<std::string_view, Kind>& keyword_kinds() {
  static const std::unordered_map<std::string_view, Kind> kinds = [] {
    std::unordered_map<std::string_view, Kind> map;
    for (const Keyword& keyword : kKeywords) map.emplace(keyword.name, keyword.kind);
    return map;
  }();
  return kinds;
}

void check_order(const SchemaJson& schema, const char* low, const char* high, const SchemaPlace& place) {
  const SchemaJson* least = schema_keyword(schema, low);
  const SchemaJson* most = schema_keyword(schema, high);
  if (least == nullptr || most == nullptr || !least->is_number() || !most->is_number()) return;
  if (compare_numbers(*least, *most) <= 0) return;
  schema_error(place.at(high),
               strf("%s is below %s, which is %s", schema_text(*most).c_str(), low, schema_text(*least).c_str()));
}

/// A bound and an exclusive one between which nothing lies.
void check_exclusive(const SchemaJson& schema, const char* low, const char* high, const SchemaPlace& place) {
  const SchemaJson* least = schema_keyword(schema, low);
  const SchemaJson* most = schema_keyword(schema, high);
  if (least == nullptr || most == nullptr || !least->is_number() || !most->is_number()) return;
  if (compare_numbers(*least, *most) < 0) return;
  schema_error(place.at(high), strf("no number lies between %s, which is %s, and %s", low, schema_text(*least).c_str(),
                                    schema_text(*most).c_str()));
}

void check_all(const SchemaJson& schema, const SchemaPlace& outer, std::size_t& n_schemas) {
  if (!schema.is_object()) return;
  SchemaPlace place = outer;
  if (++place.depth > kMaxSchemaDepth) schema_error(place, strf("schemas nest deeper than %d", kMaxSchemaDepth), true);
  if (++n_schemas > kMaxSchemas)
    schema_error(place, strf("the schema is too large: more than %zu schemas are in it", kMaxSchemas), true);
  check_keywords(schema, place);
  for (const auto& [name, value] : schema.items()) {
    const auto known = keyword_kinds().find(name);
    if (value.is_null() || known == keyword_kinds().end()) continue;
    for_each_schema(known->second, value, place.at(name),
                    [&](const SchemaJson& inner, const SchemaPlace& where) { check_all(inner, where, n_schemas); });
  }
}

}  // namespace

void pattern_error(const SchemaPlace& place, const std::string& pattern, std::size_t offset, const std::string& what) {
  schema_error(place, "pattern \"" + pattern.substr(0, 200) + strf("\", offset %zu: ", offset) + what);
}

bool is_schema_keyword(const std::string& name) {
  return keyword_kinds().contains(name);
}

std::string schema_text(const SchemaJson& value) {
  constexpr std::size_t kShown = 80;
  std::string text = value.dump(-1, ' ', false, SchemaJson::error_handler_t::replace);
  if (text.size() > kShown) text = text.substr(0, kShown - 3) + "...";
  return text;
}

const SchemaJson* schema_keyword(const SchemaJson& schema, const char* key) {
  const auto it = schema.find(key);
  return it == schema.end() || (it->is_null() && std::string_view(key) != "const") ? nullptr : &*it;
}

bool requires_some(const SchemaJson& schema) {
  const SchemaJson* names = schema_keyword(schema, "required");
  return names != nullptr && names->is_array() && !names->empty();
}

int compare_numbers(const SchemaJson& a, const SchemaJson& b) {
  // Holds every number that a JSON tree holds: whole ones of 64 bits, and doubles.
  static_assert(std::numeric_limits<long double>::digits >= 64);
  const auto exact = [](const SchemaJson& number) -> long double {
    if (number.is_number_unsigned()) return static_cast<long double>(number.get<std::uint64_t>());
    if (number.is_number_integer()) return static_cast<long double>(number.get<std::int64_t>());
    return number.get<double>();
  };
  const long double left = exact(a);
  const long double right = exact(b);
  return left < right ? -1 : left > right ? 1 : 0;
}

void check_keywords(const SchemaJson& schema, const SchemaPlace& place) {
  const auto& kinds = keyword_kinds();
  for (const auto& [name, value] : schema.items()) {
    if (value.is_null()) continue;  // some clients write null for what they leave out
    const auto known = kinds.find(name);
    if (known == kinds.end()) continue;
    if (!fits(known->second, value)) {
      schema_error(place.at(name), strf("expected %s, got %s", expectation(known->second), schema_text(value).c_str()));
    }
    check_members(known->second, value, place.at(name));
  }
  for (const auto& [low, high] : {std::pair{"minLength", "maxLength"},
                                  {"minItems", "maxItems"},
                                  {"minProperties", "maxProperties"},
                                  {"minimum", "maximum"}})
    check_order(schema, low, high, place);
  for (const auto& [low, high] : {std::pair{"exclusiveMinimum", "exclusiveMaximum"},
                                  {"exclusiveMinimum", "maximum"},
                                  {"minimum", "exclusiveMaximum"}})
    check_exclusive(schema, low, high, place);
}

void check_schema(const nlohmann::ordered_json& schema) {
  std::size_t n_schemas = 0;
  check_all(schema, {"#", "schema", 0}, n_schemas);
}

}  // namespace common::grammar
