#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// Text as Python sees it: positions and lengths count code points, case and classes follow Unicode. Bytes that are not
// valid UTF-8 count as one code point each and are kept.
namespace common::jinja {

/// Decodes the code point at `i` and moves `i` behind it. Pre: i < s.size().
char32_t next_code_point(std::string_view s, std::size_t& i);
void append_utf8(std::string& out, char32_t c);
[[nodiscard]] bool is_ascii(std::string_view s);
[[nodiscard]] std::size_t code_points(std::string_view s);
/// The byte offset of code point number `n`, or s.size() when there are fewer.
[[nodiscard]] std::size_t byte_offset(std::string_view s, std::size_t n);

[[nodiscard]] bool is_space(char32_t c);
[[nodiscard]] bool is_alpha(char32_t c);
[[nodiscard]] bool is_digit(char32_t c);
[[nodiscard]] bool is_numeric(char32_t c);
[[nodiscard]] bool is_upper(char32_t c);
[[nodiscard]] bool is_lower(char32_t c);
[[nodiscard]] bool is_cased(char32_t c);
/// Stands between letters without parting them.
[[nodiscard]] bool is_case_ignorable(char32_t c);
[[nodiscard]] bool is_printable(char32_t c);

enum class Side : std::uint8_t { left = 1, right = 2, both = 3 };
/// Without `chars`: strips white space.
[[nodiscard]] std::string_view strip(std::string_view s, Side side);
[[nodiscard]] std::string_view strip(std::string_view s, Side side, std::string_view chars);

[[nodiscard]] std::string to_upper(std::string_view s);
[[nodiscard]] std::string to_lower(std::string_view s);
[[nodiscard]] std::string case_fold(std::string_view s);
[[nodiscard]] std::string capitalize(std::string_view s);
[[nodiscard]] std::string swap_case(std::string_view s);
/// str.title(): a letter after a non-letter is upper case.
[[nodiscard]] std::string title_case(std::string_view s);
/// As std::string_view::find, in linear time whatever the texts are.
[[nodiscard]] std::size_t find_text(std::string_view s, std::string_view what, std::size_t from = 0);
/// At most `limit` times when it is not negative. Replacing "" inserts between the code points, as Python does.
[[nodiscard]] std::string replace_all(std::string_view s, std::string_view from, std::string_view to,
                                      std::int64_t limit = -1);

}  // namespace common::jinja
