// MiniMax M3: a namespace mark in front of every tag, nested values as nested tags.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/chat/formats/format.h"
#include "common/chat/syntax/grammar_writer.h"
#include "common/chat/syntax/json_scanner.h"
#include "common/json/json_fault.h"

namespace common::chat::formats {

namespace {
using Builder = grammar::GrammarBuilder;

const std::string kMark = "]<]minimax[>[";
constexpr int kMaxDepth = 64;

std::string json_string(std::string_view text) {
  std::string json = "\"";
  append_escaped(text, json);
  return json + '"';
}

using nlohmann::ordered_json;

/// A schema inside of a tool's, or nothing where none is known.
class Place {
 public:
  Place(const ordered_json* schema, const ordered_json* root) : schema_(schema), root_(root) {}

  [[nodiscard]] ValueTypes types() const { return schema_ == nullptr ? ValueTypes{} : value_types(*schema_, *root_); }
  [[nodiscard]] std::vector<std::string> listed() const {
    return schema_ == nullptr ? std::vector<std::string>() : listed_values(*schema_, *root_);
  }
  [[nodiscard]] Place member(const std::string& key) const { return below(find_member(key)); }
  [[nodiscard]] Place item(std::size_t index) const { return below(find_item(index)); }

 private:
  [[nodiscard]] Place below(const ordered_json* schema) const { return {schema, root_}; }

  /// What `look` finds in the schema itself or in a branch of it.
  template <class Look>
  const ordered_json* search(Look look) const {
    constexpr int kMaxSteps = 1000;  // ways through branches may be very many
    int steps_left = kMaxSteps;
    return search(schema_, 0, steps_left, look);
  }
  template <class Look>
  const ordered_json* search(const ordered_json* given, int depth, int& steps_left, Look look) const {
    if (given == nullptr || !given->is_object() || depth > kMaxDepth || --steps_left < 0) return nullptr;
    const ordered_json& schema = resolved(*given, *root_);
    if (!schema.is_object()) return nullptr;
    if (const ordered_json* found = look(schema)) return found;
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      const auto list = schema.find(key);
      if (list == schema.end() || !list->is_array()) continue;
      for (const auto& branch : *list)
        if (const ordered_json* found = search(&branch, depth + 1, steps_left, look)) return found;
    }
    return nullptr;
  }

  [[nodiscard]] const ordered_json* find_member(const std::string& key) const {
    const ordered_json* listed = search([&](const ordered_json& schema) {
      const auto properties = schema.find("properties");
      const bool has = properties != schema.end() && properties->is_object() && properties->contains(key);
      return has ? &(*properties)[key] : nullptr;
    });
    if (listed != nullptr) return listed;
    return search([](const ordered_json& schema) {
      const auto further = schema.find("additionalProperties");
      return further != schema.end() && further->is_object() ? &*further : nullptr;
    });
  }

  [[nodiscard]] const ordered_json* find_item(std::size_t index) const {
    return search([&](const ordered_json& schema) -> const ordered_json* {
      const auto prefix = schema.find("prefixItems");
      if (prefix != schema.end() && prefix->is_array() && index < prefix->size()) return &(*prefix)[index];
      const auto items = schema.find("items");
      if (items == schema.end()) return nullptr;
      if (items->is_array()) return index < items->size() ? &(*items)[index] : nullptr;
      return &*items;
    });
  }

  const ordered_json* schema_;
  const ordered_json* root_;
};

/// Reads a value from its raw text, as its schema understands it; where that says nothing, tags are an object, or a
/// list where all of them are called `item`.
class NestedTags {
 public:
  explicit NestedTags(std::string_view text) : rest_(text) {}

  /// JSON; nothing when the tags do not fit together.
  std::optional<std::string> value(const Place& place, int depth) {
    if (depth > kMaxDepth) return std::nullopt;
    const ValueTypes types = place.types();
    const std::string_view begin = rest_;
    skip_space();
    if (!opens() || !(types.object || types.list)) {
      rest_ = begin;
      return scalar(place, types);
    }
    return tags(place, types.list && (!types.object || only_items()), depth);
  }

  [[nodiscard]] bool ended() const { return rest_.empty(); }

 private:
  [[nodiscard]] bool opens() const {
    return rest_.substr(0, kMark.size() + 1) == kMark + "<" && rest_.substr(kMark.size() + 1, 1) != "/";
  }
  void skip_space() {
    while (!rest_.empty() && is_space(rest_.front())) rest_.remove_prefix(1);
  }

  /// The next tag's key and, as `read` makes it of the rest, its value.
  template <class Read>
  std::optional<std::string> tag(std::string& key, Read read) {
    rest_.remove_prefix(kMark.size() + 1);
    const std::size_t end = rest_.find('>');
    if (end == std::string_view::npos) return std::nullopt;
    key = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    std::optional<std::string> inner = read(key);
    std::string close(kMark);
    close.append("</").append(key).append(">");
    if (!inner || rest_.substr(0, close.size()) != close) return std::nullopt;
    rest_.remove_prefix(close.size());
    skip_space();
    return inner;
  }

