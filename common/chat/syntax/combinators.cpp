// Elements made of other elements, and the marks between them.
#include <algorithm>

#include "common/chat/syntax/element.h"
#include "common/chat/syntax/grammar_writer.h"
#include "common/chat/syntax/output.h"

namespace common::chat::syntax {

namespace {
using Builder = grammar::GrammarBuilder;

/// Compares the text's beginning with a literal.
Ahead look_at(std::string_view text, bool last, std::string_view literal) {
  const std::size_t n = std::min(text.size(), literal.size());
  if (text.substr(0, n) != literal.substr(0, n)) return Ahead::no;
  if (n == literal.size()) return Ahead::yes;
  return last ? Ahead::no : Ahead::maybe;
}

class Text final : public Element {
 public:
  Text(std::string literal, bool may_lack) : literal_(std::move(literal)), may_lack_(may_lack) {}

  Ahead look(Lookahead& at) const override {
    const Ahead ahead = look_at(at.text, at.last, literal_);
    if (ahead == Ahead::yes) at.text.remove_prefix(literal_.size());
    return ahead == Ahead::no && may_lack_ ? Ahead::yes : ahead;
  }

  void add_marks(std::vector<std::string>& marks) const override { marks.push_back(literal_); }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(*this); }

  std::optional<std::string> grammar(GrammarWriter&) const override { return Builder::literal(literal_); }

 private:
  struct Reading final : Matcher {
    explicit Reading(const Text& text) : text_(text) {}
    Step step(Input& in, Output& out) override {
      switch (look_at(in.text, false, text_.literal_)) {
        case Ahead::yes:
          in.take(text_.literal_.size());
          if (text_.may_lack_) out.settle();
          return Step::done;
        case Ahead::no:
          return text_.may_lack_ ? Step::done : Step::failed;
        default:
          // A closing mark that was cut off at the end of the text counts as written.
          if (!in.last || !text_.may_lack_) return Step::more;
          in.take(in.text.size());
          return Step::done;
      }
    }
    const Text& text_;
  };

  const std::string literal_;
  const bool may_lack_;
};

class Space final : public Element {
 public:
  Ahead look(Lookahead& at) const override {
    // While a look is undecided its text is looked at again with every byte, so it must not grow without end.
    std::size_t n = 0;
    while (n < at.text.size() && n <= kMaxLookedOver && is_space(at.text[n])) ++n;
    if (n > kMaxLookedOver) return Ahead::no;
    at.text.remove_prefix(n);
    return Ahead::yes;
  }
  void add_marks(std::vector<std::string>&) const override {}
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(); }
  std::optional<std::string> grammar(GrammarWriter& writer) const override { return writer.space(); }

 private:
  static constexpr std::size_t kMaxLookedOver = 1024;

  struct Reading final : Matcher {
    Step step(Input& in, Output&) override {
      std::size_t n = 0;
      while (n < in.text.size() && is_space(in.text[n])) ++n;
      in.take(n);
      return in.text.empty() && !in.last ? Step::more : Step::done;
    }
  };
};

/// Reads nothing.
struct Nothing final : Matcher {
  Step step(Input&, Output&) override { return Step::done; }
};

class Cut final : public Element {
 public:
  Ahead look(Lookahead& at) const override {
    at.decided = true;
    return Ahead::yes;
  }
  void add_marks(std::vector<std::string>&) const override {}
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Nothing>(); }
  std::optional<std::string> grammar(GrammarWriter&) const override { return Builder::literal(""); }
};

class Before final : public Element {
 public:
  Before(std::vector<std::string> literals, bool wanted) : literals_(std::move(literals)), wanted_(wanted) {}

