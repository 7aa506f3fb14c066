#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cli {

/// The terminal: text of the model and the prompt on stdout, input from stdin. Colours only when asked or on a
/// terminal.
class Console {
 public:
  explicit Console(bool colors);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// Whether standard output is a terminal and NO_COLOR is not set.
  [[nodiscard]] static bool is_terminal();

  enum class Speaker : unsigned char { none, prompt, user, model, thought };
  void speak(Speaker speaker);
  /// Throws Error(io) when the terminal, pipe or file takes nothing more; so does speak().
  void write(std::string_view text);
  /// One line of input without its end; nothing at the end of input. A line that ends with a backslash goes on in the
  /// next; with `multiline` every line goes on until one that ends with a slash.
  std::optional<std::string> read_line(bool multiline);

  /// Counts Ctrl-C: true since the last clear_interrupt().
  [[nodiscard]] static bool interrupted();
  static void clear_interrupt();
  /// Installs the Ctrl-C handler: the first interrupts the answer, a second one before clear_interrupt() ends the
  /// process with 130.
  static void catch_interrupts();

 private:
  const bool colors_;
  Speaker speaker_ = Speaker::none;
};

}  // namespace cli
