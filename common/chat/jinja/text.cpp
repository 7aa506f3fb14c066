#include "common/chat/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

namespace common::jinja {

namespace {
utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// The code points of invalid bytes lie above Unicode, so that they match no class and convert back to the byte.
constexpr char32_t kInvalidByte = 0x80000000;

// The start of the code point that ends before `end`.
std::size_t previous(std::string_view s, std::size_t end) {
  for (std::size_t back = 1; back <= 4 && back <= end; ++back) {
    std::size_t i = end - back;
    if ((static_cast<unsigned char>(s[i]) & 0xc0) == 0x80) continue;
    std::size_t stop = i;
    next_code_point(s, stop);
    if (stop == end) return i;
    break;
  }
  return end - 1;
}

template <class Pred>
std::string_view strip_if(std::string_view s, Side side, Pred drop) {
  std::size_t first = 0, last = s.size();
  if (static_cast<int>(side) & static_cast<int>(Side::left)) {
    while (first < last) {
      std::size_t next = first;
      if (!drop(next_code_point(s, next))) break;
      first = next;
    }
  }
  if (static_cast<int>(side) & static_cast<int>(Side::right)) {
    while (last > first) {
      const std::size_t at = previous(s, last);
      std::size_t next = at;
      if (!drop(next_code_point(s, next))) break;
      last = at;
    }
  }
  return s.substr(first, last - first);
}
}  // namespace

char32_t next_code_point(std::string_view s, std::size_t& i) {
  const auto b = static_cast<unsigned char>(s[i]);
  if (b < 0x80) {
    ++i;
    return b;
  }
  const int n = b >= 0xf0 && b < 0xf5 ? 4 : b >= 0xe0 && b < 0xf0 ? 3 : b >= 0xc2 && b < 0xe0 ? 2 : 0;
  if (n == 0 || i + static_cast<std::size_t>(n) > s.size()) {
    ++i;
    return kInvalidByte | b;
  }
  char32_t c = b & (0xffu >> (n + 1));
  for (int k = 1; k < n; ++k) {
    const auto next = static_cast<unsigned char>(s[i + static_cast<std::size_t>(k)]);
    if ((next & 0xc0) != 0x80) {
      ++i;
      return kInvalidByte | b;
    }
    c = (c << 6) | (next & 0x3f);
  }
  const bool too_long = (n == 3 && c < 0x800) || (n == 4 && (c < 0x10000 || c > 0x10ffff));
  if (too_long || (c >= 0xd800 && c < 0xe000)) {
    ++i;
    return kInvalidByte | b;
  }
  i += static_cast<std::size_t>(n);
  return c;
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (c >= kInvalidByte) {
    put(c & 0xff);
  } else if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | (c >> 6));
    put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3f));
    put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3f));
    put(0x80 | ((c >> 6) & 0x3f));
    put(0x80 | (c & 0x3f));
  }
}

bool is_ascii(std::string_view s) {
  return std::none_of(s.begin(), s.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

std::size_t code_points(std::string_view s) {
  if (is_ascii(s)) return s.size();
  std::size_t n = 0;
  for (std::size_t i = 0; i < s.size(); ++n) next_code_point(s, i);
  return n;
}

std::size_t byte_offset(std::string_view s, std::size_t n) {
  std::size_t i = 0;
  for (; n > 0 && i < s.size(); --n) next_code_point(s, i);
  return i;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_alpha(char32_t c) {
  if (c >= kInvalidByte) return false;
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) {
  return c < kInvalidByte && category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_numeric(char32_t c) {
  if (c >= kInvalidByte) return false;
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) {
  return c < kInvalidByte && category(c) == UTF8PROC_CATEGORY_LU;
}
bool is_lower(char32_t c) {
  return c < kInvalidByte && category(c) == UTF8PROC_CATEGORY_LL;
}
bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || (c < kInvalidByte && category(c) == UTF8PROC_CATEGORY_LT);
}
bool is_case_ignorable(char32_t c) {
  if (c >= kInvalidByte) return false;
  if (c < 0x80) return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`';
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == 0xb7 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
  }
}

bool is_printable(char32_t c) {
  if (c < 0x7f) return c >= 0x20;
  if (c >= kInvalidByte) return false;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string_view strip(std::string_view s, Side side) {
  return strip_if(s, side, is_space);
}

std::string_view strip(std::string_view s, Side side, std::string_view chars) {
  std::u32string set;
  for (std::size_t i = 0; i < chars.size();) set += next_code_point(chars, i);
  std::sort(set.begin(), set.end());
  return strip_if(s, side, [&](char32_t c) { return std::binary_search(set.begin(), set.end(), c); });
}

std::size_t find_text(std::string_view s, std::string_view what, std::size_t from) {
  if (from > s.size()) return std::string_view::npos;
  if (what.empty()) return from;
  if (what.size() == 1) return s.find(what[0], from);
  // memmem() is linear; std::string_view::find compares again from every position.
  const void* hit = ::memmem(s.data() + from, s.size() - from, what.data(), what.size());
  return hit ? static_cast<std::size_t>(static_cast<const char*>(hit) - s.data()) : std::string_view::npos;
}

std::string replace_all(std::string_view s, std::string_view from, std::string_view to, std::int64_t limit) {
  std::string out;
  out.reserve(s.size());
  if (from.empty()) {
    std::size_t i = 0;
    for (std::int64_t done = 0; limit < 0 || done < limit; ++done) {
      out += to;
      if (i == s.size()) return out;
      append_utf8(out, next_code_point(s, i));
    }
    return out += s.substr(i);
  }
  std::size_t at = 0;
  for (std::int64_t done = 0; limit < 0 || done < limit; ++done) {
    const std::size_t hit = find_text(s, from, at);
    if (hit == std::string_view::npos) break;
    out += s.substr(at, hit - at);
    out += to;
    at = hit + from.size();
  }
  return out += s.substr(at);
}

}  // namespace common::jinja
