// Methods of str.
#include <algorithm>
#include <unordered_map>

#include "common/chat/jinja/attributes.h"
#include "common/chat/jinja/format.h"
#include "common/chat/jinja/params.h"
#include "common/chat/jinja/repr.h"
#include "common/chat/jinja/text.h"

namespace common::jinja {

namespace {
using std::string_view;

const std::string& text_of(Runtime& rt, const Value& self) {
  const std::string& s = *self.as_text();
  rt.scan(s.size());
  return s;
}

template <Side side>
Value strip_method(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "strip", args, {"chars"});
  const std::string& s = text_of(rt, self);
  const auto chars = p.string(0);
  if (chars) rt.scan(chars->size());
  return rt.text(std::string(chars ? strip(s, side, *chars) : strip(s, side)));
}

template <std::string (*f)(string_view)>
Value map_method(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "str method", args, {});
  return rt.text(f(text_of(rt, self)));
}

// Splits at white space; the last piece keeps the rest when `limit` is reached.
std::vector<string_view> split_space(string_view s, Int limit) {
  std::vector<string_view> parts;
  s = strip(s, Side::left);
  while (!s.empty()) {
    if (limit >= 0 && static_cast<Int>(parts.size()) == limit) {
      parts.push_back(strip(s, Side::right));
      break;
    }
    std::size_t end = 0, next = 0;
    while (end < s.size()) {
      next = end;
      if (is_space(next_code_point(s, next))) break;
      end = next;
    }
    parts.push_back(s.substr(0, end));
    s = strip(s.substr(end), Side::left);
  }
  return parts;
}

std::vector<string_view> rsplit_space(string_view s, Int limit) {
  std::vector<string_view> parts = split_space(s, -1);
  if (limit < 0 || static_cast<Int>(parts.size()) <= limit + 1) return parts;
  const std::size_t keep = parts.size() - static_cast<std::size_t>(limit);
  const string_view last_of_head = parts[keep - 1];
  const string_view head(parts[0].data(),
                         static_cast<std::size_t>(last_of_head.data() + last_of_head.size() - parts[0].data()));
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(keep));
  parts.insert(parts.begin(), head);
  return parts;
}

std::vector<string_view> split_at(string_view s, string_view separator, Int limit) {
  std::vector<string_view> parts;
  std::size_t at = 0;
  for (std::size_t hit = 0; limit != 0 && (hit = find_text(s, separator, at)) != string_view::npos; --limit) {
    parts.push_back(s.substr(at, hit - at));
    at = hit + separator.size();
  }
  parts.push_back(s.substr(at));
  return parts;
}

// The last occurrence that ends at or before `end`.
std::size_t rfind_text(Runtime& rt, string_view s, string_view what, std::size_t end) {
  if (what.size() > end) return string_view::npos;
  for (std::size_t at = end - what.size() + 1; at-- > 0;) {
    if (!what.empty() && s[at] != what[0]) continue;
    rt.scan(what.size());
    if (s.compare(at, what.size(), what) == 0) return at;
  }
  return string_view::npos;
}

std::vector<string_view> rsplit_at(Runtime& rt, string_view s, string_view separator, Int limit) {
  std::vector<string_view> parts;
  std::size_t end = s.size();
  for (std::size_t hit = 0; limit != 0 && (hit = rfind_text(rt, s, separator, end)) != string_view::npos; --limit) {
    parts.push_back(s.substr(hit + separator.size(), end - hit - separator.size()));
    end = hit;
  }
  parts.push_back(s.substr(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value text_list(Runtime& rt, const std::vector<string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const string_view part : parts) items.push_back(rt.text(std::string(part)));
  return rt.list(std::move(items));
}

template <bool from_right>
Value split_method(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, from_right ? "rsplit" : "split", args, {"sep", "maxsplit"});
  const std::string& s = text_of(rt, self);
  rt.require(s.size() / 2 * sizeof(Value));
  const auto separator = p.string(0);
  const Int limit = p.integer(1, -1);
  if (!separator) return text_list(rt, from_right ? rsplit_space(s, limit) : split_space(s, limit));
  if (separator->empty()) rt.fail("empty separator");
  return text_list(rt, from_right ? rsplit_at(rt, s, *separator, limit) : split_at(s, *separator, limit));
}

Value splitlines(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "splitlines", args, {"keepends"});
  const string_view s = text_of(rt, self);
  const bool keep = p.flag(0, false);
  std::vector<string_view> lines;
  for (std::size_t first = 0; first < s.size();) {
    std::size_t end = first, next = first;
    bool broke = false;
    while (next < s.size()) {
      end = next;
      const char32_t c = next_code_point(s, next);
      broke = c == '\n' || c == '\r' || c == 0x0b || c == 0x0c || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
              c == 0x2028 || c == 0x2029;
      if (broke && c == '\r' && next < s.size() && s[next] == '\n') ++next;
      if (broke) break;
      end = next;
    }
    lines.push_back(s.substr(first, (keep && broke ? next : end) - first));
    first = next;
    rt.require(lines.size() * sizeof(Value));
  }
  return text_list(rt, lines);
}

