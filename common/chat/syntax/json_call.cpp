// Calls and arguments that are JSON.
#include "common/chat/syntax/json_call.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/chat/syntax/grammar_writer.h"
#include "common/chat/syntax/json_scanner.h"
#include "common/chat/syntax/output.h"
#include "common/json/json_fault.h"

namespace common::chat::syntax {

namespace {
using Builder = grammar::GrammarBuilder;
using Verdict = JsonScanner::Verdict;

/// The text of a JSON string; nothing when it is none.
std::optional<std::string> string_value(const std::string& json) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

std::string json_literal(std::string_view text) {
  return Builder::literal(
      nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

class JsonArguments final : public Element {
 public:
  Ahead look(Lookahead& at) const override {
    if (at.text.empty()) return at.last ? Ahead::no : Ahead::maybe;
    at.decided = true;
    return at.text.front() == '{' ? Ahead::yes : Ahead::no;
  }
  void add_marks(std::vector<std::string>&) const override {}
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(); }
  std::optional<std::string> grammar(GrammarWriter& writer) const override { return writer.arguments(); }

 private:
  struct Reading final : Matcher {
    Step step(Input& in, Output& out) override {
      if (in.text.empty()) return Step::more;
      if (!begun_ && in.text.front() != '{') return Step::failed;
      begun_ = true;
      std::string json;
      std::size_t n = 0;
      Step result = Step::more;
      while (result == Step::more && n < in.text.size()) {
        const bool in_string = scanner_.in_string();
        const Verdict verdict = scanner_.push(in.text[n]);
        if (verdict == Verdict::bad || verdict == Verdict::past) {
          result = Step::failed;
          break;
        }
        append_json(in.text[n++], in_string && scanner_.in_string(), json);
        if (verdict == Verdict::last) result = Step::done;
      }
      in.take(n);
      out.arguments(json);
      return result;
    }
    JsonScanner scanner_;
    bool begun_ = false;
  };
};

class JsonCallElement final : public Element {
 public:
  explicit JsonCallElement(JsonCall shape) : shape_(std::move(shape)) {}

  Ahead look(Lookahead& at) const override {
    if (at.text.empty()) return at.last ? Ahead::no : Ahead::maybe;
    at.decided = true;
    return at.text.front() == '{' ? Ahead::yes : Ahead::no;
  }
  void add_marks(std::vector<std::string>&) const override {}
  std::unique_ptr<Matcher> match() const override;
  std::optional<std::string> grammar(GrammarWriter& writer) const override;

 private:
  class Reading;
  const JsonCall shape_;
};

class JsonCallElement::Reading final : public Matcher {
 public:
  explicit Reading(const JsonCall& shape) : shape_(shape) {}

  Step step(Input& in, Output& out) override {
    while (!in.text.empty()) {
      const Step step = state_ == State::value ? read_value(in, out) : read_mark(in, out);
      if (step != Step::more) return step;
    }
    return Step::more;
  }

 private:
  enum class State : std::uint8_t { open, key, colon, value_begin, value, after_value };
  enum class Member : std::uint8_t { name, arguments, id, other };

  /// Everything between values: one character.
  Step read_mark(Input& in, Output& out) {
    const char c = in.text.front();
    if (is_space(c) && !(state_ == State::key && !key_.empty())) {
      in.take(1);
      return Step::more;
    }
    if (state_ == State::value_begin) return begin_value(c, in);
    if (state_ == State::key && !key_.empty()) return read_key(in);
    in.take(1);
    if (state_ == State::open && c == '{') {
      state_ = State::key;
    } else if (state_ == State::key && c == '"') {
      key_ = c;
    } else if (state_ == State::colon && c == ':') {
      state_ = State::value_begin;
    } else if (state_ == State::after_value && c == ',') {
      state_ = State::key;
    } else if ((state_ == State::after_value || state_ == State::key) && c == '}') {
      if (nested_ == 0) return finish(out);
      --nested_;
      state_ = State::after_value;
    } else {
      return Step::failed;
    }
    return Step::more;
  }

  Step read_key(Input& in) {
    const char c = in.text.front();
    in.take(1);
    key_ += c;
    if (key_.size() > 2 && key_[key_.size() - 2] == '\\') return Step::more;
    if (c != '"') return Step::more;
    const std::optional<std::string> key = string_value(key_);
    if (!key) return Step::failed;
    key_.clear();
    member_key_ = *key;
    member_ = role_of(*key);
    // Where any JSON could be meant, an object with other members is none of ours.
    const bool known = member_ != Member::other || *key == "type" || *key == "id";
    if (shape_.names == Names::offered && !known) return Step::failed;
    state_ = State::colon;
    return Step::more;
  }

  [[nodiscard]] Member role_of(const std::string& key) const {
    if (shape_.key_is_name) return has_arguments_ ? Member::other : Member::arguments;
    for (const JsonCall::Member& member : shape_.members) {
      if (member.key != key) continue;
      return member.role == JsonCall::Role::name        ? Member::name
             : member.role == JsonCall::Role::arguments ? Member::arguments
                                                        : Member::id;
    }
    // Other spellings of the same thing that models have been seen to write.
    if (key == "name" || key == "function") return Member::name;
    if (key == "arguments" || key == "parameters") return Member::arguments;
    return Member::other;
  }

  Step begin_value(char c, Input& in) {
    if (member_key_ == "function" && c == '{' && !shape_.key_is_name) {
      ++nested_;
      in.take(1);
      state_ = State::key;
      return Step::more;
    }
    if (member_ == Member::arguments && has_arguments_) member_ = Member::other;
    scanner_ = {};
    value_.clear();
    state_ = State::value;
    return Step::more;
  }

  /// A piece of a value, as much as there is.
  Step read_value(Input& in, Output& out) {
    std::string piece;
    std::size_t n = 0;
    bool ended = false;
    while (!ended && n < in.text.size()) {
      const bool in_string = scanner_.in_string();
      const Verdict verdict = scanner_.push(in.text[n]);
      if (verdict == Verdict::bad) {
        in.take(n);
        give(piece, out);
        return Step::failed;
      }
      ended = verdict != Verdict::part;
      if (verdict != Verdict::past) append_json(in.text[n++], in_string && scanner_.in_string(), piece);
    }
    in.take(n);
    give(piece, out);
    return ended ? end_value(out) : Step::more;
  }

  /// Arguments go straight through when name and id are known; the rest is collected.
  void give(const std::string& piece, Output& out) {
    const bool object = !value_.empty() ? value_.front() == '{' : !piece.empty() && piece.front() == '{';
    if (member_ == Member::arguments && object && named(out)) {
      value_ = "{";  // so much that the next piece knows
      out.arguments(piece);
      passed_ = true;
    } else if (member_ != Member::other) {
      value_ += piece;
    }
  }

  [[nodiscard]] bool named(Output& out) {
    if (shape_.key_is_name && !out.has_name()) known_ = out.name(member_key_, shape_.names);
    const bool id_follows = std::any_of(shape_.members.begin(), shape_.members.end(),
                                        [](const auto& m) { return m.role == JsonCall::Role::id; }) &&
                            !has_id_;
    return known_ && out.has_name() && !id_follows;
  }

  Step end_value(Output& out) {
    state_ = State::after_value;
    if (member_ == Member::arguments) {
      has_arguments_ = true;
      if (!passed_) held_ = as_object(value_);
      return shape_.key_is_name && !known_ ? Step::failed : Step::more;
    }
    if (member_ == Member::name) {
      const std::optional<std::string> name = string_value(value_);
      if (!name || out.has_name()) return name ? Step::more : Step::failed;
      known_ = out.name(*name, shape_.names);
      return known_ ? Step::more : Step::failed;
    }
    if (member_ == Member::id) {
      out.id(string_value(value_).value_or(value_));
      has_id_ = true;
    }
    return Step::more;
  }

  /// Arguments that were written as a string that holds an object; `null` for none.
  static std::string as_object(const std::string& json) {
    if (json == "null") return {};
    const std::optional<std::string> text = string_value(json);
    return text && has_json_form(*text) ? *text : json;
  }

  Step finish(Output& out) {
    if (!known_) return Step::failed;
    if (!passed_) out.arguments(held_.empty() ? "{}" : held_);
    return Step::done;
  }

  const JsonCall& shape_;
  State state_ = State::open;
  Member member_ = Member::other;
  JsonScanner scanner_;
  std::string key_, member_key_, value_, held_;
  int nested_ = 0;
  bool has_arguments_ = false, has_id_ = false, known_ = false, passed_ = false;
};

std::unique_ptr<Matcher> JsonCallElement::match() const {
  return std::make_unique<Reading>(shape_);
}

std::optional<std::string> JsonCallElement::grammar(GrammarWriter& writer) const {
  const std::string space = writer.space();
  const auto member = [&](const std::string& key, const std::string& value) {
    return Builder::sequence({json_literal(key), space, Builder::literal(":"), space, value});
  };
  std::vector<std::string> parts = {Builder::literal("{"), space};
  if (shape_.key_is_name) parts.push_back(member(writer.tool->name(), writer.arguments()));
  bool first = true;
  for (const JsonCall::Member& m : shape_.members) {
    const std::string value =
        m.role == JsonCall::Role::name ? json_literal(writer.tool->name())
        : m.role == JsonCall::Role::arguments
            ? writer.arguments()
            : Builder::sequence({Builder::literal("\""), shape_.id_pattern, Builder::literal("\"")});
    std::string one = member(m.key, value);
    if (!first) one = Builder::sequence({space, Builder::literal(","), space, one});
    first = false;
    if (m.role == JsonCall::Role::id && shape_.id_optional) one = Builder::optional(one);
    parts.push_back(std::move(one));
  }
  parts.insert(parts.end(), {space, Builder::literal("}")});
  return Builder::sequence(parts);
}
}  // namespace

JsonCall name_and_arguments() {
  JsonCall shape;
  shape.members = {{"name", JsonCall::Role::name}, {"arguments", JsonCall::Role::arguments}};
  return shape;
}

ElementPtr json_arguments() {
  return std::make_shared<JsonArguments>();
}

ElementPtr json_call(JsonCall shape) {
  return call(std::make_shared<JsonCallElement>(std::move(shape)));
}

ElementPtr json_call_list(JsonCall shape) {
  return seq(text("["), space(), calls(json_call(std::move(shape)), seq(space(), text(","), space())), space(),
             closing("]"));
}

}  // namespace common::chat::syntax
