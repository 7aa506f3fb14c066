#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/grammar/schema_check.h"
#include "common/grammar/schema_rules.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace common::grammar {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

namespace {

// Bytes of constants, and for each schema its share: bounds the text that a schema can grow to.
constexpr std::size_t kMaxWork = 4'000'000;
constexpr std::size_t kSchemaWork = 50;

constexpr double kExactDouble = 9007199254740992.0;  // below it every whole number is a double

/// A whole double from 2^53 on. What was written is known only up to the digits that every double keeps.
WholeNumber large_number(double value, const SchemaPlace& place) {
  constexpr std::size_t kKeptDigits = 15;
  std::string shortest;
  for (int digits = 0; digits < 17; ++digits) {
    shortest = strf("%.*e", digits, value);
    if (std::strtod(shortest.c_str(), nullptr) == value) break;
  }
  const std::size_t e = shortest.find('e');
  const int exponent = std::atoi(shortest.c_str() + e + 1);
  WholeNumber number{value < 0, {}};
  for (const char c : shortest.substr(0, e))
    if (c >= '0' && c <= '9') number.digits += c;
  if (number.digits.size() > kKeptDigits)
    schema_error(place, strf("%.17g has more digits than are kept of a number beyond 64 bits", value));
  number.digits.append(static_cast<std::size_t>(exponent) + 1 - number.digits.size(), '0');
  return number;
}

/// A bound as a whole number, rounded inwards.
std::optional<WholeNumber> whole_bound(const SchemaJson& schema, const char* key, bool is_minimum,
                                       const SchemaPlace& place) {
  const SchemaJson* value = schema_keyword(schema, key);
  if (value == nullptr || value->is_boolean()) return std::nullopt;
  if (value->is_number_float()) {
    const auto number = value->get<double>();
    if (std::abs(number) >= kExactDouble) return large_number(number, place.at(key));
    const double rounded = is_minimum ? std::ceil(number) : std::floor(number);
    return WholeNumber{rounded < 0, strf("%.0f", std::abs(rounded))};
  }
  std::string digits = value->dump();
  const bool negative = digits.front() == '-';
  if (negative) digits.erase(0, 1);
  return WholeNumber{negative && digits != "0", digits};
}

/// What an exclusive bound says of whole numbers: the next one inwards, unless the bound is none itself.
std::optional<WholeNumber> exclusive_bound(const SchemaJson& schema, const char* key, const char* plain_key,
                                           bool is_minimum, const SchemaPlace& place) {
  const SchemaJson* value = schema_keyword(schema, key);
  if (value == nullptr) return std::nullopt;
  // Draft 4: a flag beside the plain bound.
  const char* source = value->is_boolean() && value->get<bool>() ? plain_key : key;
  const auto bound = whole_bound(schema, source, is_minimum, place);
  if (!bound.has_value()) return std::nullopt;
  const SchemaJson& number = schema[source];
  const bool is_whole = !number.is_number_float() || std::floor(number.get<double>()) == number.get<double>();
  return is_whole ? bound->next(is_minimum ? 1 : -1) : bound;
}

}  // namespace

void schema_error(const SchemaPlace& place, const std::string& what, bool is_limit) {
  throw Error(is_limit ? ErrorCode::exceeds_limit : ErrorCode::invalid_argument,
              "json_schema: " + place.pointer + ": " + what);
}

SchemaPlace SchemaPlace::at(std::string_view key) const {
  // The place is for messages; every level keeps its own.
  constexpr std::size_t kMaxPointerBytes = 2000;
  if (pointer.size() + key.size() > kMaxPointerBytes) return *this;
  return {pointer + "/" + pointer_step(key), name, depth};
}

SchemaPlace SchemaPlace::at(std::size_t index) const {
  return {pointer + "/" + std::to_string(index), name, depth};
}

SchemaPlace SchemaPlace::named(std::string_view part) const {
  constexpr std::size_t kMaxNameBytes = 128;
  if (name.size() + part.size() > kMaxNameBytes) return *this;
  return {pointer, name + "-" + std::string(part), depth};
}

int schema_count(const SchemaJson& schema, const char* key, int fallback) {
  const SchemaJson* value = schema_keyword(schema, key);
  return value == nullptr ? fallback : static_cast<int>(std::min(value->get<double>(), 1e9));
}

SchemaRules::SchemaRules(GrammarBuilder& builder, const SchemaJson& document, std::string name,
                         const Notation* notation)
    : b_(builder), json_(builder, notation), document_(document), name_(std::move(name)) {}

std::string SchemaRules::root() {
  check_schema(document_.root());
  const SchemaPlace place{"#", name_, 0};
  std::string expression = value(document_.root(), place);
  if (empty_.is_empty(document_.root())) refuse_empty(document_.root(), place);
  return expression;
}

std::string SchemaRules::part(const std::string& pointer) {
  std::string expression = reference(pointer, {"#", name_, 0});
  const SchemaJson* schema = document_.find(pointer);
  if (empty_.is_empty(*schema)) refuse_empty(*schema, {pointer, name_, 0});
  return expression;
}

