#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace llama {

/// Bytes at the end of `text` that are the head of a UTF-8 character whose last bytes have not arrived (0 to 3).
/// A broken sequence is not unfinished: nothing that follows could repair it.
[[nodiscard]] std::size_t unfinished_utf8_bytes(std::string_view text) noexcept;

/// Whether `text` is strictly valid UTF-8 (no overlong form, no surrogate, nothing above U+10FFFF).
[[nodiscard]] bool is_valid_utf8(std::string_view text) noexcept;

/// `text` with U+FFFD for each byte that belongs to no valid character (what JSON output needs).
[[nodiscard]] std::string replace_invalid_utf8(std::string_view text);

/// Turns the byte pieces of successive tokens into text that can be sent at once: a character cut by a token border is
/// held back until it is whole. Invalid bytes in the middle pass unchanged. Thread-compatible.
class Utf8Stream {
 public:
  /// Adds the bytes of one token and returns what may be sent now, possibly nothing.
  [[nodiscard]] std::string push(std::string_view bytes);
  /// The bytes still held back. At the end of generation they are dropped from the text.
  [[nodiscard]] std::string_view held() const noexcept { return held_; }
  void clear() noexcept { held_.clear(); }

 private:
  std::string held_;
};

}  // namespace llama
