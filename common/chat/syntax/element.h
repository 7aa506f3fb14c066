#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The building blocks of a chat format: each says how its text is recognised, how it is read a piece at a time, and
/// which grammar writes it. A format is put together from them once; parser, splitter and grammar all come from that.
namespace common::chat::syntax {

class GrammarWriter;
class Output;

enum class Ahead : std::uint8_t { no, maybe, yes };

/// Text that is looked at and not read. Elements take off its front what they have recognised.
struct Lookahead {
  std::string_view text;
  bool last = false;     // nothing follows `text`: there is no "maybe"
  bool decided = false;  // set where looking further tells nothing: what comes is this element, or it is an error
};

/// Text that is being read.
struct Input {
  std::string_view text;
  bool last = false;
  std::size_t taken = 0;

  void take(std::size_t n) {
    text.remove_prefix(n);
    taken += n;
  }
};

enum class Step : std::uint8_t {
  more,  // reads on when there is more text; with Input::last: the text ended inside the element
  done,
  failed  // the text is something else
};

/// The reading of one element. It is shown its text a byte more at a time, and puts out what a byte means as soon as
/// that is certain; what it must see more of to know stays in the input. What it has taken since its last output is
/// given back to the content should it fail.
class Matcher {
 public:
  virtual ~Matcher() = default;
  virtual Step step(Input& in, Output& out) = 0;
};

/// Immutable, shared by all requests.
class Element {
 public:
  virtual ~Element() = default;
  /// Whether the text can begin with this element.
  virtual Ahead look(Lookahead& at) const = 0;
  [[nodiscard]] virtual std::unique_ptr<Matcher> match() const = 0;
  /// A GBNF expression; nothing when the element cannot be written for the writer's tool and parameter.
  [[nodiscard]] virtual std::optional<std::string> grammar(GrammarWriter& writer) const = 0;
  /// Adds the literals that the element looks for; special tokens that occur in them must not be hidden from it.
  virtual void add_marks(std::vector<std::string>& marks) const = 0;
};
using ElementPtr = std::shared_ptr<const Element>;

enum class Field : std::uint8_t { content, reasoning };

[[nodiscard]] bool is_space(char c);

// ---- combinators
[[nodiscard]] ElementPtr text(std::string literal);
/// A mark that models forget now and then: read when it is there, always written.
[[nodiscard]] ElementPtr closing(std::string literal);
/// White space or none.
[[nodiscard]] ElementPtr space();
/// Looking ahead ends here: what has been recognised so far decides, and constrained generation starts here.
[[nodiscard]] ElementPtr cut();
/// What follows is one of these; reads nothing.
[[nodiscard]] ElementPtr before(std::vector<std::string> literals);
/// What follows is none of these; reads nothing.
[[nodiscard]] ElementPtr not_before(std::vector<std::string> literals);
[[nodiscard]] ElementPtr sequence(std::vector<ElementPtr> elements);
[[nodiscard]] ElementPtr maybe(ElementPtr element);
/// Any number of times, also none.
[[nodiscard]] ElementPtr many(ElementPtr element);
/// The first that the text can begin with.
[[nodiscard]] ElementPtr choice(std::vector<ElementPtr> elements);
/// One or more calls with `separator` between them; written once only when parallel calls are off.
[[nodiscard]] ElementPtr calls(const ElementPtr& one, ElementPtr separator);

template <class... Elements>
[[nodiscard]] ElementPtr seq(Elements... elements) {
  return sequence({std::move(elements)...});
}

// ---- fields
/// Text up to one of `stops` (which stays unread) or the end, white space at both ends cut.
[[nodiscard]] ElementPtr said(Field field, std::vector<std::string> stops);
/// A literal that is part of what was said.
[[nodiscard]] ElementPtr said_literal(Field field, std::string literal);
/// Text up to one of `stops`, dropped; a grammar writes `canonical`.
[[nodiscard]] ElementPtr skipped(std::vector<std::string> stops, const std::string& canonical);
/// The same, where a grammar writes any text of `pattern`, a GBNF expression.
[[nodiscard]] ElementPtr skipped_like(std::vector<std::string> stops, std::string pattern);

// ---- calls
enum class Names : std::uint8_t { any, offered };  // offered: another name is no call
/// Everything that belongs to one call; a grammar has one alternative per tool.
[[nodiscard]] ElementPtr call(ElementPtr element);
/// The tool's name, up to one of `stops`.
[[nodiscard]] ElementPtr name(std::vector<std::string> stops, Names names = Names::any);
/// A text that holds both, up to one of `stops`: it is the id, and the name in it stands between `prefix` (which may be
/// missing) and a colon with a number.
[[nodiscard]] ElementPtr name_in_id(std::vector<std::string> stops, std::string prefix);
/// The call's id, up to one of `stops`; `pattern` is its GBNF expression.
[[nodiscard]] ElementPtr id(std::vector<std::string> stops, std::string pattern);
/// The arguments as a JSON object.
[[nodiscard]] ElementPtr json_arguments();

}  // namespace common::chat::syntax