void SchemaRules::refuse_empty(const SchemaJson& schema, const SchemaPlace& place) {
  if (schema == false) schema_error(place, "the schema false allows no value");
  (void)value(schema, place);  // knows the reason as a rule
  schema_error(place, "no value satisfies this schema: what it demands is never allowed, or goes on without end");
}

std::string SchemaRules::value(const SchemaJson& schema, const SchemaPlace& outer) {
  SchemaPlace place = outer;
  if (++place.depth > kMaxSchemaDepth) schema_error(place, strf("schemas nest deeper than %d", kMaxSchemaDepth), true);
  spend(kSchemaWork, place);
  if (schema.is_boolean()) {
    if (schema.get<bool>()) return json_.value();
    refuse_empty(schema, place);
  }
  if (!schema.is_object()) schema_error(place, "expected a schema, got " + schema_text(schema));
  check_keywords(schema, place);
  if (const SchemaJson* target = schema_keyword(schema, "$ref")) return reference(*target, place);
  for (const char* key : {"oneOf", "anyOf"}) {
    if (const SchemaJson* list = schema_keyword(schema, key)) return any_of_schemas(*list, place.at(key));
  }
  const SchemaJson* type = schema_keyword(schema, "type");
  if (type != nullptr && type->is_array()) return any_type(schema, *type, place);
  return value_of_type(schema, type != nullptr ? type->get<std::string>() : "", place);
}

std::string SchemaRules::value_of_type(const SchemaJson& schema, const std::string& type, const SchemaPlace& place) {
  if (const SchemaJson* constant = schema_keyword(schema, "const")) {
    std::string text = json_.constant(*constant);
    spend(text.size(), place);
    return text;
  }
  if (const SchemaJson* list = schema_keyword(schema, "enum")) return enumeration(*list, place.at("enum"));
  return typed_value(schema, type, place);
}

void SchemaRules::spend(std::size_t work, const SchemaPlace& place) {
  work_ += work;
  if (work_ > kMaxWork) schema_error(place, "the schema is too large", true);
}

std::string SchemaRules::typed_value(const SchemaJson& schema, const std::string& type, const SchemaPlace& place) {
  const auto is = [&](const char* name) { return type.empty() || type == name; };
  const auto has = [&](const char* key) { return schema_keyword(schema, key) != nullptr; };
  const SchemaJson* additional = schema_keyword(schema, "additionalProperties");
  const bool bounds_additional = additional != nullptr && *additional != true;
  if (is("object") && (has("properties") || bounds_additional)) return object(schema, place);
  if ((is("object") || is("string")) && has("allOf")) return all_of(schema, place);
  if (is("object") && requires_some(schema)) return object(schema, place);
  if (is("array") && (has("items") || has("prefixItems"))) return array(schema, place);
  if (is("string") && has("pattern") && json_.is_json()) {
    const std::string text =
        pattern_text(b_, schema["pattern"].get<std::string>(), place.at("pattern").named("pattern"));
    return b_.rule(place.name, GrammarBuilder::sequence({"\"\\\"\"", text, "\"\\\"\""}));
  }
  if (is("string") && has("format")) {
    if (auto known = formatted_string(schema["format"].get<std::string>())) return *known;
  }
  if (type == "string" && (has("minLength") || has("maxLength")) && json_.is_json()) return sized_string(schema, place);
  const bool has_bound = has("minimum") || has("maximum") || has("exclusiveMinimum") || has("exclusiveMaximum");
  if (type == "integer" && has_bound) return bounded_integer(schema, place);
  if (type == "array" && (has("minItems") || has("maxItems"))) return array(schema, place);
  if (type.empty()) return schema.empty() ? json_.object() : json_.value();
  return plain_type(type, place);
}

std::string SchemaRules::plain_type(const std::string& type, const SchemaPlace& place) {
  if (type == "object") return json_.object();
  if (type == "array") return json_.array();
  if (type == "string") return json_.string();
  if (type == "number") return json_.number();
  if (type == "integer") return json_.integer();
  if (type == "boolean") return json_.boolean();
  if (type == "null") return json_.null();
  schema_error(place.at("type"),
               "unknown type '" + type + "'; known are object, array, string, number, integer, boolean and null");
}

std::pair<const SchemaJson*, std::string> SchemaRules::resolve(const SchemaJson& target, const SchemaPlace& place) {
  const SchemaPlace here = place.at("$ref");
  const std::string text = target.get<std::string>();
  if (text.substr(0, 2) != "#/")
    schema_error(here, "'" + text + "' is not supported: only references into the same schema (#/...) are");
  std::string missing;
  const SchemaJson* at = document_.find(text, &missing);
  if (at == nullptr) schema_error(here, strf("'%s' leads nowhere: there is no '%s'", text.c_str(), missing.c_str()));
  return {at, text};
}

