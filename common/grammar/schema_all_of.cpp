// allOf: several schemas that hold at once, put together to one.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common/grammar/schema_rules.h"
#include "ggml/log.h"

namespace common::grammar {

using ggml::strf;

namespace {

constexpr int kMaxMergeDepth = 32;
constexpr std::size_t kMergeWork = 50;

using Names = std::vector<std::string>;

Names type_names(const SchemaJson& type) {
  return type.is_array() ? type.get<Names>() : Names{type.get<std::string>()};
}

/// The types of values that both allow; a whole number is a number too.
Names common_types(const Names& a, const Names& b) {
  Names both;
  for (const std::string& left : a) {
    for (const std::string& right : b) {
      if (left == right || (left == "integer" && right == "number")) both.push_back(left);
      if (left == "number" && right == "integer") both.push_back(right);
    }
  }
  return both;
}

/// Adds the keywords of `schema` to `all`: of bounds the tighter one holds, of names all, of other keywords the last.
void add_keywords(const SchemaJson& schema, SchemaJson& all) {
  constexpr std::string_view kLow[] = {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"};
  constexpr std::string_view kHigh[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"};
  const auto is_one_of = [](const auto& names, const std::string& key) {
    return std::find(std::begin(names), std::end(names), key) != std::end(names);
  };
  for (const auto& [key, value] : schema.items()) {
    if (!is_schema_keyword(key)) continue;
    SchemaJson& known = all[key];
    const bool both_numbers = known.is_number() && value.is_number();
    if (both_numbers && is_one_of(kLow, key)) {
      if (compare_numbers(value, known) > 0) known = value;
    } else if (both_numbers && is_one_of(kHigh, key)) {
      if (compare_numbers(value, known) < 0) known = value;
    } else if (key == "type" && !known.is_null() && !value.is_null()) {
      known = common_types(type_names(known), type_names(value));
    } else if (key == "required" && known.is_array() && value.is_array()) {
      known.insert(known.end(), value.begin(), value.end());
    } else {
      known = value;
    }
  }
}

}  // namespace

/// What the members of an allOf come to.
struct SchemaRules::Merged {
  Properties properties;
  std::unordered_map<std::string_view, bool> is_required;  // by the properties' names
  std::vector<std::vector<std::string>> enums;             // the texts of each enum
  std::vector<std::pair<const SchemaJson*, SchemaPlace>> others;
  std::vector<std::pair<Names, SchemaPlace>> types;                // that members demand
  std::vector<std::pair<std::string, SchemaPlace>> demanded;       // the names in their `required`
  std::unordered_map<std::string_view, SchemaPlace> never_places;  // of properties.never
  int depth = 0;

  [[nodiscard]] bool may_be_object() const {
    return std::all_of(types.begin(), types.end(), [](const auto& type) {
      return std::find(type.first.begin(), type.first.end(), "object") != type.first.end();
    });
  }
  void demand(const SchemaJson& schema, const SchemaPlace& place) {
    if (!requires_some(schema)) return;
    for (const SchemaJson& name : schema["required"])
      demanded.emplace_back(name.get<std::string>(), place.at("required"));
  }

  /// Throws the error for the first type that the ones before it exclude.
  void check_types() const {
    if (types.empty()) return;
    Names allowed = types.front().first;
    for (const auto& [names, where] : types) {
      const Names both = common_types(allowed, names);
      if (both.empty()) {
        schema_error(where, strf("no value is both %s, as %s demands, and %s", allowed.front().c_str(),
                                 types.front().second.pointer.c_str(), names.front().c_str()));
      }
      allowed = both;
    }
  }
};

void SchemaRules::merge(const SchemaJson& schema, bool is_required, const SchemaPlace& place, Merged& into) {
  spend(kMergeWork, place);
  if (++into.depth > kMaxMergeDepth)
    schema_error(place, strf("allOf leads through more than %d schemas in a row", kMaxMergeDepth), true);
  if (!schema.is_object()) {
    if (schema != true) schema_error(place, "the schema false allows no value");
    --into.depth;
    return;
  }
  check_keywords(schema, place);
  if (const SchemaJson* type = schema_keyword(schema, "type"); type != nullptr && is_required)
    into.types.emplace_back(type_names(*type), place.at("type"));
  if (is_required) into.demand(schema, place);
  if (const SchemaJson* reference = schema_keyword(schema, "$ref")) {
    const auto [target, pointer] = resolve(*reference, place);
    merge(*target, is_required, {pointer, place.name, place.depth}, into);
  } else if (const SchemaJson* list = schema_keyword(schema, "properties")) {
    if (is_required && schema_keyword(schema, "type") == nullptr)
      into.types.emplace_back(Names{"object"}, place.at("properties"));
    const SchemaPlace inner = place.at("properties");
    for (const auto& [name, property] : list->get_ref<const SchemaJson::object_t&>()) {
      spend(kMergeWork, inner);
      if (empty_.is_empty(
              property)) {  // what the others say of it comes to nothing then, unless this is one of several
        if (!is_required) continue;
        into.properties.never.push_back(name);
        into.never_places.try_emplace(name, inner.at(name));
        continue;
      }
      const auto [known, is_new] = into.is_required.try_emplace(name, is_required);
      if (!is_new && (known->second || !is_required)) continue;
      known->second = is_required;  // an optional one of this name goes when all are there
      (is_required ? into.properties.required : into.properties.optional)
          .push_back({name, &property, inner.at(name).named(name)});
    }
  } else if (const SchemaJson* values = schema_keyword(schema, "enum")) {
    std::vector<std::string> texts;
    for (const SchemaJson& constant : *values) {
      texts.push_back(constant.dump(-1, ' ', false, SchemaJson::error_handler_t::replace));
      spend(texts.back().size(), place);
    }
    into.enums.push_back(std::move(texts));
  } else if (const SchemaJson* nested = schema_keyword(schema, "allOf")) {
    for (std::size_t i = 0; i < nested->size(); ++i) merge((*nested)[i], is_required, place.at("allOf").at(i), into);
  } else if (!schema.empty()) {
    into.others.emplace_back(&schema, place);
  }
  --into.depth;
}

/// Adds what `required` names to the properties that must be there.
void SchemaRules::require_demanded(Merged& merged) {
  static const SchemaJson kAnything = true;
  Properties& properties = merged.properties;
  std::unordered_set<std::string_view> names;
  for (const auto& [name, where] : merged.demanded) {
    if (const auto never = merged.never_places.find(name); never != merged.never_places.end())
      schema_error(where, "'" + name + "' is required, and " + never->second.pointer + " never allows it");
    names.insert(name);
  }
  // Where nothing lists properties, any others may be there too.
  if (!names.empty() && merged.is_required.empty() && properties.never.empty()) properties.additional = &kAnything;
  std::vector<Property> optional;
  for (Property& property : properties.optional)
    (names.contains(property.name) ? properties.required : optional).push_back(std::move(property));
  properties.optional = std::move(optional);
  for (const auto& [name, where] : merged.demanded)
    if (merged.is_required.try_emplace(name, true).second)
      properties.required.push_back({name, &kAnything, where.named(name)});
}

std::string SchemaRules::all_of(const SchemaJson& whole, const SchemaPlace& outer) {
  const SchemaPlace place = outer.at("allOf");
  const SchemaJson& list = whole["allOf"];
  Merged merged;
  if (const SchemaJson* type = schema_keyword(whole, "type"); type != nullptr && type->is_string())
    merged.types.emplace_back(type_names(*type), outer.at("type"));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const SchemaJson& member_schema = list[i];
    const SchemaPlace inner = place.at(i).named(std::to_string(i));
    if (!member_schema.is_object() || schema_keyword(member_schema, "anyOf") == nullptr) {
      merge(member_schema, true, inner, merged);
      continue;
    }
    check_keywords(member_schema, inner);
    if (empty_.is_empty(member_schema)) refuse_empty(member_schema, inner);
    const SchemaJson& options = member_schema["anyOf"];
    for (std::size_t k = 0; k < options.size(); ++k)
      if (!empty_.is_empty(options[k])) merge(options[k], false, inner.at("anyOf").at(k), merged);
  }
  merged.demand(whole, outer);
  merged.check_types();
  std::erase_if(merged.properties.optional, [&](const Property& p) { return merged.is_required[p.name]; });
  const std::unordered_set<std::string_view> never(merged.properties.never.begin(), merged.properties.never.end());
  for (auto* properties : {&merged.properties.required, &merged.properties.optional})
    std::erase_if(*properties, [&](const Property& p) { return never.contains(p.name); });
  if (merged.may_be_object()) require_demanded(merged);
  if (!merged.enums.empty()) {
    std::unordered_map<std::string_view, std::size_t> n_enums;  // that have a text, counted while all before had it
    for (std::size_t i = 0; i < merged.enums.size(); ++i) {
      for (const std::string& text : merged.enums[i]) {
        std::size_t& n = n_enums[text];
        if (n == i) ++n;
      }
    }
    std::vector<std::string> alternatives;
    for (const std::string& text : merged.enums.front())
      if (n_enums[text] == merged.enums.size()) alternatives.push_back(json_.constant(SchemaJson::parse(text)));
    if (alternatives.empty()) schema_error(place, "the enums have no value in common");
    return b_.rule(outer.name, GrammarBuilder::any_of(alternatives));
  }
  const bool has_properties =
      !merged.properties.required.empty() || !merged.properties.optional.empty() || !never.empty();
  if (has_properties || merged.others.empty()) return object_of(merged.properties, outer);
  // Neither objects nor enums: one schema stands for itself, several are put together keyword by keyword.
  const SchemaJson* type = schema_keyword(whole, "type");
  const SchemaJson& first = *merged.others.front().first;
  if (merged.others.size() == 1 && (type == nullptr || schema_keyword(first, "type") != nullptr))
    return value(first, merged.others.front().second);
  SchemaJson& all = made_.emplace_back(SchemaJson::object());
  if (type != nullptr) all["type"] = *type;
  for (const auto& [schema, where] : merged.others) add_keywords(*schema, all);
  return value(all, outer);
}

}  // namespace common::grammar