Value replace(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "replace", args, {"old", "new", "count"}, 2);
  const std::string& s = text_of(rt, self);
  const std::string from = p.string(0).value_or(""), to = p.string(1).value_or("");
  const Int limit = p.integer(2, -1);
  // Worst case first: the result may be far larger than the text.
  const std::size_t hits = s.size() / std::max<std::size_t>(from.size(), 1) + 1;
  if (to.size() > from.size()) {
    std::size_t grown = 0;
    if (s.size() + (__builtin_mul_overflow(hits, to.size(), &grown) ? ~std::size_t{0} / 2 : grown) >
        (std::size_t{1} << 20)) {
      std::size_t real = 0;
      for (std::size_t at = 0; (at = find_text(s, from, at)) != string_view::npos;
           at += std::max<std::size_t>(from.size(), 1))
        ++real;
      rt.require(__builtin_mul_overflow(real, to.size(), &grown) ? ~std::size_t{0} : grown);
    }
  }
  return rt.text(
      replace_all(s, from, to, limit < 0 ? -1 : static_cast<std::int64_t>(std::min<Int>(limit, Int{1} << 62))));
}

// The part of the text that find() and its kin look at, by code points; nothing when it starts beyond the end.
struct Window {
  std::size_t first, last;
};
std::optional<Window> window(const Params& p, const std::string& s, std::size_t param) {
  if (!p.has(param) && !p.has(param + 1)) return Window{0, s.size()};
  const auto n = static_cast<Int>(code_points(s));
  const auto clamp = [&](Int i) { return std::clamp<Int>(i < 0 ? i + n : i, 0, n); };
  if (p.integer(param, 0) > n) return std::nullopt;
  const Int first = clamp(p.integer(param, 0)), last = clamp(p.integer(param + 1, n));
  if (first > last) return std::nullopt;
  return Window{byte_offset(s, static_cast<std::size_t>(first)), byte_offset(s, static_cast<std::size_t>(last))};
}

template <bool from_right>
Int find_in(Runtime& rt, const Value& self, const Params& p) {
  const std::string& s = text_of(rt, self);
  const auto w = window(p, s, 1);
  const std::string what = p.string(0).value_or("");
  if (!w) return -1;
  const string_view part = string_view(s).substr(0, w->last);
  rt.scan(what.size());
  const std::size_t hit = from_right ? rfind_text(rt, part.substr(w->first), what, w->last - w->first)
                                     : find_text(part.substr(w->first), what);
  return hit == string_view::npos ? Int{-1} : static_cast<Int>(code_points(part.substr(0, w->first + hit)));
}

template <bool from_right>
Value find(Runtime& rt, const Value& self, Args& args) {
  return find_in<from_right>(rt, self, Params(rt, "find", args, {"sub", "start", "end"}, 1));
}

template <bool from_right>
Value index(Runtime& rt, const Value& self, Args& args) {
  const Int at = find_in<from_right>(rt, self, Params(rt, "index", args, {"sub", "start", "end"}, 1));
  if (at < 0) rt.fail("substring not found");
  return at;
}

Value count(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "count", args, {"sub", "start", "end"}, 1);
  const std::string& s = text_of(rt, self);
  const auto w = window(p, s, 1);
  const std::string what = p.string(0).value_or("");
  if (!w) return Value::integer(0);
  const string_view part = string_view(s).substr(w->first, w->last - w->first);
  if (what.empty()) return static_cast<Int>(code_points(part) + 1);
  Int n = 0;
  for (std::size_t at = 0; (at = find_text(part, what, at)) != string_view::npos; at += what.size()) ++n;
  return n;
}

