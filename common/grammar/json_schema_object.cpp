#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "common/grammar/schema_rules.h"
#include "ggml/log.h"

namespace common::grammar {

using ggml::strf;

namespace {

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

/// The items in a row, with the separator between them.
std::string joined(const std::vector<std::string>& items, const std::string& separator) {
  std::vector<std::string> all;
  all.reserve(2 * items.size());
  for (const std::string& item : items) {
    if (!all.empty()) all.push_back(separator);
    all.push_back(item);
  }
  return GrammarBuilder::sequence(all);
}

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
  static const SchemaJson kAnything = true;
  Properties list;
  std::vector<std::string_view> required;
  if (requires_some(schema))
    for (const SchemaJson& name : schema["required"]) required.emplace_back(name.get_ref<const std::string&>());
  const std::vector<std::string_view> in_order = required;
  std::sort(required.begin(), required.end());
  std::unordered_set<std::string_view> listed;
  const SchemaJson* properties = schema_keyword(schema, "properties");
  if (properties != nullptr) {
    const SchemaPlace inner = place.at("properties");
    for (const auto& [name, property] : properties->get_ref<const SchemaJson::object_t&>()) {
      const bool is_required = std::binary_search(required.begin(), required.end(), name);
      listed.insert(name);
      if (!is_required && empty_.is_empty(property)) {
        list.never.push_back(name);
        continue;
      }
      (is_required ? list.required : list.optional).push_back({name, &property, inner.at(name).named(name)});
    }
  }
  const SchemaJson* further = schema_keyword(schema, "additionalProperties");
  // Where nothing is said of other keys, an object that lists some has no others.
  const bool may_have_others = further != nullptr ? !empty_.is_empty(*further) : properties == nullptr;
  const SchemaPlace others = place.at("additionalProperties").named("additional");
  for (const std::string_view name : in_order) {
    if (!listed.insert(name).second) continue;
    if (further != nullptr && !may_have_others) {
      schema_error(place.at("required"),
                   "'" + std::string(name) + "' is required and no property; additionalProperties allows no other key");
    }
    list.required.push_back({std::string(name), further != nullptr ? further : &kAnything, others.named(name)});
  }
  if (may_have_others) {
    list.additional = further != nullptr ? further : &kAnything;
    list.additional_place = others;
  }
  return object_of(list, place);
}

/// An object or a list of these members; not an empty text, which is no body of a rule.
std::string SchemaRules::framed(const Notation::Frame& frame, const std::string& members) {
  const std::string all = GrammarBuilder::sequence({frame.open, json_.space(), members, frame.close});
  return all.empty() ? GrammarBuilder::literal("") : all;
}

std::string SchemaRules::member(const Property& property) {
  return b_.rule(property.place.name + "-kv", json_.member(property.name, value(*property.schema, property.place)));
}

std::string SchemaRules::additional_member(const Properties& properties, const SchemaPlace& place) {
  std::vector<std::string> taken = properties.never;
  for (const auto* list : {&properties.required, &properties.optional})
    for (const Property& property : *list) taken.push_back(property.name);
  if (!json_.is_json()) {
    const std::string one = json_.other_member(taken, value(*properties.additional, properties.additional_place));
    return one.empty() ? one : b_.rule(place.name + "-additional", one);
  }
  KeyTrie trie;
  bool has_keys = false;
  for (const std::string& name : taken) {
    if (name.empty()) continue;
    trie.add(name);
    has_keys = true;
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
  const Notation::Frame frame = json_.object_frame();
  const std::string comma = GrammarBuilder::sequence({frame.separator, space});
  std::vector<std::string> required;
  std::vector<std::string> optional;
  for (const Property& property : properties.required) {
    if (!json_.carries(property.name))
      schema_error(property.place, "this name is required, but cannot be written in the model's format of calls");
    required.push_back(member(property));
  }
  for (const Property& property : properties.optional)
    if (json_.carries(property.name)) optional.push_back(member(property));
  // tails[i]: what may follow when something stands before it and the optional ones from i on are still open.
  std::vector<std::string> tails(optional.size() + 1);
  std::string further;
  if (properties.additional != nullptr) {
    further = additional_member(properties, place);
    if (!further.empty())
      tails.back() =
          b_.rule(place.name + "-more", GrammarBuilder::repeat(GrammarBuilder::sequence({comma, further}), 0));
  }
  for (std::size_t i = optional.size(); i-- > 0;) {
    const std::string one = GrammarBuilder::optional(GrammarBuilder::sequence({comma, optional[i]}));
    tails[i] = b_.rule(place.name + "-rest", GrammarBuilder::sequence({one, tails[i + 1]}));
  }
  std::string members;
  if (!required.empty()) {
    members = GrammarBuilder::sequence({joined(required, comma), tails.front(), space});
  } else {
    std::vector<std::string> first;
    for (std::size_t i = 0; i < optional.size(); ++i)
      first.push_back(GrammarBuilder::sequence({optional[i], tails[i + 1]}));
    if (!further.empty()) first.push_back(GrammarBuilder::sequence({further, tails.back()}));
    if (!first.empty())
      members = GrammarBuilder::optional(GrammarBuilder::sequence({GrammarBuilder::any_of(first), space}));
  }
  return b_.rule(place.name, framed(frame, members));
}

ListShape list_shape(const SchemaJson& schema) {
  ListShape shape;
  for (const auto& [prefix, rest] : {std::pair{"prefixItems", "items"}, {"items", "additionalItems"}}) {
    const SchemaJson* list = schema_keyword(schema, prefix);
    if (list == nullptr || !list->is_array()) continue;
    shape.prefix = list;
    shape.prefix_key = prefix;
    shape.rest_key = rest;
    break;
  }
  if (shape.prefix == nullptr) shape.rest_key = "items";
  shape.rest = schema_keyword(schema, shape.rest_key);
  const int n_prefix = shape.prefix != nullptr ? static_cast<int>(shape.prefix->size()) : 0;
  // A tuple whose schema does not say how long it is has exactly the listed items.
  const bool says_length = schema_keyword(schema, "maxItems") != nullptr || shape.rest != nullptr;
  shape.min = schema_count(schema, "minItems", n_prefix);
  shape.max = schema_count(schema, "maxItems", GrammarBuilder::kUnlimited);
  if (shape.prefix != nullptr && !says_length && shape.min <= n_prefix) shape.max = n_prefix;
  if (schema_keyword(schema, "minItems") == nullptr && shape.max != GrammarBuilder::kUnlimited)
    shape.min = std::min(shape.min, shape.max);
  return shape;
}

std::string SchemaRules::array(const SchemaJson& schema, const SchemaPlace& place) {
  const Inside inside(*this);
  ListShape shape = list_shape(schema);
  if (shape.min > kMaxRepetitions && (shape.prefix == nullptr || shape.min > static_cast<int>(shape.prefix->size())))
    schema_error(place.at("minItems"), strf("%d is above the limit of %d", shape.min, kMaxRepetitions), true);
  // A list ends before an item that can be no value.
  const auto end_at = [&](int n, const SchemaJson& item, const SchemaPlace& where) {
    if (shape.min > n) refuse_empty(item, where);
    shape.max = shape.max == GrammarBuilder::kUnlimited ? n : std::min(shape.max, n);
  };
  int n_prefix = 0;
  for (const std::size_t n = shape.prefix != nullptr ? shape.prefix->size() : 0; n_prefix < static_cast<int>(n);
       ++n_prefix) {
    const auto i = static_cast<std::size_t>(n_prefix);
    if (!empty_.is_empty((*shape.prefix)[i])) continue;
    end_at(n_prefix, (*shape.prefix)[i], place.at(shape.prefix_key).at(i));
    break;
  }
  if (shape.rest != nullptr && empty_.is_empty(*shape.rest)) end_at(n_prefix, *shape.rest, place.at(shape.rest_key));
  return b_.rule(place.name, framed(json_.array_frame(), shape.max == 0 ? std::string() : items(shape, place)));
}

/// The items of a list that may have some, with what stands between them.
std::string SchemaRules::items(const ListShape& shape, const SchemaPlace& place) {
  const std::string comma = GrammarBuilder::sequence({json_.array_frame().separator, json_.space()});
  const bool unlimited = shape.max == GrammarBuilder::kUnlimited;
  const int n_listed = shape.prefix != nullptr ? static_cast<int>(shape.prefix->size()) : 0;
  const int n_prefix = unlimited ? n_listed : std::min(n_listed, shape.max);
  std::vector<std::string> prefix;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n_prefix); ++i) {
    prefix.push_back(json_.item(value((*shape.prefix)[i], place.at(shape.prefix_key).at(i).named(std::to_string(i)))));
  }
  std::string tail;  // what may follow the listed ones
  if (unlimited || shape.max > n_prefix) {
    const std::string item =
        json_.item(shape.rest != nullptr ? value(*shape.rest, place.at(shape.rest_key).named("item")) : json_.value());
    // A rule of its own, so that it may be repeated up to the limit of repetitions.
    const std::string next = b_.rule(place.name + "-next", GrammarBuilder::sequence({comma, item}));
    const int n_before = std::max(n_prefix, 1);
    if (prefix.empty()) prefix.push_back(item);
    tail = GrammarBuilder::repeat(next, std::max(0, shape.min - n_before),
                                  unlimited ? GrammarBuilder::kUnlimited : shape.max - n_before);
  }
  const auto n_must = static_cast<std::size_t>(std::clamp(shape.min, 1, static_cast<int>(prefix.size())));
  for (std::size_t i = prefix.size(); i-- > n_must;) {
    const std::string one = GrammarBuilder::sequence({comma, prefix[i], tail});
    tail = b_.rule(place.name + "-rest", GrammarBuilder::optional(one));
  }
  prefix.resize(n_must);
  const std::string all = GrammarBuilder::sequence({joined(prefix, comma), tail, json_.space()});
  return shape.min == 0 ? GrammarBuilder::optional(all) : all;
}

}  // namespace common::grammar
