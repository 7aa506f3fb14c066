#include <array>

#include "ggml/log.h"
#include "utf8_decode.h"
#include "vocab_data.h"

namespace llama {

namespace {

constexpr bool prints_as_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

// The 68 bytes that do not print are numbered in order from U+0100 on.
constexpr std::array<char32_t, 256> make_printable() {
  std::array<char32_t, 256> map{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    map[static_cast<std::size_t>(byte)] = prints_as_itself(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return map;
}
constexpr auto kPrintable = make_printable();

constexpr std::array<std::int16_t, 0x144> make_bytes() {
  std::array<std::int16_t, 0x144> map{};
  map.fill(-1);
  for (std::size_t byte = 0; byte < 256; ++byte) map[kPrintable[byte]] = static_cast<std::int16_t>(byte);
  return map;
}
constexpr auto kBytes = make_bytes();

std::string decode_byte_level(std::string_view text) {
  constexpr std::size_t kMarkerBytes = 64;  // a hostile file must not blow up a long text once per character
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text.substr(i));
    const int byte = c.valid ? printable_to_byte(c.code) : -1;
    if (byte >= 0) {
      out += static_cast<char>(byte);
    } else {
      out += "[UNK_BYTE_0x";
      for (std::size_t k = 0; k < c.size; ++k) {
        out += ggml::strf("%02x", static_cast<unsigned>(static_cast<unsigned char>(text[i + k])));
      }
      out.append(text.substr(0, kMarkerBytes)).append("]");
    }
    i += c.size;
  }
  return out;
}

std::string normal_piece(const VocabData& data, const std::string& text) {
  if (data.uses_marks()) return marks_to_spaces(text);
  if (data.kind == VocabKind::rwkv) return unescape_rwkv(text);
  if (data.kind == VocabKind::bpe && data.pre->form == BpeForm::byte_level) return decode_byte_level(text);
  return text;
}

std::string piece_of(const VocabData& data, Token t) {
  const std::string& text = data.text(t);
  switch (data.type(t)) {
    case TokenType::control:
    case TokenType::unknown:
    case TokenType::user_defined:
      return text;
    case TokenType::byte: {
      const int byte = byte_token_value(text);
      return byte >= 0 ? std::string(1, static_cast<char>(byte)) : text;
    }
    case TokenType::normal:
      return normal_piece(data, text);
    case TokenType::undefined:
    case TokenType::unused:
      return {};
  }
  return {};
}

// Copies `text` without the spaces for which `drop(text, i)` holds.
template <class Drop>
std::string without_spaces(const std::string& text, Drop drop) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ' ' || !drop(std::string_view(text), i)) out += text[i];
  }
  return out;
}

}  // namespace

std::string unescape_rwkv(std::string_view text) {
  const auto hex = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    if (c == 't') {
      out += '\t';
    } else if (c == 'n') {
      out += '\n';
    } else if (c == 'r') {
      out += '\r';
    } else if (c == 'x' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else {
      out += c;
    }
  }
  return out;
}

char32_t byte_to_printable(unsigned char byte) noexcept {
  return kPrintable[byte];
}

int printable_to_byte(char32_t code) noexcept {
  return code < kBytes.size() ? kBytes[code] : -1;
}

PieceTable::PieceTable(const VocabData& data) {
  begins_.reserve(data.texts.size() + 1);
  for (Token t = 0; t < data.n_tokens(); ++t) {
    begins_.push_back(pool_.size());
    pool_ += piece_of(data, t);
  }
  begins_.push_back(pool_.size());
}

std::string clean_up_spaces(std::string text) {
  text = without_spaces(text, [](std::string_view s, std::size_t i) {
    return i + 1 < s.size() && std::string_view("?!.,").find(s[i + 1]) != std::string_view::npos;
  });
  text = replace_all(text, " ' ", "'");
  return without_spaces(text, [](std::string_view s, std::size_t i) {
    const std::string_view rest = s.substr(i + 1);
    return rest.starts_with("'s") || rest.starts_with("'m") || rest.starts_with("'re") || rest.starts_with("'ve");
  });
}

}  // namespace llama
