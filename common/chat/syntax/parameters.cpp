#include "common/chat/syntax/parameters.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/chat/syntax/grammar_writer.h"
#include "common/chat/syntax/json_scanner.h"
#include "common/chat/syntax/output.h"
#include "common/chat/syntax/stops.h"
#include "common/json/json_fault.h"

namespace common::chat::syntax {

namespace {
using Builder = grammar::GrammarBuilder;

// Each set of parameters that are still to come is a rule of its own: so many rules are still few.
constexpr std::size_t kMaxAnyOrder = 5;
constexpr std::size_t kMaxKeyBytes = 1024;

std::string with_key(std::string pattern, std::string_view key) {
  constexpr std::string_view kHole = "{key}";
  if (const std::size_t at = pattern.find(kHole); at != std::string::npos) pattern.replace(at, kHole.size(), key);
  return pattern;
}

class Parameters final : public Element {
 public:
  explicit Parameters(const ElementPtr& one) : one_(one), reading_(many(seq(space(), one))) {}

  Ahead look(Lookahead& at) const override { return reading_->look(at); }
  void add_marks(std::vector<std::string>& marks) const override { one_->add_marks(marks); }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(*this); }
  std::optional<std::string> grammar(GrammarWriter& writer) const override;

 private:
  struct Reading final : Matcher {
    explicit Reading(const Parameters& parameters) : all_(parameters.reading_->match()) {}
    Step step(Input& in, Output& out) override {
      const Step step = all_->step(in, out);
      if (step == Step::done) out.end_parameters();
      return step;
    }
    std::unique_ptr<Matcher> all_;
  };

  static std::string any_order(GrammarWriter& writer, const std::vector<WrittenMember>& all);
  static std::string in_order(const std::vector<WrittenMember>& all);

  const ElementPtr one_, reading_;
};

std::optional<std::string> Parameters::grammar(GrammarWriter& writer) const {
  std::vector<WrittenMember> all;
  for (const Tool::Parameter& parameter : writer.tool->parameters()) {
    writer.parameter = &parameter;
    const std::optional<std::string> one = one_->grammar(writer);
    if (!one && parameter.required) writer.refuse_key();
    if (one) {
      const std::string name = "parameter-" + writer.tool->name() + "-" + parameter.key;
      all.push_back({writer.builder().rule(name, Builder::sequence({writer.space(), *one})), parameter.required});
    }
  }
  writer.parameter = nullptr;
  if (all.empty()) return Builder::literal("");
  return all.size() <= kMaxAnyOrder ? any_order(writer, all) : in_order(all);
}

std::string Parameters::any_order(GrammarWriter& writer, const std::vector<WrittenMember>& all) {
  const std::size_t n_sets = std::size_t{1} << all.size();
  // From the empty set upwards, so that each rule refers to smaller ones.
  std::vector<std::string> rules(n_sets);
  rules[0] = Builder::literal("");
  for (std::size_t set = 1; set < n_sets; ++set) {
    std::vector<std::string> next;
    bool may_end = true;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t bit = std::size_t{1} << i;
      if ((set & bit) == 0) continue;
      may_end = may_end && !all[i].required;
      next.push_back(Builder::sequence({all[i].expression, rules[set ^ bit]}));
    }
    if (may_end) next.emplace_back();
    rules[set] = writer.builder().rule("parameters-" + writer.tool->name(), Builder::any_of(next));
  }
  return rules.back();
}

std::string Parameters::in_order(const std::vector<WrittenMember>& all) {
  std::vector<std::string> parts;
  parts.reserve(all.size());
  for (const WrittenMember& one : all)
    parts.push_back(one.required ? one.expression : Builder::optional(one.expression));
  return Builder::sequence(parts);
}

class Key final : public Element {
 public:
  explicit Key(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  Ahead look(Lookahead& at) const override {
    at.decided = true;
    return Ahead::yes;
  }
  void add_marks(std::vector<std::string>& marks) const override {
    marks.insert(marks.end(), stops_.begin(), stops_.end());
  }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(*this); }
  std::optional<std::string> grammar(GrammarWriter& writer) const override {
    const std::string& key = writer.parameter->key;
    const bool holds_stop = std::any_of(stops_.begin(), stops_.end(),
                                        [&](const std::string& stop) { return (key + stop).find(stop) < key.size(); });
    if (holds_stop || key.size() > kMaxKeyBytes) return std::nullopt;
    return Builder::literal(key);
  }

 private:
  struct Reading final : Matcher {
    explicit Reading(const Key& key) : element_(key) {}
    Step step(Input& in, Output& out) override {
      const Clear clear = clear_before(in.text, element_.stops_, in.last);
      key_.append(in.text.substr(0, clear.size));
      in.take(clear.size);
      if (key_.size() > kMaxKeyBytes) return Step::failed;
      if (!clear.stopped) return Step::more;
      out.parameter(key_);
      return Step::done;
    }
    const Key& element_;
    std::string key_;
  };

