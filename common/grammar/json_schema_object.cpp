#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/grammar/schema_rules.h"
#include "ggml/log.h"

namespace common::grammar {

using ggml::strf;

namespace {

constexpr int kMaxMergeDepth = 32;
constexpr std::size_t kMergeWork = 50;
// Of longer keys only the beginning is told apart from additional ones.
constexpr std::size_t kMaxKeyCharacters = 200;

std::string json_text(const SchemaJson& value) {
  return value.dump(-1, ' ', false, SchemaJson::error_handler_t::replace);
}

/// The characters of a key as they are spelled in JSON: single characters and escape sequences.
std::vector<std::string> spelled_characters(const std::string& key) {
  const std::string text = json_text(SchemaJson(key));
  std::vector<std::string> units;
  for (std::size_t i = 1; i + 1 < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    std::size_t n = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (text[i] == '\\') n = text[i + 1] == 'u' ? 6 : 2;
    units.push_back(text.substr(i, n));
    i += n;
  }
  return units;
}

std::uint32_t code_point(const std::string& unit) {
  const auto lead = static_cast<unsigned char>(unit[0]);
  std::uint32_t code = unit.size() == 1 ? lead : lead & (0x7Fu >> unit.size());
  for (std::size_t i = 1; i < unit.size(); ++i) code = code << 6 | (static_cast<unsigned char>(unit[i]) & 0x3F);
  return code;
}

/// Keys as a trie of spelled characters.
class KeyTrie {
 public:
  void add(const std::string& key) {
    KeyTrie* node = this;
    std::size_t n = 0;
    for (const std::string& unit : spelled_characters(key)) {
      if (++n > kMaxKeyCharacters) return;
      node = &node->next_[unit];
    }
  }
  [[nodiscard]] bool empty() const { return next_.empty(); }

  /// Text that goes on from here and is no key and no beginning of one.
  [[nodiscard]] std::string others(GrammarBuilder& b, const std::string& any, const SchemaPlace& place) const {
    std::vector<std::string> alternatives;
    for (const auto& [unit, child] : next_) {
      const std::string rest = child.empty() ? any + "+" : b.rule(place.name + "-key", child.others(b, any, place));
      alternatives.push_back(GrammarBuilder::sequence({GrammarBuilder::literal(unit), rest}));
    }
    alternatives.push_back(other_character() + " " + any + "*");
    return GrammarBuilder::any_of(alternatives);
  }

 private:
  /// One character that is none of the next ones.
  [[nodiscard]] std::string other_character() const {
    std::vector<CodeRange> taken{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}};
    std::string escapes = "\"\\\\bfnrt";
    bool has_unicode = false;
    for (const auto& [unit, child] : next_) {
      if (unit[0] != '\\') {
        taken.push_back({code_point(unit), code_point(unit)});
      } else if (unit[1] == 'u') {
        has_unicode = true;
      } else {
        std::erase(escapes, unit[1]);
      }
    }
    return "(" + class_text(normalized(taken), true) + other_escapes(escapes, has_unicode) + ")";
  }
  [[nodiscard]] static std::string other_escapes(const std::string& letters, bool has_unicode) {
    std::vector<CodeRange> ranges;
    for (const char c : letters) ranges.push_back({static_cast<std::uint32_t>(c), static_cast<std::uint32_t>(c)});
    // A key with a control character in it is spelled \u00..; no other key may begin with such an escape then.
    std::vector<std::string> forms;
    if (!ranges.empty()) forms.push_back(class_text(normalized(ranges)));
    if (!has_unicode) forms.emplace_back("\"u\" [0-9a-fA-F]{4}");
    return forms.empty() ? "" : " | \"\\\\\" " + GrammarBuilder::any_of(forms);
  }

  std::map<std::string, KeyTrie> next_;
};

}  // namespace

