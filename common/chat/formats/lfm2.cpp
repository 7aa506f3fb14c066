// LFM2: a list of calls as Python writes them.
#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "common/chat/formats/format.h"
#include "common/chat/syntax/grammar_writer.h"
#include "common/chat/syntax/json_scanner.h"
#include "common/chat/syntax/output.h"
#include "common/json/json_fault.h"

namespace common::chat::formats {

namespace {
using Builder = grammar::GrammarBuilder;

constexpr std::size_t kMaxDepth = 200;

/// Turns a Python literal into JSON as it arrives.
class PythonValue {
 public:
  enum class Verdict : std::uint8_t { part, last, past, bad };

  /// Appends to `json` what the character adds.
  Verdict push(char c, std::string& json) {
    if (quote_ != 0) return in_string(c, json);
    if (!word_.empty()) {
      if (!ends_word(c)) {
        word_ += c;
        return Verdict::part;
      }
      append_word(json);
      if (open_.empty()) return Verdict::past;
    }
    if (is_space(c)) return Verdict::part;
    switch (c) {
      case '\'':
      case '"':
        begin_value(json);
        quote_ = c;
        json += '"';
        return Verdict::part;
      case '[':
      case '(':
      case '{':
        begin_value(json);
        if (open_.size() >= kMaxDepth) return Verdict::bad;
        open_ += c;
        json += c == '{' ? '{' : '[';
        return Verdict::part;
      case ']':
      case ')':
      case '}':
        return close(c, json);
      case ',':
        comma_ = true;  // written only when a value follows
        return open_.empty() ? Verdict::bad : Verdict::part;
      case ':':
        json += c;
        return open_.empty() || open_.back() != '{' ? Verdict::bad : Verdict::part;
      default:
        begin_value(json);
        word_ = c;
        return Verdict::part;
    }
  }

 private:
  static bool ends_word(char c) { return is_space(c) || std::string_view(",:)]}").find(c) != std::string_view::npos; }

  void begin_value(std::string& json) {
    if (comma_) json += ',';
    comma_ = false;
  }

  Verdict close(char c, std::string& json) {
    const char opened = c == ']' ? '[' : c == ')' ? '(' : '{';
    if (open_.empty() || open_.back() != opened) return Verdict::bad;
    open_.pop_back();
    comma_ = false;
    json += c == '}' ? '}' : ']';
    return open_.empty() ? Verdict::last : Verdict::part;
  }

  Verdict in_string(char c, std::string& json) {
    if (escaped_) {
      escaped_ = false;
      if (c == 'x') {
        json += "\\u00";  // two digits follow
      } else if (c == '\n') {
        // A line that goes on.
      } else if (std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos) {
        json.append("\\").append(1, c);
      } else if (c == '\'') {
        json += c;
      } else if (c == '0') {
        json += "\\u0000";
      } else {
        json += "\\\\";  // no escape: Python keeps the backslash
        append_escaped({&c, 1}, json);
      }
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == quote_) {
      quote_ = 0;
      json += '"';
      if (open_.empty()) return Verdict::last;
    } else {
      append_escaped({&c, 1}, json);
    }
    return Verdict::part;
  }

  void append_word(std::string& json) {
    if (word_ == "True") {
      json += "true";
    } else if (word_ == "False") {
      json += "false";
    } else if (word_ == "None") {
      json += "null";
    } else if (has_json_form(word_)) {
      json += word_;
    } else {
      json += '"';
      append_escaped(word_, json);
      json += '"';
    }
    word_.clear();
  }

  std::string open_, word_;
  char quote_ = 0;
  bool escaped_ = false, comma_ = false;
};

bool is_key_character(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte) != 0 || c == '_' || c == '-' || c == '.';
}

/// `key=value, ...` up to the closing parenthesis, which stays.
class PythonArguments final : public Element {
 public:
  Ahead look(Lookahead& at) const override {
    at.decided = true;
    return Ahead::yes;
  }
  void add_marks(std::vector<std::string>&) const override {}
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(); }

  std::optional<std::string> grammar(GrammarWriter& writer) const override {
    std::vector<WrittenMember> members;
    for (const Tool::Parameter& parameter : writer.tool->parameters()) {
      writer.parameter = &parameter;
      if (!std::all_of(parameter.key.begin(), parameter.key.end(), is_key_character) || parameter.key.empty()) {
        if (parameter.required) writer.refuse_key();
        continue;
      }
      members.push_back(
          {Builder::sequence({Builder::literal(parameter.key + "="), writer.value()}), parameter.required});
    }
    writer.parameter = nullptr;
    return separated(writer, "arguments-" + writer.tool->name(), members,
                     Builder::sequence({Builder::literal(","), Builder::optional(Builder::literal(" "))}));
  }

 private:
  struct Reading final : Matcher {
    Step step(Input& in, Output& out) override {
      while (!in.text.empty()) {
        const Step step = in_value_ ? read_value(in, out) : read_key(in, out);
        if (step != Step::more) return step;
      }
      return Step::more;
    }

    Step read_key(Input& in, Output& out) {
      const char c = in.text.front();
      if (c == ')' && key_.empty()) {
        out.end_parameters();
        return Step::done;
      }
      in.take(1);
      if (c == '=' && !key_.empty()) {
        out.parameter(key_);
        key_.clear();
        value_ = {};
        in_value_ = true;
      } else if (is_space(c) || (c == ',' && key_.empty())) {
        return Step::more;
      } else if (is_key_character(c)) {
        key_ += c;
      } else {
        return Step::failed;
      }
      return Step::more;
    }

    Step read_value(Input& in, Output& out) {
      std::string json;
      std::size_t n = 0;
      PythonValue::Verdict verdict = PythonValue::Verdict::part;
      while (verdict == PythonValue::Verdict::part && n < in.text.size()) {
        verdict = value_.push(in.text[n], json);
        if (verdict == PythonValue::Verdict::part || verdict == PythonValue::Verdict::last) ++n;
      }
      in.take(n);
      out.arguments(json);
      if (verdict == PythonValue::Verdict::bad) return Step::failed;
      in_value_ = verdict == PythonValue::Verdict::part;
      return Step::more;
    }

    std::string key_;
    PythonValue value_;
    bool in_value_ = false;
  };
};

ReplyFormat describe(const TemplateView&) {
  ReplyFormat format;
  add_thinking(format, "<think>", {"</think>", "<|tool_call_start|>"});
  const ElementPtr one = call(seq(name({"("}), text("("), std::make_shared<PythonArguments>(), text(")")));
  add_call(format, seq(text("<|tool_call_start|>"), cut(), space(), text("["), space(),
                       calls(one, seq(space(), text(","), space())), space(), closing("]"), space(),
                       closing("<|tool_call_end|>")));
  return format;
}
}  // namespace

const Format k_lfm2{
    "LFM2", [](const TemplateView& t) { return t.has("<|tool_list_start|>") || t.has("List of tools: ["); }, describe};

}  // namespace common::chat::formats