  const std::vector<std::string> stops_;
};

/// Whether a value that may be a string may be a list or an object too.
bool may_nest(const Tool& tool, const Tool::Parameter& parameter) {
  const ValueTypes types = value_types(*parameter.schema, tool.schema());
  return types.object || types.list;
}

class Value final : public Element {
 public:
  explicit Value(ValueShape shape) : shape_(std::move(shape)) {}

  Ahead look(Lookahead& at) const override {
    at.decided = true;
    return Ahead::yes;
  }
  void add_marks(std::vector<std::string>& marks) const override { marks.push_back(shape_.stop); }
  std::unique_ptr<Matcher> match() const override;
  std::optional<std::string> grammar(GrammarWriter& writer) const override;

 private:
  class Reading;
  const ValueShape shape_;
};

class Value::Reading final : public Matcher {
 public:
  explicit Reading(const ValueShape& shape) : shape_(shape) {}

  Step step(Input& in, Output& out) override {
    if (!begun_ && !begin(in, out)) return Step::more;
    return nested_ ? read_nested(in, out) : read_plain(in, out);
  }

 private:
  Step read_plain(Input& in, Output& out) {
    const Clear clear = clear_before(in.text, stops_, in.last);
    std::string piece(in.text.substr(0, clear.size));
    in.take(clear.size);
    if (kind_ == ValueKind::text) {
      std::string json = opened_ || (piece.empty() && !clear.stopped) ? "" : "\"";
      opened_ = opened_ || !json.empty();
      append_escaped(piece, json);
      if (clear.stopped) json += '"';
      out.arguments(json);
    } else {
      raw_ += piece;
      if (clear.stopped) out.arguments(to_json(raw_));
    }
    if (!clear.stopped) return Step::more;
    // The line break in front of the mark is not part of the value.
    if (shape_.own_lines && !in.text.empty() && in.text.front() == '\n') in.take(1);
    return Step::done;
  }

  /// A value with tags inside, which may be called as the parameter itself.
  Step read_nested(Input& in, Output& out) {
    const std::vector<std::string> tags = {shape_.nested_tag};
    while (true) {
      const Clear clear = clear_before(in.text, tags, in.last);
      const std::size_t behind = clear.size + shape_.nested_tag.size();
      const bool known = clear.stopped && in.text.size() > behind;
      const bool closes = known && in.text[behind] == '/';
      if (closes && depth_ == 0) {
        raw_.append(in.text.substr(0, clear.size));
        in.take(clear.size);
        out.arguments(shape_.to_json(raw_, out.tool(), parameter_));
        return Step::done;
      }
      // Of a tag that has just begun it is not known yet which kind it is.
      const std::size_t n = known ? behind : clear.size;
      raw_.append(in.text.substr(0, n));
      in.take(n);
      if (!known) return Step::more;
      depth_ += closes ? -1 : 1;
    }
  }

  bool begin(Input& in, Output& out) {
    if (in.text.empty()) return false;
    if (shape_.own_lines && in.text.front() == '\n') in.take(1);
    begun_ = true;
    kind_ = shape_.is == ValueIs::text   ? ValueKind::text
            : shape_.is == ValueIs::json ? ValueKind::json
            : out.tool() != nullptr      ? out.tool()->parameter_kind(out.key())
                                         : ValueKind::either;
    parameter_ = out.tool() != nullptr ? out.tool()->parameter(out.key()) : nullptr;
    if (kind_ == ValueKind::text && shape_.is == ValueIs::by_schema && parameter_ != nullptr) {
      listed_ = listed_values(*parameter_->schema, out.tool()->schema());
      // Where not all are texts, which one it is shows at the end.
      const bool mixed = std::any_of(listed_.begin(), listed_.end(), [](const auto& v) { return v.front() != '"'; });
      if (mixed) kind_ = ValueKind::either;
      if (!mixed) listed_.clear();
    }
    nested_ = !shape_.nested_tag.empty() && listed_.empty() &&
              (kind_ != ValueKind::text || (parameter_ != nullptr && may_nest(*out.tool(), *parameter_)));
    const std::string stop = with_key(shape_.stop, out.key());
    if (shape_.own_lines) stops_.push_back("\n" + stop);
    stops_.push_back(stop);
    return true;
  }