/// Inside of an object or array at least one character was read, so references may be met again.
class SchemaRules::Inside {
 public:
  explicit Inside(SchemaRules& rules) : rules_(rules) { kept_.swap(rules.open_references_); }
  ~Inside() { kept_.swap(rules_.open_references_); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  SchemaRules& rules_;
  std::vector<std::string> kept_;
};

std::string SchemaRules::object(const SchemaJson& schema, const SchemaPlace& place) {
  Properties list;
  std::vector<std::string> required;
  if (const auto it = schema.find("required"); it != schema.end() && it->is_array()) {
    for (const SchemaJson& name : *it) {
      if (!name.is_string()) schema_error(place.at("required"), "expected names of properties");
      required.push_back(name.get<std::string>());
    }
  }
  std::sort(required.begin(), required.end());
  if (const auto it = schema.find("properties"); it != schema.end()) {
    const SchemaPlace inner = place.at("properties");
    if (!it->is_object()) schema_error(inner, "expected an object of schemas");
    for (const auto& [name, property] : it->items()) {
      const bool is_required = std::binary_search(required.begin(), required.end(), name);
      (is_required ? list.required : list.optional).push_back({name, &property, inner.at(name).named(name)});
    }
  }
  static const SchemaJson kAnything = true;
  if (const auto it = schema.find("additionalProperties"); it != schema.end() && *it != false) {
    list.additional = it->is_object() ? &*it : &kAnything;
    list.additional_place = place.at("additionalProperties").named("additional");
  }
  return object_of(list, place);
}

std::string SchemaRules::member(const Property& property, const SchemaPlace& place) {
  const std::string space = json_.space();
  const std::string key = GrammarBuilder::literal(json_text(SchemaJson(property.name)));
  return b_.rule(property.place.name + "-kv",
                 GrammarBuilder::sequence({key, space, "\":\"", space, value(*property.schema, property.place)}));
}

std::string SchemaRules::additional_member(const Properties& properties, const SchemaPlace& place) {
  KeyTrie trie;
  bool has_keys = false;
  for (const auto* list : {&properties.required, &properties.optional}) {
    for (const Property& property : *list) {
      if (property.name.empty()) continue;
      trie.add(property.name);
      has_keys = true;
    }
  }
  std::string key = json_.string();
  if (has_keys) {
    const std::string text = trie.others(b_, json_.character(), place);
    key = GrammarBuilder::sequence({"\"\\\"\"", GrammarBuilder::optional(text), "\"\\\"\""});
  }
  const std::string space = json_.space();
  return b_.rule(place.name + "-additional-kv",
                 GrammarBuilder::sequence(
                     {key, space, "\":\"", space, value(*properties.additional, properties.additional_place)}));
}

std::string SchemaRules::object_of(const Properties& properties, const SchemaPlace& place) {
  const Inside inside(*this);
  const std::string space = json_.space();
  const std::string comma = "\",\" " + space;
  std::vector<std::string> required;
  std::vector<std::string> optional;
  for (const Property& property : properties.required) required.push_back(member(property, place));
  for (const Property& property : properties.optional) optional.push_back(member(property, place));
  // tails[i]: what may follow when something stands before it and the optional ones from i on are still open.
  std::vector<std::string> tails(optional.size() + 1);
  std::string further;
  if (properties.additional != nullptr) {
    further = additional_member(properties, place);
    tails.back() = b_.rule(place.name + "-more", "(" + comma + " " + further + ")*");
  }
  for (std::size_t i = optional.size(); i-- > 0;) {
    const std::string one = GrammarBuilder::optional(comma + " " + optional[i]);
    tails[i] = b_.rule(place.name + "-rest", GrammarBuilder::sequence({one, tails[i + 1]}));
  }
  std::string members;
  if (!required.empty()) {
    for (std::size_t i = 0; i < required.size(); ++i)
      members = GrammarBuilder::sequence({members, i > 0 ? comma : "", required[i]});
    members = GrammarBuilder::sequence({members, tails.front(), space});
  } else {
    std::vector<std::string> first;
    for (std::size_t i = 0; i < optional.size(); ++i)
      first.push_back(GrammarBuilder::sequence({optional[i], tails[i + 1]}));
    if (!further.empty()) first.push_back(GrammarBuilder::sequence({further, tails.back()}));
    if (!first.empty())
      members = GrammarBuilder::optional(GrammarBuilder::sequence({GrammarBuilder::any_of(first), space}));
  }
  return b_.rule(place.name, GrammarBuilder::sequence({"\"{\"", space, members, "\"}\""}));
}

/// What the members of an allOf come to.
struct SchemaRules::Merged {
  Properties properties;
  std::vector<std::vector<std::string>> enums;  // the texts of each enum
  std::vector<std::pair<const SchemaJson*, SchemaPlace>> others;
  int depth = 0;
};

void SchemaRules::merge(const SchemaJson& schema, bool is_required, const SchemaPlace& place, Merged& into) {
  spend(kMergeWork, place);
  if (++into.depth > kMaxMergeDepth)
    schema_error(place, strf("allOf leads through more than %d schemas in a row", kMaxMergeDepth), true);
  if (!schema.is_object()) schema_error(place, "expected a schema");
  if (const auto it = schema.find("$ref"); it != schema.end()) {
    const auto [target, pointer] = resolve(*it, place);
    merge(*target, is_required, {pointer, place.name, place.depth}, into);
  } else if (const auto list = schema.find("properties"); list != schema.end() && list->is_object()) {
    const SchemaPlace inner = place.at("properties");
    for (const auto& [name, property] : list->items()) {
      const auto same = [&, wanted = &name](const Property& p) { return p.name == *wanted; };
      auto& required = into.properties.required;
      auto& optional = into.properties.optional;
      if (std::any_of(required.begin(), required.end(), same)) continue;
      if (!is_required && std::any_of(optional.begin(), optional.end(), same)) continue;
      if (is_required) optional.erase(std::remove_if(optional.begin(), optional.end(), same), optional.end());
      (is_required ? required : optional).push_back({name, &property, inner.at(name).named(name)});
    }
  } else if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    std::vector<std::string> texts;
    for (const SchemaJson& constant : *values) texts.push_back(json_text(constant));
    into.enums.push_back(std::move(texts));
  } else if (const auto nested = schema.find("allOf"); nested != schema.end() && nested->is_array()) {
    for (std::size_t i = 0; i < nested->size(); ++i) merge((*nested)[i], is_required, place.at("allOf").at(i), into);
  } else if (!schema.empty()) {
    into.others.emplace_back(&schema, place);
  }
  --into.depth;
}

