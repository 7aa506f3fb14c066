// Gemma 4: arguments in a notation of its own, strings between <|"|> marks.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/chat/formats/format.h"
#include "common/chat/syntax/grammar_writer.h"
#include "common/chat/syntax/json_scanner.h"
#include "common/chat/syntax/output.h"
#include "common/chat/syntax/stops.h"

namespace common::chat::formats {

namespace {
using Builder = grammar::GrammarBuilder;
using nlohmann::ordered_json;

const std::string kQuote = "<|\"|>";
constexpr std::size_t kMaxDepth = 200;
constexpr int kMaxSchemaDepth = 8;  // deeper, or in a circle: any value

class MarkedArguments final : public Element {
 public:
  Ahead look(Lookahead& at) const override {
    if (at.text.empty()) return at.last ? Ahead::no : Ahead::maybe;
    at.decided = true;
    return at.text.front() == '{' ? Ahead::yes : Ahead::no;
  }
  void add_marks(std::vector<std::string>& marks) const override { marks.push_back(kQuote); }
  std::unique_ptr<Matcher> match() const override;
  std::optional<std::string> grammar(GrammarWriter& writer) const override {
    return value_of(writer, writer.tool->schema(), 0);
  }

 private:
  struct Reading;
  static std::string value_of(GrammarWriter& writer, const ordered_json& schema, int depth);
  static std::string object_of(GrammarWriter& writer, const ordered_json& schema, int depth);
  static std::string any_value(GrammarWriter& writer);
};

struct MarkedArguments::Reading final : Matcher {
  enum class State : std::uint8_t { value, key, quoted_key, string, json_string, word, after };

  Step step(Input& in, Output& out) override {
    Step result = Step::more;
    std::string json;
    while (result == Step::more && !in.text.empty() && advance(in, json, result)) {
    }
    out.arguments(json);
    return result;
  }

  /// Reads on; false when more text is needed.
  bool advance(Input& in, std::string& json, Step& result) {
    switch (state_) {
      case State::string:
      case State::quoted_key:
        return read_string(in, json);
      case State::json_string:
        return read_json_string(in, json);
      case State::word:
      case State::key:
        return read_word(in, json);
      default:
        break;
    }
    const char c = in.text.front();
    if (is_space(c)) {
      in.take(1);
      return true;
    }
    if (state_ == State::after) {
      result = read_after(c, in, json);
      return true;
    }
    return begin_value(c, in, json, result);
  }

  bool begin_value(char c, Input& in, std::string& json, Step& result) {
    if (c == '{' || c == '[') {
      if (open_.size() >= kMaxDepth) {
        result = Step::failed;
        return true;
      }
      open_ += c;
      json += c;
      in.take(1);
      state_ = c == '{' ? State::key : State::value;
      return true;
    }
    if (c == ']' && !open_.empty() && open_.back() == '[') {
      state_ = State::after;
      return true;
    }
    const Clear clear = clear_before(in.text, {kQuote}, in.last);
    if (clear.size == 0 && !clear.stopped) return false;  // perhaps a mark
    if (clear.size == 0) {
      in.take(kQuote.size());
      json += '"';
      state_ = State::string;
    } else if (c == '"') {
      scanner_ = {};
      state_ = State::json_string;
    } else {
      state_ = State::word;
    }
    return true;
  }

  bool read_string(Input& in, std::string& json) {
    const Clear clear = clear_before(in.text, {kQuote}, in.last);
    append_escaped(in.text.substr(0, clear.size), json);
    in.take(clear.size);
    if (!clear.stopped) return false;
    in.take(kQuote.size());
    json += '"';
    state_ = state_ == State::string ? State::after : State::key;
    quoted_ = state_ == State::key;
    return true;
  }

  bool read_json_string(Input& in, std::string& json) {
    while (!in.text.empty()) {
      const char c = in.text.front();
      const bool inside = scanner_.in_string();
      const auto verdict = scanner_.push(c);
      append_json(c, inside && scanner_.in_string(), json);
      in.take(1);
      if (verdict != JsonScanner::Verdict::last) continue;
      state_ = State::after;
      return true;
    }
    return false;
  }

  /// A key up to its colon, or a value that is no string up to what ends it.
  bool read_word(Input& in, std::string& json) {
    const bool key = state_ == State::key;
    if (key && word_.empty() && !quoted_) {
      if (is_space(in.text.front())) {
        in.take(1);
        return true;
      }
      if (in.text.front() == '}') {
        state_ = State::after;
        return true;
      }
      const Clear clear = clear_before(in.text, {kQuote}, in.last);
      if (clear.size == 0 && !clear.stopped) return false;
      if (clear.size == 0) {
        in.take(kQuote.size());
        json += '"';
        state_ = State::quoted_key;
        return true;
      }
    }
    const char c = in.text.front();
    if (key ? c == ':' : c == ',' || c == '}' || c == ']') {
      key ? end_key(in, json) : end_word(json);
      return true;
    }
    word_ += c;
    in.take(1);
    return true;
  }

  void end_key(Input& in, std::string& json) {
    in.take(1);
    if (!quoted_) {
      json += '"';
      append_escaped(trimmed(), json);
      json += '"';
    }
    json += ':';
    quoted_ = false;
    word_.clear();
    state_ = State::value;
  }