template <bool at_end>
Value starts_or_ends(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, at_end ? "endswith" : "startswith", args, {"prefix", "start", "end"}, 1);
  const std::string& s = text_of(rt, self);
  const auto w = window(p, s, 1);
  const Value what = p.get(0);
  const auto matches = [&](const Value& v) {
    const std::string* t = v.as_text();
    if (!t)
      rt.fail(std::string(at_end ? "endswith" : "startswith") + " first arg must be str or a tuple of str, not " +
              std::string(v.type_name()));
    if (!w) return false;
    const string_view part = string_view(s).substr(w->first, w->last - w->first);
    if (part.size() < t->size()) return false;
    return (at_end ? part.substr(part.size() - t->size()) : part.substr(0, t->size())) == *t;
  };
  const Sequence* seq = what.as_sequence();
  if (!seq || seq->kind != SequenceKind::tuple) return matches(what);
  return std::any_of(seq->items.begin(), seq->items.end(), matches);
}

Value join(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "join", args, {"iterable"}, 1);
  const std::string& separator = text_of(rt, self);
  std::string out;
  Int i = 0;
  for (const Value& item : iterate(rt, p.get(0))) {
    const std::string* s = item.as_text();
    if (!s)
      rt.fail("sequence item " + to_str(i) + ": expected str instance, " + std::string(item.type_name()) + " found");
    if (i++ > 0) out += separator;
    out += *s;
    rt.work(s->size() + separator.size());
    rt.require(out.size());
  }
  return rt.text(std::move(out));
}

template <bool (*each)(char32_t)>
Value all_method(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "str method", args, {});
  const std::string& s = text_of(rt, self);
  for (std::size_t i = 0; i < s.size();)
    if (!each(next_code_point(s, i))) return false;
  return !s.empty();
}

bool is_alnum(char32_t c) {
  return is_alpha(c) || is_numeric(c);
}
bool is_ascii_char(char32_t c) {
  return c < 0x80;
}

// At least one cased letter, and none of the other case.
template <bool upper>
Value is_case(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "str method", args, {});
  const std::string& s = text_of(rt, self);
  bool any = false;
  for (std::size_t i = 0; i < s.size();) {
    const char32_t c = next_code_point(s, i);
    if (upper ? is_lower(c) : is_upper(c)) return false;
    any = any || (upper ? is_upper(c) : is_lower(c));
  }
  return any;
}

Value istitle(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "istitle", args, {});
  const std::string& s = text_of(rt, self);
  bool any = false;
  for (std::size_t i = 0; i < s.size() && !any;) any = is_cased(next_code_point(s, i));
  return any && s == title_case(s);
}

Value isidentifier(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "isidentifier", args, {});
  const std::string& s = text_of(rt, self);
  for (std::size_t i = 0; i < s.size();) {
    const bool first = i == 0;
    const char32_t c = next_code_point(s, i);
    if (c != '_' && !is_alpha(c) && (first || !is_digit(c))) return false;
  }
  return !s.empty();
}

enum class Pad { left, right, center };
template <Pad kind>
Value pad_method(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "ljust", args, {"width", "fillchar"}, 1);
  const std::string& s = text_of(rt, self);
  const std::string fill = p.text(1, " ");
  if (code_points(fill) != 1) rt.fail("The fill character must be exactly one character long");
  const Int missing = p.integer(0, 0) - static_cast<Int>(code_points(s));
  if (missing <= 0) return self;
  rt.require(static_cast<std::size_t>(std::min<Int>(missing, Int{1} << 40)) * fill.size());
  const auto n = static_cast<std::size_t>(missing);
  // str.center puts the odd blank on the left when the width is odd.
  const std::size_t center_left = n / 2 + (n & static_cast<std::size_t>(p.integer(0, 0)) & 1);
  const std::size_t left = kind == Pad::left ? 0 : kind == Pad::right ? n : center_left;
  std::string out;
  for (std::size_t i = 0; i < left; ++i) out += fill;
  out += s;
  for (std::size_t i = left; i < n; ++i) out += fill;
  return rt.text(std::move(out));
}

Value zfill(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "zfill", args, {"width"}, 1);
  const std::string& s = text_of(rt, self);
  const Int missing = p.integer(0, 0) - static_cast<Int>(code_points(s));
  if (missing <= 0) return self;
  rt.require(static_cast<std::size_t>(std::min<Int>(missing, Int{1} << 40)));
  const std::size_t sign = !s.empty() && (s[0] == '-' || s[0] == '+') ? 1 : 0;
  return rt.text(s.substr(0, sign) + std::string(static_cast<std::size_t>(missing), '0') + s.substr(sign));
}