std::string SchemaRules::all_of(const SchemaJson& list, const SchemaPlace& outer) {
  const SchemaPlace place = outer.at("allOf");
  if (!list.is_array() || list.empty()) schema_error(place, "expected a list of schemas");
  Merged merged;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const SchemaJson& member_schema = list[i];
    const SchemaPlace inner = place.at(i).named(std::to_string(i));
    if (!member_schema.is_object() || !member_schema.contains("anyOf")) {
      merge(member_schema, true, inner, merged);
      continue;
    }
    const SchemaJson& options = member_schema["anyOf"];
    if (!options.is_array()) schema_error(inner.at("anyOf"), "expected a list of schemas");
    for (std::size_t k = 0; k < options.size(); ++k) merge(options[k], false, inner.at("anyOf").at(k), merged);
  }
  if (!merged.enums.empty()) {
    std::vector<std::string> alternatives;
    for (const std::string& text : merged.enums.front()) {
      const bool in_all = std::all_of(merged.enums.begin(), merged.enums.end(), [&](const auto& texts) {
        return std::find(texts.begin(), texts.end(), text) != texts.end();
      });
      if (in_all) alternatives.push_back(GrammarBuilder::literal(text));
    }
    if (alternatives.empty()) schema_error(place, "the enums have no value in common");
    return b_.rule(outer.name, GrammarBuilder::any_of(alternatives));
  }
  const bool has_properties = !merged.properties.required.empty() || !merged.properties.optional.empty();
  if (has_properties || merged.others.empty()) return object_of(merged.properties, outer);
  // Neither objects nor enums: one schema stands for itself, several are put together keyword by keyword.
  if (merged.others.size() == 1) return value(*merged.others.front().first, merged.others.front().second);
  SchemaJson all = SchemaJson::object();
  for (const auto& [schema, where] : merged.others) all.update(*schema);
  return value(all, outer);
}

std::string SchemaRules::tuple(const SchemaJson& items, const SchemaPlace& place) {
  const std::string space = json_.space();
  const std::string comma = "\",\" " + space;
  std::string all;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string item = value(items[i], place.at(i).named(std::to_string(i)));
    all = GrammarBuilder::sequence({all, i > 0 ? comma : "", item});
  }
  if (!all.empty()) all += " " + space;
  return b_.rule(place.name, GrammarBuilder::sequence({"\"[\"", space, all, "\"]\""}));
}

std::string SchemaRules::array(const SchemaJson& schema, const SchemaPlace& place) {
  const Inside inside(*this);
  for (const char* key : {"prefixItems", "items"}) {
    if (const auto it = schema.find(key); it != schema.end() && it->is_array()) return tuple(*it, place.at(key));
  }
  const int min = schema_count(schema, "minItems", 0, place);
  const int max = schema_count(schema, "maxItems", GrammarBuilder::kUnlimited, place);
  if (min > kMaxRepetitions)
    schema_error(place.at("minItems"), strf("%d is above the limit of %d", min, kMaxRepetitions), true);
  if (max != GrammarBuilder::kUnlimited && max < min) schema_error(place, "maxItems is below minItems");
  const std::string space = json_.space();
  if (max == 0) return b_.rule(place.name, "\"[\" " + space + " \"]\"");
  const auto items = schema.find("items");
  const std::string item = items != schema.end() ? value(*items, place.at("items").named("item")) : json_.value();
  // A rule of its own, so that it may be repeated up to the limit of repetitions.
  const std::string next = b_.rule(place.name + "-next", "\",\" " + space + " " + item);
  const int more = max == GrammarBuilder::kUnlimited ? max : max - 1;
  std::string all = GrammarBuilder::sequence({item, GrammarBuilder::repeat(next, std::max(0, min - 1), more), space});
  if (min == 0) all = GrammarBuilder::optional(all);
  return b_.rule(place.name, GrammarBuilder::sequence({"\"[\"", space, all, "\"]\""}));
}

}  // namespace common::grammar
