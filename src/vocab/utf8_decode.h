#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace llama {

/// One character read from the front of a byte string.
struct Utf8Char {
  char32_t code = 0;      // 0xFFFD for an invalid byte
  std::uint8_t size = 0;  // bytes; 1 for an invalid byte
  bool valid = false;
};

/// Reads the character at the front of `text`, strictly (no overlong form, no surrogate). Pre: text is not empty.
[[nodiscard]] Utf8Char decode_utf8(std::string_view text) noexcept;
void append_utf8(std::string& text, char32_t code);
/// Length that the lead byte announces, 1 for a byte that cannot lead.
[[nodiscard]] inline std::size_t announced_utf8_size(unsigned char lead) noexcept {
  // Four bits per high half of the byte, no branch: characters of several lengths mix in most of the world's text.
  constexpr std::uint64_t kSizes = 0x4322'1111'1111'1111U;
  return kSizes >> (lead >> 4U) * 4U & 0xFU;
}

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";    // U+2581, SentencePiece's visible space

/// `text` with every `from`, taken left to right without overlap, replaced by `to`. Pre: `from` is not empty.
[[nodiscard]] std::string replace_all(std::string_view text, std::string_view from, std::string_view to);
/// `text` with every space written as U+2581, and back.
[[nodiscard]] std::string spaces_to_marks(std::string_view text);
[[nodiscard]] std::string marks_to_spaces(std::string_view text);

}  // namespace llama