template <bool from_right>
Value partition(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "partition", args, {"sep"}, 1);
  const std::string& s = text_of(rt, self);
  const std::string separator = p.string(0).value_or("");
  if (separator.empty()) rt.fail("empty separator");
  const std::size_t hit = from_right ? rfind_text(rt, s, separator, s.size()) : find_text(s, separator);
  if (hit == std::string::npos) {
    const Value none = rt.text({});
    return from_right ? rt.tuple({none, none, self}) : rt.tuple({self, none, none});
  }
  return rt.tuple({rt.text(s.substr(0, hit)), rt.text(separator), rt.text(s.substr(hit + separator.size()))});
}

Value removeprefix(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "removeprefix", args, {"prefix"}, 1);
  const std::string& s = text_of(rt, self);
  const std::string what = p.string(0).value_or("");
  return s.compare(0, what.size(), what) == 0 ? rt.text(s.substr(what.size())) : self;
}

Value removesuffix(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "removesuffix", args, {"suffix"}, 1);
  const std::string& s = text_of(rt, self);
  const std::string what = p.string(0).value_or("");
  const bool match = s.size() >= what.size() && s.compare(s.size() - what.size(), what.size(), what) == 0;
  return match ? rt.text(s.substr(0, s.size() - what.size())) : self;
}

Value format(Runtime& rt, const Value& self, Args& args) {
  return brace_format(rt, text_of(rt, self), args);
}

Value expandtabs(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "expandtabs", args, {"tabsize"});
  const std::string& s = text_of(rt, self);
  const auto size = static_cast<std::size_t>(std::clamp<Int>(p.integer(0, 8), 0, 256));
  rt.require(s.size() * std::max<std::size_t>(size, 1));
  std::string out;
  std::size_t column = 0;
  for (std::size_t i = 0; i < s.size();) {
    const char32_t c = next_code_point(s, i);
    if (c == '\t') {
      const std::size_t n = size == 0 ? 0 : size - column % size;
      out.append(n, ' ');
      column += n;
    } else {
      append_utf8(out, c);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return rt.text(std::move(out));
}

Value encode(Runtime&, const Value& self, Args&) {
  return self;
}  // text is UTF-8 already, and bytes print as they are

const std::unordered_map<string_view, Method>& methods() {
  static const std::unordered_map<string_view, Method> table = {
      {"strip", strip_method<Side::both>},
      {"lstrip", strip_method<Side::left>},
      {"rstrip", strip_method<Side::right>},
      {"upper", map_method<to_upper>},
      {"lower", map_method<to_lower>},
      {"casefold", map_method<case_fold>},
      {"title", map_method<title_case>},
      {"capitalize", map_method<capitalize>},
      {"swapcase", map_method<swap_case>},
      {"split", split_method<false>},
      {"rsplit", split_method<true>},
      {"splitlines", splitlines},
      {"replace", replace},
      {"find", find<false>},
      {"rfind", find<true>},
      {"index", index<false>},
      {"rindex", index<true>},
      {"count", count},
      {"startswith", starts_or_ends<false>},
      {"endswith", starts_or_ends<true>},
      {"join", join},
      {"isdigit", all_method<is_digit>},
      {"isdecimal", all_method<is_digit>},
      {"isnumeric", all_method<is_numeric>},
      {"isalpha", all_method<is_alpha>},
      {"isalnum", all_method<is_alnum>},
      {"isspace", all_method<is_space>},
      {"isprintable", all_method<is_printable>},
      {"isascii", all_method<is_ascii_char>},
      {"islower", is_case<false>},
      {"isupper", is_case<true>},
      {"istitle", istitle},
      {"isidentifier", isidentifier},
      {"ljust", pad_method<Pad::left>},
      {"rjust", pad_method<Pad::right>},
      {"center", pad_method<Pad::center>},
      {"zfill", zfill},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"removeprefix", removeprefix},
      {"removesuffix", removesuffix},
      {"format", format},
      {"expandtabs", expandtabs},
      {"encode", encode},
  };
  return table;
}
}  // namespace

Method find_text_method(string_view name) {
  const auto it = methods().find(name);
  return it == methods().end() ? nullptr : it->second;
}

}  // namespace common::jinja