std::string SchemaRules::reference(const SchemaJson& target, const SchemaPlace& place) {
  const auto [schema, pointer] = resolve(target, place);
  if (std::find(open_references_.begin(), open_references_.end(), pointer) != open_references_.end())
    schema_error(place.at("$ref"), "'" + pointer + "' refers to itself without anything in between");
  const auto known = rule_of_reference_.find(pointer);
  if (known != rule_of_reference_.end()) return known->second;
  std::string rule = b_.declare(name_ + "-" + pointer.substr(pointer.rfind('/') + 1));
  rule_of_reference_[pointer] = rule;
  open_references_.push_back(pointer);
  const std::string body = value(*schema, {pointer, rule, place.depth});
  open_references_.pop_back();
  b_.define(rule, body);
  return rule;
}

std::string SchemaRules::any_of_schemas(const SchemaJson& list, const SchemaPlace& place) {
  std::vector<std::string> alternatives;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!empty_.is_empty(list[i])) alternatives.push_back(value(list[i], place.at(i).named(std::to_string(i))));
  }
  if (alternatives.empty())
    schema_error(place, "no value satisfies any of them: all are, or come to, the schema false");
  return alternatives.size() == 1 ? alternatives.front() : b_.rule(place.name, GrammarBuilder::any_of(alternatives));
}

std::string SchemaRules::any_type(const SchemaJson& schema, const SchemaJson& types, const SchemaPlace& place) {
  std::vector<std::string> names;
  std::vector<std::string> alternatives;
  for (const SchemaJson& type : types) {
    const auto name = type.get<std::string>();
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    names.push_back(name);
    alternatives.push_back(value_of_type(schema, name, place.named(name)));
  }
  return alternatives.size() == 1 ? alternatives.front() : b_.rule(place.name, GrammarBuilder::any_of(alternatives));
}

std::string SchemaRules::enumeration(const SchemaJson& list, const SchemaPlace& place) {
  std::vector<std::string> alternatives;
  alternatives.reserve(list.size());
  for (const SchemaJson& constant : list) {
    alternatives.push_back(json_.constant(constant));
    spend(alternatives.back().size(), place);
  }
  return alternatives.size() == 1 ? alternatives.front() : b_.rule(place.name, GrammarBuilder::any_of(alternatives));
}

std::string SchemaRules::sized_string(const SchemaJson& schema, const SchemaPlace& place) {
  const int min = schema_count(schema, "minLength", 0);
  const int max = schema_count(schema, "maxLength", GrammarBuilder::kUnlimited);
  if (min > kMaxRepetitions)
    schema_error(place.at("minLength"), strf("%d is above the limit of %d", min, kMaxRepetitions), true);
  return b_.rule(place.name, GrammarBuilder::sequence(
                                 {"\"\\\"\"", GrammarBuilder::repeat(json_.character(), min, max), "\"\\\"\""}));
}

std::optional<std::string> SchemaRules::formatted_string(const std::string& format) {
  const auto quoted = [&](const std::string& body) {
    return json_.is_json() ? b_.json_rule("json-" + format, json_.string_of(body))
                           : b_.rule(name_ + "-" + format, json_.string_of(body));
  };
  const bool is_uuid =
      format == "uuid" || (format.size() == 5 && format.substr(0, 4) == "uuid" && format[4] >= '1' && format[4] <= '5');
  if (is_uuid) {
    const std::string hex = "[0-9a-fA-F]";
    return quoted(hex + "{8} \"-\" " + hex + "{4} \"-\" " + hex + "{4} \"-\" " + hex + "{4} \"-\" " + hex + "{12}");
  }
  const std::string date = R"([0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [1-2] [0-9] | "3" [0-1]))";
  const std::string hour = R"(([0-1] [0-9] | "2" [0-3]))";
  const std::string time =
      hour + R"( ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,9})? ("Z" | [+-] )" + hour + R"( ":" [0-5] [0-9]))";
  if (format == "date") return quoted(date);
  if (format == "time") return quoted(time);
  if (format == "date-time") return quoted(date + " \"T\" " + time);
  return std::nullopt;
}

std::string SchemaRules::bounded_integer(const SchemaJson& schema, const SchemaPlace& place) {
  auto min = whole_bound(schema, "minimum", true, place);
  auto max = whole_bound(schema, "maximum", false, place);
  const auto above = exclusive_bound(schema, "exclusiveMinimum", "minimum", true, place);
  const auto below = exclusive_bound(schema, "exclusiveMaximum", "maximum", false, place);
  if (above.has_value()) min = min.has_value() ? std::max(*min, *above) : *above;
  if (below.has_value()) max = max.has_value() ? std::min(*max, *below) : *below;
  if (!min.has_value() && !max.has_value()) return json_.integer();
  if (min.has_value() && max.has_value() && *max < *min)
    schema_error(place, "no whole number is at least " + min->text() + " and at most " + max->text());
  return b_.rule(place.name, integer_range(min, max));
}

}  // namespace common::grammar