  void end_word(std::string& json) {
    const std::string word = trimmed();
    if (nlohmann::json::accept(word)) {
      json += word;
    } else {
      json += '"';
      append_escaped(word, json);
      json += '"';
    }
    word_.clear();
    state_ = State::after;
  }

  [[nodiscard]] std::string trimmed() const {
    const std::size_t end = word_.find_last_not_of(" \n\r\t");
    return end == std::string::npos ? std::string() : word_.substr(0, end + 1);
  }

  /// A character that does not fit stays unread: it is no part of what has been put out.
  Step read_after(char c, Input& in, std::string& json) {
    const bool more = c == ',';
    if (open_.empty() || (!more && c != (open_.back() == '{' ? '}' : ']'))) return Step::failed;
    in.take(1);
    json += c;
    if (more) {
      state_ = open_.back() == '{' ? State::key : State::value;
      return Step::more;
    }
    open_.pop_back();
    return open_.empty() ? Step::done : Step::more;
  }

  State state_ = State::value;
  std::string open_, word_;
  JsonScanner scanner_;
  bool quoted_ = false;
};

std::unique_ptr<Matcher> MarkedArguments::match() const {
  return std::make_unique<Reading>();
}

std::string quoted_text(const std::string& expression) {
  return Builder::sequence({Builder::literal(kQuote), expression, Builder::literal(kQuote)});
}

std::string constant(const ordered_json& value) {
  return value.is_string() ? quoted_text(Builder::literal(value.get_ref<const std::string&>()))
                           : Builder::literal(value.dump());
}

std::string MarkedArguments::any_value(GrammarWriter& writer) {
  Builder& builder = writer.builder();
  const std::vector<std::string> stops = {kQuote};
  std::string any = builder.declare("marked-value");
  const std::string member = Builder::sequence({"[a-zA-Z0-9_]{1,64}", Builder::literal(":"), any});
  const auto list = [&](const char* open, const std::string& one, const char* close) {
    const std::string more = Builder::repeat(Builder::sequence({Builder::literal(","), one}), 0);
    return Builder::sequence(
        {Builder::literal(open), Builder::optional(Builder::sequence({one, more})), Builder::literal(close)});
  };
  builder.define(any, Builder::any_of({quoted_text(builder.text_until("text", stops)),
                                       builder.schema("scalar", {{"type", {"number", "boolean", "null"}}}),
                                       list("{", member, "}"), list("[", any, "]")}));
  return any;
}

std::string MarkedArguments::object_of(GrammarWriter& writer, const ordered_json& schema, int depth) {
  std::vector<WrittenMember> members;
  const auto required = schema.find("required");
  for (const auto& [key, property] : schema["properties"].items()) {
    const bool needed = required != schema.end() && required->is_array() &&
                        std::find(required->begin(), required->end(), key) != required->end();
    members.push_back(
        {Builder::sequence({Builder::literal(key + ":"), value_of(writer, property, depth + 1)}), needed});
  }
  return Builder::sequence({Builder::literal("{"),
                            separated(writer, "members-" + writer.tool->name(), members, Builder::literal(",")),
                            Builder::literal("}")});
}

std::string MarkedArguments::value_of(GrammarWriter& writer, const ordered_json& given, int depth) {
  const ordered_json& schema = resolved(given, writer.tool->schema());
  if (!schema.is_object() || depth > kMaxSchemaDepth) return any_value(writer);
  std::vector<std::string> alternatives;
  for (const char* key : {"anyOf", "oneOf"})
    if (const auto branches = schema.find(key); branches != schema.end() && branches->is_array() && !branches->empty())
      for (const auto& branch : *branches) alternatives.push_back(value_of(writer, branch, depth + 1));
  if (const auto value = schema.find("const"); value != schema.end()) alternatives.push_back(constant(*value));
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array())
    for (const auto& value : *values) alternatives.push_back(constant(value));
  if (!alternatives.empty()) return Builder::any_of(alternatives);
  const std::string type = schema.contains("type") && schema["type"].is_string() ? schema["type"] : "";
  if (schema.contains("properties") && schema["properties"].is_object()) return object_of(writer, schema, depth);
  if (type == "object" && depth == 0) return Builder::literal("{}");
  const std::vector<std::string> stops = {kQuote};
  if (type == "string") return quoted_text(writer.builder().text_until("text", stops));
  if (type == "number" || type == "integer" || type == "boolean" || type == "null")
    return writer.builder().schema("scalar", schema);
  if (type == "array" && schema.contains("items")) {
    const std::string item = value_of(writer, schema["items"], depth + 1);
    const std::string more = Builder::repeat(Builder::sequence({Builder::literal(","), item}), 0);
    return Builder::sequence(
        {Builder::literal("["), Builder::optional(Builder::sequence({item, more})), Builder::literal("]")});
  }
  return depth == 0 ? Builder::literal("{}") : any_value(writer);
}

ReplyFormat describe(const TemplateView&) {
  ReplyFormat format;
  add_thinking(format, "<|channel>thought", {"<channel|>"});
  const ElementPtr one = call(seq(text("<|tool_call>"), cut(), text("call:"), name({"{"}),
                                  std::make_shared<MarkedArguments>(), closing("<tool_call|>")));
  add_call(format, calls(one, space()));
  return format;
}
}  // namespace

const Format k_gemma4{"Gemma 4", [](const TemplateView& t) { return t.has("'<|tool_call>call:'"); }, describe};

}  // namespace common::chat::formats