  /// Whether all tags here are called `item`.
  [[nodiscard]] bool only_items() const {
    const std::string open = kMark + "<", item = open + "item>";
    int depth = 0;
    for (std::size_t at = rest_.find(open); at != std::string_view::npos; at = rest_.find(open, at + open.size())) {
      const bool closes = rest_.substr(at + open.size(), 1) == "/";
      if (closes && --depth < 0) return true;
      if (!closes && depth++ == 0 && rest_.substr(at, item.size()) != item) return false;
    }
    return true;
  }

  std::optional<std::string> tags(const Place& place, bool list, int depth) {
    std::string json, key;
    for (std::size_t n = 0; opens(); ++n) {
      const auto inner = tag(
          key, [&](const std::string& name) { return value(list ? place.item(n) : place.member(name), depth + 1); });
      if (!inner) return std::nullopt;
      if (n > 0) json += ',';
      json += list ? *inner : json_string(key) + ":" + *inner;
    }
    return list ? "[" + json + "]" : "{" + json + "}";
  }

  std::string scalar(const Place& place, const ValueTypes& types) {
    const std::string raw(rest_.substr(0, rest_.find(kMark)));
    rest_.remove_prefix(raw.size());
    std::string_view word = raw;
    while (!word.empty() && is_space(word.front())) word.remove_prefix(1);
    while (!word.empty() && is_space(word.back())) word.remove_suffix(1);
    for (const std::string& value : place.listed())
      if (raw_text(value) == word) return value;
    if (word.empty() && !types.text) return types.object ? "{}" : types.list ? "[]" : "null";
    const bool says_text = types.text && !(types.object && types.list && types.other);
    if (says_text && !(types.other && word == "null")) return json_string(raw);
    return !word.empty() && has_json_form(word) ? std::string(word) : json_string(raw);
  }

  std::string_view rest_;
};

std::string nested_to_json(const std::string& raw, const Tool* tool, const Tool::Parameter* parameter) {
  const bool known = tool != nullptr && parameter != nullptr;
  NestedTags reading(raw);
  const std::optional<std::string> json =
      reading.value({known ? parameter->schema : nullptr, known ? &tool->schema() : nullptr}, 0);
  return json && reading.ended() ? *json : json_string(raw);
}

std::string tagged(const std::string& key, const std::string& inner) {
  return Builder::sequence(
      {Builder::literal(kMark + "<" + key + ">"), inner, Builder::literal(kMark + "</" + key + ">")});
}

bool can_be_tag(const std::string& key) {
  return key.find('>') == std::string::npos && key.find(kMark) == std::string::npos && key.substr(0, 1) != "/";
}

class TagNotation final : public grammar::Notation {
 public:
  [[nodiscard]] std::string name() const override { return "tagged"; }
  [[nodiscard]] std::string text(Builder& builder) const override {
    const std::vector<std::string> stops = {kMark};
    return builder.text_until("text", stops);
  }
  [[nodiscard]] std::string string(const std::string& text) const override { return text; }
  [[nodiscard]] std::string member(const std::string& key, const std::string& value) const override {
    return tagged(key, value);
  }
  [[nodiscard]] std::string item(const std::string& value) const override { return tagged("item", value); }
  [[nodiscard]] bool carries(const std::string& key) const override { return can_be_tag(key); }
  /// The closing tag repeats the key, which a grammar cannot say of any key.
  [[nodiscard]] std::string other_member(Builder&, std::span<const std::string>, const std::string&) const override {
    return {};
  }
  [[nodiscard]] Frame object() const override { return {}; }
  [[nodiscard]] Frame array() const override { return {}; }
};
const TagNotation kNotation;

ReplyFormat describe(const TemplateView&) {
  ReplyFormat format;
  add_thinking(format, "<mm:think>", {"</mm:think>"});
  ValueShape shape;
  shape.stop = kMark + "</{key}>";
  shape.nested_tag = kMark + "<";
  shape.to_json = nested_to_json;
  shape.value_grammar = [](GrammarWriter& writer) { return writer.value(&kNotation); };
  const ElementPtr parameter = seq(text(kMark + "<"), not_before({"/"}), key({">"}), text(">"), value(std::move(shape)),
                                   keyed_text(kMark + "</{key}>"));
  const ElementPtr one = call(seq(text(kMark + "<invoke name=\""), name({"\""}), text("\">"), parameters(parameter),
                                  space(), closing(kMark + "</invoke>")));
  add_call(format, section(kMark + "<tool_call>", one, kMark + "</tool_call>"));
  return format;
}
}  // namespace

const Format k_minimax_m3{"MiniMax M3", [](const TemplateView& t) { return t.has(kMark); }, describe};

}  // namespace common::chat::formats