  Ahead look(Lookahead& at) const override {
    bool maybe = false;
    for (const std::string& literal : literals_) {
      const Ahead ahead = look_at(at.text, at.last, literal);
      if (ahead == Ahead::yes) return wanted_ ? Ahead::yes : Ahead::no;
      maybe = maybe || ahead == Ahead::maybe;
    }
    if (maybe) return Ahead::maybe;
    return wanted_ ? Ahead::no : Ahead::yes;
  }
  void add_marks(std::vector<std::string>& marks) const override {
    marks.insert(marks.end(), literals_.begin(), literals_.end());
  }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Nothing>(); }
  std::optional<std::string> grammar(GrammarWriter& writer) const override {
    // In front of a parameter's name, which may be one that must not stand here.
    const bool clashes = !wanted_ && writer.parameter != nullptr &&
                         std::any_of(literals_.begin(), literals_.end(), [&](const std::string& literal) {
                           return writer.parameter->key.compare(0, literal.size(), literal) == 0;
                         });
    if (clashes) return std::nullopt;
    return Builder::literal("");
  }

 private:
  const std::vector<std::string> literals_;
  const bool wanted_;
};

class Sequence final : public Element {
 public:
  explicit Sequence(std::vector<ElementPtr> elements) : elements_(std::move(elements)) {}

  Ahead look(Lookahead& at) const override {
    for (const ElementPtr& element : elements_) {
      const Ahead ahead = element->look(at);
      if (ahead != Ahead::yes || at.decided) return ahead;
    }
    return Ahead::yes;
  }

  void add_marks(std::vector<std::string>& marks) const override {
    for (const ElementPtr& element : elements_) element->add_marks(marks);
  }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(*this); }

  std::optional<std::string> grammar(GrammarWriter& writer) const override {
    std::vector<std::string> parts;
    for (const ElementPtr& element : elements_) {
      std::optional<std::string> part = element->grammar(writer);
      if (!part) return std::nullopt;
      parts.push_back(std::move(*part));
    }
    return Builder::sequence(parts);
  }

 private:
  struct Reading final : Matcher {
    explicit Reading(const Sequence& sequence) : sequence_(sequence) {}
    Step step(Input& in, Output& out) override {
      while (next_ < sequence_.elements_.size()) {
        if (!current_) current_ = sequence_.elements_[next_]->match();
        const Step step = current_->step(in, out);
        if (step != Step::done) return step;
        current_.reset();
        ++next_;
      }
      return Step::done;
    }
    const Sequence& sequence_;
    std::size_t next_ = 0;
    std::unique_ptr<Matcher> current_;
  };

  const std::vector<ElementPtr> elements_;
};

enum class Times : std::uint8_t { once, any };

class Repeated final : public Element {
 public:
  Repeated(ElementPtr element, Times times) : element_(std::move(element)), times_(times) {}

  Ahead look(Lookahead& at) const override {
    // One look is enough: a further repetition cannot make a difference to whether the text begins with this.
    Lookahead inner = at;
    const Ahead ahead = element_->look(inner);
    if (ahead == Ahead::maybe) return ahead;
    if (ahead == Ahead::yes) {
      at = inner;
      if (times_ == Times::any) at.decided = true;
    }
    return Ahead::yes;
  }

  void add_marks(std::vector<std::string>& marks) const override { element_->add_marks(marks); }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(*this); }

  std::optional<std::string> grammar(GrammarWriter& writer) const override {
    const std::optional<std::string> inner = element_->grammar(writer);
    if (!inner) return Builder::literal("");
    return times_ == Times::once ? Builder::optional(*inner) : Builder::repeat(*inner, 0);
  }

 private:
  struct Reading final : Matcher {
    explicit Reading(const Repeated& repeated) : repeated_(repeated) {}
    Step step(Input& in, Output& out) override {
      while (true) {
        if (!current_) {
          Lookahead at{in.text, in.last};
          const Ahead ahead = repeated_.element_->look(at);
          if (ahead == Ahead::no) return Step::done;
          if (ahead == Ahead::maybe) return Step::more;
          current_ = repeated_.element_->match();
          begun_ = in.taken;
        }
        const Step step = current_->step(in, out);
        if (step != Step::done) return step;
        current_.reset();
        if (repeated_.times_ == Times::once || in.taken == begun_) return Step::done;
      }
    }
    const Repeated& repeated_;
    std::unique_ptr<Matcher> current_;
    std::size_t begun_ = 0;
  };

  const ElementPtr element_;
  const Times times_;
};

