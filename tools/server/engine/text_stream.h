#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "llama/utf8.h"

namespace server {

/// Turns the pieces of an answer's tokens into text that may be sent: characters are whole, and text that may be the
/// beginning of a stop string is held back until that is decided. Thread-compatible.
class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stop_strings);

  struct Outcome {
    std::string text;           // may be sent now
    std::string stopping_word;  // not empty: this stop string was met; text ends before it
    bool incomplete_character = false;
  };
  /// Adds one token's bytes.
  Outcome push(std::string_view piece);
  /// Ends the answer: the text held back that is no stop string. An unfinished character is dropped.
  std::string finish();
  [[nodiscard]] bool has_new_line() const { return has_new_line_; }
  /// Spaces and tabs at the start of the last line, once another character follows them there; -1 before the first new
  /// line.
  [[nodiscard]] int indentation() const;

 private:
  std::vector<std::string> stops_;
  llama::Utf8Stream characters_;
  std::string pending_;         // whole characters that may begin a stop string
  std::size_t n_searched_ = 0;  // bytes of it in which no whole stop string is
  std::string line_;            // the last line, only as far as its indentation needs
  bool has_new_line_ = false;
};

}  // namespace server
