#include "nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "utf8_decode.h"

namespace llama {

namespace {

struct Range {
  char32_t first, last;
};
// Characters that are no marks, stay as they are and join no character before them: where one stands, normalisation
// begins anew. Not all of these, only the blocks that make up most of the world's text.
constexpr Range kInert[] = {{0x0000, 0x02FF}, {0x0400, 0x0482}, {0x048A, 0x0590},   {0x2010, 0x20CF},  {0x2190, 0x2328},
                            {0x232B, 0x2ADB}, {0x3000, 0x3029}, {0x3030, 0x3098},   {0x309B, 0xA66E},  {0xAC00, 0xD7A3},
                            {0xFE00, 0xFE1F}, {0xFF00, 0xFFFF}, {0x1F000, 0x1FBEF}, {0x20000, 0x2F7FF}};

bool is_inert(char32_t code) {
  if (code <= kInert[0].last) return true;
  return std::any_of(std::begin(kInert), std::end(kInert),
                     [&](const Range& r) { return code >= r.first && code <= r.last; });
}

// Appends the normal form of one segment, at whose borders nothing joins.
void compose(std::string_view segment, std::vector<utf8proc_int32_t>& codes, std::string& out) {
  codes.clear();
  for (std::size_t i = 0; i < segment.size();) {
    const Utf8Char c = decode_utf8(segment.substr(i));
    i += c.size;
    constexpr std::size_t kLongest = 8;  // canonical decompositions have four code points at most
    std::array<utf8proc_int32_t, kLongest> parts{};
    int boundary = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), parts.data(),
                                           static_cast<utf8proc_ssize_t>(kLongest), UTF8PROC_DECOMPOSE, &boundary);
    if (n <= 0 || n > static_cast<utf8proc_ssize_t>(kLongest)) {
      codes.push_back(static_cast<utf8proc_int32_t>(c.code));
    } else {
      codes.insert(codes.end(), parts.begin(), parts.begin() + n);
    }
  }
  // Marks in their canonical order. The library's own way takes quadratic time on a long run of them.
  const auto order = [](utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; };
  for (auto begin = codes.begin(); begin != codes.end();) {
    begin = std::find_if(begin, codes.end(), [&](utf8proc_int32_t code) { return order(code) != 0; });
    const auto end = std::find_if(begin, codes.end(), [&](utf8proc_int32_t code) { return order(code) == 0; });
    std::stable_sort(begin, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) { return order(a) < order(b); });
    begin = end;
  }
  const auto n = utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                                          static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  for (utf8proc_ssize_t i = 0; i < n; ++i) append_utf8(out, static_cast<char32_t>(codes[static_cast<std::size_t>(i)]));
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& storage) {
  std::vector<utf8proc_int32_t> codes;
  std::size_t done = 0;   // what is before it is in `storage`
  std::size_t start = 0;  // of the newest character where normalisation begins anew
  bool any = false;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const Utf8Char c = byte < 0x80 ? Utf8Char{byte, 1, true} : decode_utf8(text.substr(i));
    if (is_inert(c.code)) {
      start = i;
      i += c.size;
      continue;
    }
    std::size_t end = i;
    while (end < text.size()) {
      const Utf8Char next = decode_utf8(text.substr(end));
      if (is_inert(next.code)) break;
      end += next.size;
    }
    if (!any) storage.clear();
    any = true;
    storage.append(text.substr(done, start - done));
    compose(text.substr(start, end - start), codes, storage);
    done = start = i = end;
  }
  if (!any) return text;
  storage.append(text.substr(done));
  return storage;
}

}  // namespace llama