class Choice final : public Element {
 public:
  explicit Choice(std::vector<ElementPtr> elements) : elements_(std::move(elements)) {}

  Ahead look(Lookahead& at) const override {
    const Element* chosen = nullptr;
    return choose(at, chosen);
  }

  void add_marks(std::vector<std::string>& marks) const override {
    for (const ElementPtr& element : elements_) element->add_marks(marks);
  }
  std::unique_ptr<Matcher> match() const override { return std::make_unique<Reading>(*this); }

  std::optional<std::string> grammar(GrammarWriter& writer) const override {
    std::vector<std::string> alternatives;
    for (const ElementPtr& element : elements_)
      if (std::optional<std::string> one = element->grammar(writer)) alternatives.push_back(std::move(*one));
    if (alternatives.empty()) return std::nullopt;
    return Builder::any_of(alternatives);
  }

 private:
  Ahead choose(Lookahead& at, const Element*& chosen) const {
    for (const ElementPtr& element : elements_) {
      Lookahead inner = at;
      const Ahead ahead = element->look(inner);
      if (ahead == Ahead::no) continue;
      if (ahead == Ahead::yes) at = inner;
      chosen = element.get();
      return ahead;  // a later one must not be taken while an earlier one is still possible
    }
    return Ahead::no;
  }

  struct Reading final : Matcher {
    explicit Reading(const Choice& choice) : choice_(choice) {}
    Step step(Input& in, Output& out) override {
      if (!current_) {
        Lookahead at{in.text, in.last};
        const Element* chosen = nullptr;
        const Ahead ahead = choice_.choose(at, chosen);
        if (ahead == Ahead::no) return Step::failed;
        if (ahead == Ahead::maybe) return Step::more;
        current_ = chosen->match();
      }
      return current_->step(in, out);
    }
    const Choice& choice_;
    std::unique_ptr<Matcher> current_;
  };

  const std::vector<ElementPtr> elements_;
};

/// Written several times only when the request allows parallel calls.
class Calls final : public Element {
 public:
  Calls(ElementPtr one, ElementPtr further)
      : one_(std::move(one)), further_(std::move(further)), reading_(seq(one_, many(further_))) {}

  Ahead look(Lookahead& at) const override { return reading_->look(at); }
  void add_marks(std::vector<std::string>& marks) const override { reading_->add_marks(marks); }
  std::unique_ptr<Matcher> match() const override { return reading_->match(); }
  std::optional<std::string> grammar(GrammarWriter& writer) const override {
    return writer.parallel() ? reading_->grammar(writer) : one_->grammar(writer);
  }

 private:
  const ElementPtr one_, further_, reading_;
};
}  // namespace

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

ElementPtr text(std::string literal) {
  return std::make_shared<Text>(std::move(literal), false);
}
ElementPtr closing(std::string literal) {
  return std::make_shared<Text>(std::move(literal), true);
}
ElementPtr space() {
  return std::make_shared<Space>();
}
ElementPtr cut() {
  return std::make_shared<Cut>();
}
ElementPtr before(std::vector<std::string> literals) {
  return std::make_shared<Before>(std::move(literals), true);
}
ElementPtr not_before(std::vector<std::string> literals) {
  return std::make_shared<Before>(std::move(literals), false);
}
ElementPtr sequence(std::vector<ElementPtr> elements) {
  return std::make_shared<Sequence>(std::move(elements));
}
ElementPtr maybe(ElementPtr element) {
  return std::make_shared<Repeated>(std::move(element), Times::once);
}
ElementPtr many(ElementPtr element) {
  return std::make_shared<Repeated>(std::move(element), Times::any);
}
ElementPtr choice(std::vector<ElementPtr> elements) {
  return std::make_shared<Choice>(std::move(elements));
}
ElementPtr calls(const ElementPtr& one, ElementPtr separator) {
  return std::make_shared<Calls>(one, seq(std::move(separator), one));
}

}  // namespace common::chat::syntax