  [[nodiscard]] std::string to_json(const std::string& raw) const {
    std::size_t begin = 0;
    std::size_t end = raw.size();
    while (begin < end && is_space(raw[begin])) ++begin;
    while (end > begin && is_space(raw[end - 1])) --end;
    std::string value = raw.substr(begin, end - begin);
    if (!listed_.empty()) {
      const auto known =
          std::find_if(listed_.begin(), listed_.end(), [&](const auto& v) { return raw_text(v) == value; });
      return known != listed_.end()
                 ? *known
                 : nlohmann::json(raw).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }
    if (has_json_form(value)) return value;
    // Python's words, which models mix up with JSON's.
    if (kind_ == ValueKind::json) {
      if (value == "True") return "true";
      if (value == "False") return "false";
      if (value == "None") return "null";
    }
    std::string json = "\"";
    append_escaped(raw, json);
    return json + '"';
  }

  const ValueShape& shape_;
  std::vector<std::string> stops_;
  std::vector<std::string> listed_;  // the values there may be, if they are few and of several types
  ValueKind kind_ = ValueKind::either;
  const Tool::Parameter* parameter_ = nullptr;
  std::string raw_;
  int depth_ = 0;
  bool begun_ = false, opened_ = false, nested_ = false;
};

std::unique_ptr<Matcher> Value::match() const {
  return std::make_unique<Reading>(shape_);
}

std::optional<std::string> Value::grammar(GrammarWriter& writer) const {
  const auto& root = writer.tool->schema();
  const auto& schema = resolved(*writer.parameter->schema, root);
  // A reference that leads nowhere is left to the schema's grammar, which says so.
  const bool lost = schema.is_object() && schema.contains("$ref");
  const bool nests = !shape_.nested_tag.empty() && may_nest(*writer.tool, *writer.parameter);
  const ValueKind kind = lost || nests || writer.parameter->impossible ? ValueKind::json : value_kind(schema, root);
  // A parameter that may be anything is written as text where the format has to say which it is.
  if (shape_.is == ValueIs::text && kind == ValueKind::json) return std::nullopt;
  if (shape_.is == ValueIs::json && kind != ValueKind::json) return std::nullopt;
  std::string expression;
  if (kind == ValueKind::json) {
    expression = shape_.value_grammar ? shape_.value_grammar(writer) : writer.value();
  } else if (const std::vector<std::string> listed = listed_values(schema, root); !listed.empty()) {
    std::vector<std::string> texts;
    texts.reserve(listed.size());
    for (const std::string& value : listed) texts.push_back(Builder::literal(raw_text(value)));
    expression = Builder::any_of(texts);
  } else {
    const std::vector<std::string> stops = {with_key(shape_.stop, writer.parameter->key)};
    expression = writer.builder().text_until("text", stops);
  }
  if (!shape_.own_lines) return expression;
  return Builder::sequence({Builder::literal("\n"), expression, Builder::literal("\n")});
}

class KeyedText final : public Element {
 public:
  explicit KeyedText(std::string pattern) : pattern_(std::move(pattern)) {}

  Ahead look(Lookahead& at) const override {
    at.decided = true;
    return Ahead::yes;
  }
  void add_marks(std::vector<std::string>& marks) const override { marks.push_back(pattern_); }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(pattern_); }
  std::optional<std::string> grammar(GrammarWriter& writer) const override {
    return Builder::literal(with_key(pattern_, writer.parameter->key));
  }

 private:
  struct Reading final : Matcher {
    explicit Reading(const std::string& pattern) : pattern_(pattern) {}
    Step step(Input& in, Output& out) override {
      if (!text_) {
        literal_ = text(with_key(pattern_, out.key()));
        text_ = literal_->match();
      }
      return text_->step(in, out);
    }
    const std::string& pattern_;
    ElementPtr literal_;
    std::unique_ptr<Matcher> text_;
  };

  const std::string pattern_;
};
}  // namespace

std::string separated(GrammarWriter& writer, const std::string& name, const std::vector<WrittenMember>& members,
                      const std::string& separator) {
  // What may follow when something stands before it, and when nothing does; from the last member forwards.
  std::string after_one = Builder::literal("");
  std::string after_none = Builder::literal("");
  for (auto member = members.rbegin(); member != members.rend(); ++member) {
    std::string later = Builder::sequence({separator, member->expression, after_one});
    std::string first = Builder::sequence({member->expression, after_one});
    if (!member->required) {
      later = Builder::any_of({later, after_one});
      first = Builder::any_of({first, after_none});
    }
    after_one = writer.builder().rule(name, later);
    after_none = writer.builder().rule(name, first);
  }
  return after_none;
}

ElementPtr parameters(const ElementPtr& one) {
  return std::make_shared<Parameters>(one);
}
ElementPtr key(std::vector<std::string> stops) {
  return std::make_shared<Key>(std::move(stops));
}
ElementPtr value(ValueShape shape) {
  return std::make_shared<Value>(std::move(shape));
}
ElementPtr keyed_text(std::string pattern) {
  return std::make_shared<KeyedText>(std::move(pattern));
}

}  // namespace common::chat::syntax
