// Gemma 4: arguments in a notation of its own, strings between <|"|> marks.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "common/chat/formats/format.h"
#include "common/chat/syntax/grammar_writer.h"
#include "common/chat/syntax/json_scanner.h"
#include "common/chat/syntax/output.h"
#include "common/chat/syntax/stops.h"
#include "common/json/json_fault.h"

namespace common::chat::formats {

namespace {
using Builder = grammar::GrammarBuilder;
using nlohmann::ordered_json;

const std::string kQuote = "<|\"|>";
constexpr std::size_t kMaxDepth = 200;

class MarkedArguments final : public Element {
 public:
  Ahead look(Lookahead& at) const override {
    if (at.text.empty()) return at.last ? Ahead::no : Ahead::maybe;
    at.decided = true;
    return at.text.front() == '{' ? Ahead::yes : Ahead::no;
  }
  void add_marks(std::vector<std::string>& marks) const override { marks.push_back(kQuote); }
  std::unique_ptr<Matcher> match() const override;
  std::optional<std::string> grammar(GrammarWriter& writer) const override;

 private:
  struct Reading;
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
    if (has_json_form(word)) {
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

constexpr std::string_view kKeyCharacters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
constexpr const char* kKeyCharacter = "[a-zA-Z0-9_]";

/// Keys that are none of `taken` and no beginning of one.
std::string other_keys(Builder& builder, const std::vector<std::string_view>& taken) {
  std::map<char, std::vector<std::string_view>> rests;
  for (const std::string_view key : taken)
    if (!key.empty() && kKeyCharacters.find(key.front()) != std::string_view::npos)
      rests[key.front()].push_back(key.substr(1));
  std::string free;
  for (const char c : kKeyCharacters)
    if (!rests.contains(c)) free += c;
  std::vector<std::string> alternatives;
  if (!free.empty()) alternatives.push_back("[" + free + "] " + kKeyCharacter + "*");
  for (const auto& [c, tails] : rests) {
    const bool ends = std::all_of(tails.begin(), tails.end(), [](std::string_view tail) { return tail.empty(); });
    const std::string rest =
        ends ? kKeyCharacter + std::string("+") : builder.rule("other-key", other_keys(builder, tails));
    alternatives.push_back(Builder::sequence({Builder::literal({&c, 1}), rest}));
  }
  return Builder::any_of(alternatives);
}

class MarkNotation final : public grammar::Notation {
 public:
  [[nodiscard]] std::string name() const override { return "marked"; }
  [[nodiscard]] std::string text(Builder& builder) const override {
    const std::vector<std::string> stops = {kQuote};
    return builder.text_until("text", stops);
  }
  [[nodiscard]] std::string string(const std::string& text) const override {
    return Builder::sequence({Builder::literal(kQuote), text, Builder::literal(kQuote)});
  }
  [[nodiscard]] std::string member(const std::string& key, const std::string& value) const override {
    // A key stands bare unless it would end early.
    const bool is_bare = !key.empty() && key.find_first_of(":,{}[]<> \t\r\n\"") == std::string::npos;
    const std::string name = is_bare ? key + ":" : kQuote + key + kQuote + ":";
    return Builder::sequence({Builder::literal(name), value});
  }
  [[nodiscard]] std::string other_member(Builder& builder, std::span<const std::string> taken,
                                         const std::string& value) const override {
    std::vector<std::string_view> keys;
    for (const std::string& key : taken) keys.emplace_back(std::string_view(key).substr(0, kMaxKeyCharacters));
    return Builder::sequence({other_keys(builder, keys), Builder::literal(":"), value});
  }
  [[nodiscard]] Frame object() const override { return {"\"{\"", "\",\"", "\"}\""}; }
  [[nodiscard]] Frame array() const override { return {"\"[\"", "\",\"", "\"]\""}; }

 private:
  static constexpr std::size_t kMaxKeyCharacters = 200;  // of longer keys the beginning is told apart from others
};
const MarkNotation kNotation;

std::optional<std::string> MarkedArguments::grammar(GrammarWriter& writer) const {
  const ordered_json& schema = resolved(writer.tool->schema(), writer.tool->schema());
  constexpr const char* kMembers[] = {"properties", "additionalProperties", "anyOf", "oneOf", "allOf", "$ref"};
  const bool takes_some =
      std::any_of(std::begin(kMembers), std::end(kMembers), [&](const char* key) { return schema.contains(key); });
  return takes_some ? writer.arguments(&kNotation) : Builder::literal("{}");
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
