// Elements that read what was said: text, and a call's name and id.
#include <algorithm>

#include "common/chat/syntax/element.h"
#include "common/chat/syntax/grammar_writer.h"
#include "common/chat/syntax/output.h"
#include "common/chat/syntax/stops.h"

namespace common::chat::syntax {

namespace {
using Builder = grammar::GrammarBuilder;

constexpr std::size_t kMaxCollectedBytes =
    kMaxToolNameBytes + 64;  // ids hold a name and more; without an end it is none

std::string trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

/// Any text, and some more later: the element decides by itself.
Ahead look_at_any(Lookahead& at) {
  at.decided = true;
  return Ahead::yes;
}

class Said final : public Element {
 public:
  Said(Field field, std::vector<std::string> stops) : field_(field), stops_(std::move(stops)) {}

  Ahead look(Lookahead& at) const override { return look_at_any(at); }
  void add_marks(std::vector<std::string>& marks) const override {
    marks.insert(marks.end(), stops_.begin(), stops_.end());
  }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(*this); }
  std::optional<std::string> grammar(GrammarWriter& writer) const override {
    return writer.builder().text_until("said", stops_);
  }

 private:
  struct Reading final : Matcher {
    explicit Reading(const Said& said) : said_(said) {}
    Step step(Input& in, Output& out) override {
      if (!begun_) {
        std::size_t n = 0;
        while (n < in.text.size() && is_space(in.text[n])) ++n;
        in.take(n);
        begun_ = !in.text.empty();
      }
      const Clear clear = clear_before(in.text, said_.stops_, in.last);
      const bool ends = clear.stopped || in.last;
      // White space in front of what may become the end is held back with it.
      const std::string_view certain = in.text.substr(0, clear.size);
      const std::size_t n = without_final_space(certain);
      const std::string piece(certain.substr(0, n));
      in.take(ends ? clear.size : n);
      out.say(said_.field_, piece);
      return ends ? Step::done : Step::more;
    }
    const Said& said_;
    bool begun_ = false;
  };

  const Field field_;
  const std::vector<std::string> stops_;
};

class SaidLiteral final : public Element {
 public:
  SaidLiteral(Field field, std::string literal) : field_(field), literal_(std::move(literal)), text_(text(literal_)) {}

  Ahead look(Lookahead& at) const override { return text_->look(at); }
  void add_marks(std::vector<std::string>& marks) const override { text_->add_marks(marks); }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(*this); }
  std::optional<std::string> grammar(GrammarWriter& writer) const override { return text_->grammar(writer); }

 private:
  struct Reading final : Matcher {
    explicit Reading(const SaidLiteral& said) : said_(said), text_(said.text_->match()) {}
    Step step(Input& in, Output& out) override {
      const Step step = text_->step(in, out);
      if (step == Step::done) out.say(said_.field_, said_.literal_);
      return step;
    }
    const SaidLiteral& said_;
    std::unique_ptr<Matcher> text_;
  };

  const Field field_;
  const std::string literal_;
  const ElementPtr text_;
};

class Skipped final : public Element {
 public:
  Skipped(std::vector<std::string> stops, std::string expression)
      : stops_(std::move(stops)), expression_(std::move(expression)) {}

  Ahead look(Lookahead& at) const override { return look_at_any(at); }
  void add_marks(std::vector<std::string>& marks) const override {
    marks.insert(marks.end(), stops_.begin(), stops_.end());
  }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(*this); }
  std::optional<std::string> grammar(GrammarWriter&) const override { return expression_; }

 private:
  struct Reading final : Matcher {
    explicit Reading(const Skipped& skipped) : skipped_(skipped) {}
    Step step(Input& in, Output&) override {
      const Clear clear = clear_before(in.text, skipped_.stops_, in.last);
      in.take(clear.size);
      return clear.stopped ? Step::done : Step::more;
    }
    const Skipped& skipped_;
  };

  const std::vector<std::string> stops_;
  const std::string expression_;
};

/// A short text up to a mark, collected whole.
class Collecting : public Matcher {
 public:
  explicit Collecting(const std::vector<std::string>& stops) : stops_(stops) {}
  Step step(Input& in, Output& out) override {
    const Clear clear = clear_before(in.text, stops_, in.last);
    collected_.append(in.text.substr(0, clear.size));
    in.take(clear.size);
    if (collected_.size() > kMaxCollectedBytes) return Step::failed;
    if (!clear.stopped) return Step::more;
    return finish(trimmed(collected_), out) ? Step::done : Step::failed;
  }

 protected:
  [[nodiscard]] virtual bool finish(std::string text, Output& out) = 0;

 private:
  const std::vector<std::string>& stops_;
  std::string collected_;
};

class Name final : public Element {
 public:
  Name(std::vector<std::string> stops, Names names) : stops_(std::move(stops)), names_(names) {}

  Ahead look(Lookahead& at) const override { return look_at_any(at); }
  void add_marks(std::vector<std::string>& marks) const override {
    marks.insert(marks.end(), stops_.begin(), stops_.end());
  }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(*this); }
  std::optional<std::string> grammar(GrammarWriter& writer) const override {
    return Builder::literal(writer.tool->name());
  }

 private:
  struct Reading final : Collecting {
    explicit Reading(const Name& name) : Collecting(name.stops_), name_(name) {}
    bool finish(std::string text, Output& out) override {
      if (std::any_of(text.begin(), text.end(), is_space)) return false;
      return out.name(std::move(text), name_.names_);
    }
    const Name& name_;
  };

  const std::vector<std::string> stops_;
  const Names names_;
};

