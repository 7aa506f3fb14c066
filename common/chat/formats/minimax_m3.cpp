// MiniMax M3: a namespace mark in front of every tag, nested values as nested tags.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/chat/formats/format.h"
#include "common/chat/syntax/grammar_writer.h"
#include "common/chat/syntax/json_scanner.h"

namespace common::chat::formats {

namespace {
using Builder = grammar::GrammarBuilder;
using nlohmann::ordered_json;

const std::string kMark = "]<]minimax[>[";
constexpr int kMaxDepth = 64;
constexpr int kMaxSchemaDepth = 8;  // deeper, or in a circle: raw text

std::string json_string(std::string_view text) {
  std::string json = "\"";
  append_escaped(text, json);
  return json + '"';
}

/// Reads a value from its raw text: an object by the names of its tags, a list where all of them are `item`.
class NestedTags {
 public:
  explicit NestedTags(std::string_view text) : rest_(text) {}

  /// JSON; nothing when the tags do not fit together.
  std::optional<std::string> value(int depth) {
    skip_space();
    if (depth > kMaxDepth) return std::nullopt;
    if (!opens()) return scalar();
    std::string as_list, as_object;
    bool list = true;
    while (opens()) {
      rest_.remove_prefix(kMark.size() + 1);
      const std::size_t end = rest_.find('>');
      if (end == std::string_view::npos) return std::nullopt;
      const std::string key(rest_.substr(0, end));
      rest_.remove_prefix(end + 1);
      const std::optional<std::string> inner = value(depth + 1);
      std::string close(kMark);
      close.append("</").append(key).append(">");
      if (!inner || rest_.substr(0, close.size()) != close) return std::nullopt;
      rest_.remove_prefix(close.size());
      list = list && key == "item";
      const char* comma = as_list.empty() ? "" : ",";
      as_list += comma + *inner;
      as_object.append(comma).append(json_string(key)).append(":").append(*inner);
      skip_space();
    }
    return list ? "[" + as_list + "]" : "{" + as_object + "}";
  }

  [[nodiscard]] bool ended() {
    skip_space();
    return rest_.empty();
  }

 private:
  [[nodiscard]] bool opens() const {
    return rest_.substr(0, kMark.size() + 1) == kMark + "<" && rest_.substr(kMark.size() + 1, 1) != "/";
  }
  void skip_space() {
    while (!rest_.empty() && is_space(rest_.front())) rest_.remove_prefix(1);
  }
  std::string scalar() {
    const std::size_t end = std::min(rest_.find(kMark), rest_.size());
    std::string raw(rest_.substr(0, end));
    rest_.remove_prefix(end);
    while (!raw.empty() && is_space(raw.back())) raw.pop_back();
    return nlohmann::json::accept(raw) ? raw : json_string(raw);
  }

  std::string_view rest_;
};

std::string nested_to_json(const std::string& raw) {
  NestedTags tags(raw);
  const std::optional<std::string> json = tags.value(0);
  return json && tags.ended() ? *json : json_string(raw);
}

std::string tagged(const std::string& key, const std::string& inner) {
  return Builder::sequence(
      {Builder::literal(kMark + "<" + key + ">"), inner, Builder::literal(kMark + "</" + key + ">")});
}

std::string value_of(GrammarWriter& writer, const ordered_json& given, int depth) {
  const ordered_json& schema = resolved(given, writer.tool->schema());
  const std::vector<std::string> stops = {kMark};
  if (!schema.is_object() || depth > kMaxSchemaDepth) return writer.builder().text_until("text", stops);
  if (const auto properties = schema.find("properties"); properties != schema.end() && properties->is_object()) {
    const auto required = schema.find("required");
    std::vector<std::string> parts;
    for (const auto& [key, property] : properties->items()) {
      const std::string one = tagged(key, value_of(writer, property, depth + 1));
      const bool needed = required != schema.end() && required->is_array() &&
                          std::find(required->begin(), required->end(), key) != required->end();
      parts.push_back(needed ? one : Builder::optional(one));
    }
    return Builder::sequence(parts);
  }
  if (const auto items = schema.find("items"); items != schema.end() && items->is_object())
    return Builder::repeat(tagged("item", value_of(writer, *items, depth + 1)), 0);
  const auto type = schema.find("type");
  if (type != schema.end() && (*type == "number" || *type == "integer" || *type == "boolean" || *type == "null"))
    return writer.builder().schema("scalar", schema);
  return writer.builder().text_until("text", stops);
}

ReplyFormat describe(const TemplateView&) {
  ReplyFormat format;
  add_thinking(format, "<mm:think>", {"</mm:think>"});
  ValueShape shape;
  shape.stop = kMark + "</{key}>";
  shape.to_json = nested_to_json;
  shape.value_grammar = [](GrammarWriter& writer) { return value_of(writer, *writer.parameter->schema, 0); };
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
