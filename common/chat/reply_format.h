#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/chat/syntax/element.h"

namespace common::chat {

/// A kind of piece that replies of a format are made of. Text that is in none of them is content.
struct ReplyPart {
  enum class Kind : std::uint8_t {
    reasoning,
    call,  // one call, or a section of them
    mark   // shown to nobody
  };
  Kind kind;
  syntax::ElementPtr syntax;
  bool at_start_only = false;  // only in front of any content
};

/// How the replies of a model look: the one description from which its parser, the splitter of its streams and its
/// grammars come. Immutable.
struct ReplyFormat {
  std::string name;
  std::vector<ReplyPart> parts;  // of those that begin at the same place the first counts
  /// Around the answer when a grammar writes it: what opens it, and what closes it. Null: nothing.
  syntax::ElementPtr answer_open, answer_close;
  /// Markers of reasoning, for the budget; empty: the format has none.
  std::string think_start;
  std::vector<std::string> think_ends;
  /// What no tool may be called, since it means something else where the name stands.
  std::vector<std::string> reserved_names;
  /// Calls that look like any other text cannot start a grammar.
  bool lazy_grammar = true;

  [[nodiscard]] bool has_calls() const;
  /// All literals that the parser looks for: a special token that occurs in one of them must reach it, though special
  /// tokens are not shown.
  [[nodiscard]] std::vector<std::string> marks() const;
};

/// The source of a chat template, for detection.
class TemplateView {
 public:
  explicit TemplateView(std::string_view source) : source_(source) {}
  [[nodiscard]] bool has(std::string_view text) const { return source_.find(text) != std::string_view::npos; }

 private:
  std::string_view source_;
};

/// The format of the replies to a chat template; there always is one (the last is plain text).
[[nodiscard]] std::shared_ptr<const ReplyFormat> find_reply_format(std::string_view template_source);

}  // namespace common::chat
