// Upper and lower case as Unicode has them: a letter may become several, and a sigma looks at its neighbours.
#include <utf8proc.h>

#include <algorithm>

#include "common/chat/jinja/text.h"

namespace common::jinja {

namespace {
constexpr char32_t kUnicodeEnd = 0x110000;  // beyond are bytes that are not valid UTF-8
constexpr char32_t kCapitalSigma = 0x3a3, kFinalSigma = 0x3c2, kCapitalIWithDot = 0x130;

struct SpecialCasing {
  char32_t letter;
  std::string_view upper, title;
};
constexpr SpecialCasing kSpecial[] = {
#define CASING(letter, upper, title) {letter, upper, title},
#include "common/chat/jinja/special_casing.def"
#undef CASING
};

const SpecialCasing* special(char32_t c) {
  const auto* found = std::lower_bound(std::begin(kSpecial), std::end(kSpecial), c,
                                       [](const SpecialCasing& row, char32_t letter) { return row.letter < letter; });
  return found != std::end(kSpecial) && found->letter == c ? found : nullptr;
}

template <utf8proc_int32_t (*convert)(utf8proc_int32_t)>
void append_single(std::string& out, char32_t c) {
  append_utf8(out, c < kUnicodeEnd ? static_cast<char32_t>(convert(static_cast<utf8proc_int32_t>(c))) : c);
}

void append_upper(std::string& out, char32_t c) {
  if (const SpecialCasing* row = special(c)) {
    out += row->upper;
  } else {
    append_single<utf8proc_toupper>(out, c);
  }
}

void append_title(std::string& out, char32_t c) {
  if (const SpecialCasing* row = special(c)) {
    out += row->title;
  } else {
    append_single<utf8proc_totitle>(out, c);
  }
}

/// Walks through a text and knows what stands around.
class LowerCase {
 public:
  explicit LowerCase(std::string_view s) : s_(s) {}

  /// `end`: behind the letter.
  void append(std::string& out, char32_t c, std::size_t end) {
    if (c == kCapitalSigma) {
      append_utf8(out, after_cased_ && !before_cased(end) ? kFinalSigma : c + 0x20);
    } else if (c == kCapitalIWithDot) {
      out += "i\xcc\x87";
    } else {
      append_single<utf8proc_tolower>(out, c);
    }
    pass(c);
  }
  void pass(char32_t c) {
    if (!is_case_ignorable(c)) after_cased_ = is_cased(c);
  }

 private:
  [[nodiscard]] bool before_cased(std::size_t at) const {
    // Between letters stand few marks; a run without end parts them.
    constexpr int kMostMarks = 64;
    for (int n = 0; at < s_.size() && n < kMostMarks; ++n) {
      const char32_t c = next_code_point(s_, at);
      if (!is_case_ignorable(c)) return is_cased(c);
    }
    return false;
  }

  std::string_view s_;
  bool after_cased_ = false;
};

/// Calls `f` with each code point and where it ends.
template <class F>
std::string map_code_points(std::string_view s, F f) {
  std::string out;
  out.reserve(s.size());
  for (std::size_t i = 0; i < s.size();) {
    const char32_t c = next_code_point(s, i);
    f(out, c, i);
  }
  return out;
}
}  // namespace

std::string to_upper(std::string_view s) {
  return map_code_points(s, [](std::string& out, char32_t c, std::size_t) { append_upper(out, c); });
}

std::string to_lower(std::string_view s) {
  LowerCase lower(s);
  return map_code_points(s, [&](std::string& out, char32_t c, std::size_t end) { lower.append(out, c, end); });
}

std::string case_fold(std::string_view s) {
  return map_code_points(s, [](std::string& out, char32_t c, std::size_t) {
    constexpr int kMostLetters = 8;
    utf8proc_int32_t folded[kMostLetters];
    int boundary = 0;
    const auto n = c < kUnicodeEnd ? utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, kMostLetters,
                                                             UTF8PROC_CASEFOLD, &boundary)
                                   : 0;
    if (n <= 0 || n > kMostLetters) append_utf8(out, c);
    for (utf8proc_ssize_t i = 0; i < n && n <= kMostLetters; ++i) append_utf8(out, static_cast<char32_t>(folded[i]));
  });
}

std::string capitalize(std::string_view s) {
  LowerCase lower(s);
  bool first = true;
  return map_code_points(s, [&](std::string& out, char32_t c, std::size_t end) {
    if (first) {
      append_title(out, c);
      lower.pass(c);
    } else {
      lower.append(out, c, end);
    }
    first = false;
  });
}

std::string swap_case(std::string_view s) {
  LowerCase lower(s);
  return map_code_points(s, [&](std::string& out, char32_t c, std::size_t end) {
    if (is_upper(c)) {
      lower.append(out, c, end);
      return;
    }
    lower.pass(c);
    is_lower(c) ? append_upper(out, c) : append_utf8(out, c);
  });
}

std::string title_case(std::string_view s) {
  LowerCase lower(s);
  bool inside = false;
  return map_code_points(s, [&](std::string& out, char32_t c, std::size_t end) {
    if (inside) {
      lower.append(out, c, end);
    } else {
      append_title(out, c);
      lower.pass(c);
    }
    inside = is_cased(c);
  });
}

}  // namespace common::jinja
