// MiniMax M3: a namespace mark in front of every tag, nested values as nested tags.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/chat/formats/format.h"
#include "common/chat/syntax/grammar_writer.h"
#include "common/chat/syntax/json_scanner.h"

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