class NameInId final : public Element {
 public:
  NameInId(std::vector<std::string> stops, std::string prefix) : stops_(std::move(stops)), prefix_(std::move(prefix)) {}

  Ahead look(Lookahead& at) const override { return look_at_any(at); }
  void add_marks(std::vector<std::string>& marks) const override {
    marks.insert(marks.end(), stops_.begin(), stops_.end());
  }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(*this); }
  std::optional<std::string> grammar(GrammarWriter& writer) const override {
    return Builder::sequence({Builder::literal(prefix_ + writer.tool->name() + ":"), "[0-9]{1,4}"});
  }

 private:
  struct Reading final : Collecting {
    explicit Reading(const NameInId& element) : Collecting(element.stops_), element_(element) {}
    bool finish(std::string text, Output& out) override {
      std::string name = text;
      if (name.compare(0, element_.prefix_.size(), element_.prefix_) == 0) name.erase(0, element_.prefix_.size());
      const std::size_t colon = name.rfind(':');
      if (colon != std::string::npos && name.find_first_not_of("0123456789", colon + 1) == std::string::npos)
        name.resize(colon);
      out.id(std::move(text));
      return out.name(std::move(name), Names::any);
    }
    const NameInId& element_;
  };

  const std::vector<std::string> stops_;
  const std::string prefix_;
};

class CallId final : public Element {
 public:
  CallId(std::vector<std::string> stops, std::string pattern)
      : stops_(std::move(stops)), pattern_(std::move(pattern)) {}

  Ahead look(Lookahead& at) const override { return look_at_any(at); }
  void add_marks(std::vector<std::string>& marks) const override {
    marks.insert(marks.end(), stops_.begin(), stops_.end());
  }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(*this); }
  std::optional<std::string> grammar(GrammarWriter&) const override { return pattern_; }

 private:
  struct Reading final : Collecting {
    explicit Reading(const CallId& id) : Collecting(id.stops_) {}
    bool finish(std::string text, Output& out) override {
      out.id(std::move(text));
      return true;
    }
  };

  const std::vector<std::string> stops_;
  const std::string pattern_;
};

class Call final : public Element {
 public:
  explicit Call(ElementPtr element) : element_(std::move(element)) {}

  Ahead look(Lookahead& at) const override { return element_->look(at); }
  void add_marks(std::vector<std::string>& marks) const override { element_->add_marks(marks); }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(*this); }
  std::optional<std::string> grammar(GrammarWriter& writer) const override {
    std::vector<std::string> alternatives;
    for (const Tool& tool : writer.tools().all()) {
      writer.tool = &tool;
      if (std::optional<std::string> one = element_->grammar(writer))
        alternatives.push_back(writer.builder().rule("call-" + tool.name(), *one));
    }
    writer.tool = nullptr;
    if (alternatives.empty()) return std::nullopt;
    return Builder::any_of(alternatives);
  }

 private:
  struct Reading final : Matcher {
    explicit Reading(const Call& call) : element_(call.element_->match()) {}
    Step step(Input& in, Output& out) override {
      if (!begun_) out.begin_call();
      begun_ = true;
      const Step step = element_->step(in, out);
      if (step == Step::done) out.end_call();
      return step;
    }
    std::unique_ptr<Matcher> element_;
    bool begun_ = false;
  };

  const ElementPtr element_;
};
}  // namespace

Clear clear_before(std::string_view text, const std::vector<std::string>& stops, bool last) {
  std::size_t found = std::string_view::npos;
  for (const std::string& stop : stops) found = std::min(found, text.find(stop));
  std::size_t held = text.size();
  if (!last) {
    for (const std::string& stop : stops) {
      for (std::size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
        if (text.compare(text.size() - n, n, stop, 0, n) != 0) continue;
        held = std::min(held, text.size() - n);
        break;
      }
    }
  }
  if (found <= held && found != std::string_view::npos) return {found, true};
  return {held, false};
}

std::size_t without_final_space(std::string_view text) {
  std::size_t n = text.size();
  while (n > 0 && text.size() - n < kMaxHeldSpace && is_space(text[n - 1])) --n;
  return n;
}

ElementPtr said(Field field, std::vector<std::string> stops) {
  return std::make_shared<Said>(field, std::move(stops));
}
ElementPtr said_literal(Field field, std::string literal) {
  return std::make_shared<SaidLiteral>(field, std::move(literal));
}
ElementPtr skipped(std::vector<std::string> stops, const std::string& canonical) {
  return std::make_shared<Skipped>(std::move(stops), Builder::literal(canonical));
}
ElementPtr skipped_like(std::vector<std::string> stops, std::string pattern) {
  return std::make_shared<Skipped>(std::move(stops), std::move(pattern));
}
ElementPtr name(std::vector<std::string> stops, Names names) {
  return std::make_shared<Name>(std::move(stops), names);
}
ElementPtr name_in_id(std::vector<std::string> stops, std::string prefix) {
  return std::make_shared<NameInId>(std::move(stops), std::move(prefix));
}
ElementPtr id(std::vector<std::string> stops, std::string pattern) {
  return std::make_shared<CallId>(std::move(stops), std::move(pattern));
}
ElementPtr call(ElementPtr element) {
  return std::make_shared<Call>(std::move(element));
}

}  // namespace common::chat::syntax
