#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace llama {
class Vocab;
}

namespace common::grammar {

class Automaton;

/// A GBNF grammar, parsed, checked and turned into an automaton over UTF-8 bytes. Immutable and thread-safe.
///
/// The language is llama.cpp's: rules `name ::= body` with the start rule `root`; see docs/grammars.md.
class Grammar {
 public:
  /// Parses `gbnf`. Token elements written as text (`<think>`) need the vocabulary; without one they are an error.
  /// Throws Error: invalid_argument with line and column (syntax, undefined rule, left recursion, a token text that is
  /// not one token); exceeds_limit (text, nesting, repetition or automaton too large).
  [[nodiscard]] static std::shared_ptr<const Grammar> parse(std::string_view gbnf, const llama::Vocab* vocab = nullptr);
  /// The texts of `frame`, another grammar, in which the texts of `gbnf` stand for its rule kFramed. Their rules do not
  /// see each other's names.
  static constexpr std::string_view kFramed = "framed";
  [[nodiscard]] static std::shared_ptr<const Grammar> parse_framed(std::string_view gbnf, std::string_view frame,
                                                                   const llama::Vocab* vocab = nullptr);

  Grammar(std::string text, std::unique_ptr<const Automaton> automaton);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  /// Tells grammars apart: `gbnf` as it was given, and the frame in front of it.
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] static std::string framed_text(std::string_view gbnf, std::string_view frame);
  [[nodiscard]] const Automaton& automaton() const { return *automaton_; }

 private:
  std::string text_;
  std::unique_ptr<const Automaton> automaton_;
};

}  // namespace common::grammar
