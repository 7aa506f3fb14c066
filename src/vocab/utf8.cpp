#include "llama/utf8.h"

#include <algorithm>
#include <cstring>

#include "utf8_decode.h"

namespace llama {

Utf8Char decode_utf8(std::string_view text) noexcept {
  constexpr Utf8Char kInvalid{0xFFFD, 1, false};
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  if (lead < 0xC2 || lead > 0xF4) return kInvalid;  // followers, overlong two-byte forms, above U+10FFFF
  const std::size_t size = announced_utf8_size(lead);
  if (text.size() < size) return kInvalid;
  char32_t code = lead & (0x7FU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return kInvalid;
    code = code << 6 | (byte(i) & 0x3FU);
  }
  if (size == 3 && (code < 0x800 || (code >= 0xD800 && code < 0xE000))) return kInvalid;
  if (size == 4 && (code < 0x10000 || code > 0x10FFFF)) return kInvalid;
  return {code, static_cast<std::uint8_t>(size), true};
}

void append_utf8(std::string& text, char32_t code) {
  const auto follower = [&](int shift) { text += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | (code >> 6));
    follower(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | (code >> 12));
    follower(6);
    follower(0);
  } else {
    text += static_cast<char>(0xF0 | (code >> 18));
    follower(12);
    follower(6);
    follower(0);
  }
}

namespace {

// Bytes from `i` on that are valid UTF-8; eight ASCII bytes at a time, since most prompts are mostly ASCII.
std::size_t valid_prefix(std::string_view text) noexcept {
  std::size_t i = 0;
  while (i < text.size()) {
    std::uint64_t word = 0;
    if (i + 8 <= text.size() && (std::memcpy(&word, text.data() + i, 8), (word & 0x8080808080808080U) == 0)) {
      i += 8;
      continue;
    }
    const Utf8Char c = decode_utf8(text.substr(i));
    if (!c.valid) return i;
    i += c.size;
  }
  return i;
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  std::size_t begin = 0;
  for (std::size_t hit = 0; (hit = text.find(from, begin)) != std::string_view::npos; begin = hit + from.size()) {
    out.append(text.substr(begin, hit - begin)).append(to);
  }
  return out.append(text.substr(begin));
}

bool is_valid_utf8(std::string_view text) noexcept {
  return valid_prefix(text) == text.size();
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t good = valid_prefix(text);
    out.append(text.substr(0, good));
    if (good == text.size()) break;
    out.append(kReplacement);
    text.remove_prefix(good + 1);
  }
  return out;
}

std::size_t unfinished_utf8_bytes(std::string_view text) noexcept {
  const std::size_t reach = std::min<std::size_t>(3, text.size());
  for (std::size_t back = 1; back <= reach; ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    if (byte < 0xC2 || byte > 0xF4 || announced_utf8_size(byte) <= back) return 0;
    // A second byte that makes the form overlong, a surrogate or too large is broken for good.
    if (back >= 2) {
      const auto second = static_cast<unsigned char>(text[text.size() - back + 1]);
      if ((byte == 0xE0 && second < 0xA0) || (byte == 0xED && second >= 0xA0) || (byte == 0xF0 && second < 0x90) ||
          (byte == 0xF4 && second >= 0x90)) {
        return 0;
      }
    }
    return back;
  }
  return 0;
}

std::string spaces_to_marks(std::string_view text) {
  return replace_all(text, " ", kSpaceMark);
}
std::string marks_to_spaces(std::string_view text) {
  return replace_all(text, kSpaceMark, " ");
}

std::string Utf8Stream::push(std::string_view bytes) {
  held_.append(bytes);
  const std::size_t tail = unfinished_utf8_bytes(held_);
  std::string ready = held_.substr(0, held_.size() - tail);
  held_.erase(0, ready.size());
  return ready;
}

}  // namespace llama
