#include "common/chat/jinja/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "common/chat/jinja/attributes.h"
#include "common/chat/jinja/repr.h"
#include "common/chat/jinja/runtime.h"
#include "common/chat/jinja/text.h"

namespace common::jinja {

namespace {
__extension__ typedef unsigned __int128 UInt;

// Wider fields and precisions than this serve no prompt and would only burn memory.
constexpr int kMaxWidth = 4096;

struct Spec {
  char type = 0;   // 0: by the value
  char align = 0;  // < > ^ =, 0: by the type
  std::string fill = " ";
  char sign = '-';  // '-', '+' or ' '
  bool alternate = false;
  char grouping = 0;  // ',' or '_'
  int width = 0;
  int precision = -1;
};

int parse_count(Runtime& rt, std::string_view s, std::size_t& i) {
  int n = 0;
  for (; i < s.size() && s[i] >= '0' && s[i] <= '9'; ++i) {
    n = n * 10 + (s[i] - '0');
    if (n > kMaxWidth) rt.fail("a width or precision of a format is more than " + std::to_string(kMaxWidth));
  }
  return n;
}

// Pads `body`, whose first `head` bytes are the sign and the base, to the width.
void append_padded(std::string& out, const Spec& spec, const std::string& body, std::size_t head, char natural) {
  const std::size_t n = code_points(body);
  const auto width = static_cast<std::size_t>(spec.width);
  const std::size_t pad = n < width ? width - n : 0;
  const auto fill = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out += spec.fill;
  };
  const char align = spec.align ? spec.align : natural;
  const std::size_t left = align == '<' || align == '=' ? 0 : align == '^' ? pad / 2 : pad;
  fill(left);
  if (align == '=') {
    out.append(body, 0, head);
    fill(pad);
    out.append(body, head);
    return;
  }
  out += body;
  fill(pad - left);
}

std::string group_digits(std::string digits, char separator, std::size_t every) {
  for (std::size_t at = digits.size(); at > every; at -= every) digits.insert(at - every, 1, separator);
  return digits;
}

std::string radix_digits(UInt rest, unsigned base, bool upper) {
  const std::string_view letters = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    digits += letters[static_cast<std::size_t>(rest % base)];
    rest /= base;
  } while (rest != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

void append_int(std::string& out, const Spec& spec, Int value) {
  std::string body;
  if (value < 0) {
    body = "-";
  } else if (spec.sign != '-') {
    body = std::string(1, spec.sign);
  }
  const unsigned base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  if (spec.alternate && base != 10) body += std::string("0") + spec.type;
  const std::size_t head = body.size();
  if (base == 10) {
    std::string digits = to_str(value);
    if (value < 0) digits.erase(0, 1);
    body += spec.grouping ? group_digits(digits, spec.grouping, 3) : digits;
  } else {
    // Without a sign, for the least number has no positive twin.
    const UInt magnitude = value < 0 ? UInt{0} - static_cast<UInt>(value) : static_cast<UInt>(value);
    body += radix_digits(magnitude, base, spec.type == 'X');
  }
  if (const std::size_t digits = body.size() - head;
      spec.precision > 0 && digits < static_cast<std::size_t>(spec.precision))
    body.insert(head, static_cast<std::size_t>(spec.precision) - digits, '0');
  append_padded(out, spec, body, head, '>');
}

std::string float_body(const Spec& spec, double magnitude) {
  char type = spec.type;
  int precision = spec.precision;
  if (type == 0 && precision < 0) return to_str(magnitude);
  const bool percent = type == '%';
  if (percent) {
    type = 'f';
    magnitude *= 100;
  }
  const bool by_value = type == 0;
  if (by_value) type = 'g';
  if (precision < 0) precision = 6;
  std::string pattern = std::string("%") + (spec.alternate ? "#" : "") + ".*" + type;
  std::string body(static_cast<std::size_t>(std::snprintf(nullptr, 0, pattern.c_str(), precision, magnitude)), '\0');
  std::snprintf(body.data(), body.size() + 1, pattern.c_str(), precision, magnitude);
  if (by_value && body.find_first_not_of("0123456789") == std::string::npos) body += ".0";
  if (percent) body += '%';
  return body;
}

void append_float(std::string& out, const Spec& spec, double value) {
  std::string body;
  if (std::signbit(value) && !std::isnan(value)) {
    body = "-";
  } else if (spec.sign != '-') {
    body = std::string(1, spec.sign);
  }
  const std::size_t head = body.size();
  std::string digits = float_body(spec, std::fabs(value));
  if (spec.grouping) {
    const std::size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
    digits = group_digits(digits.substr(0, end), spec.grouping, 3) + digits.substr(end);
  }
  append_padded(out, spec, body + digits, head, '>');
}

void append_text(std::string& out, const Spec& spec, std::string_view text) {
  if (spec.precision >= 0) text = text.substr(0, byte_offset(text, static_cast<std::size_t>(spec.precision)));
  append_padded(out, spec, std::string(text), 0, '<');
}

double as_double(const Value& v) {
  if (const double* d = v.as_float()) return *d;
  Int i = 0;
  (void)v.to_int(i);
  return static_cast<double>(i);
}

void append_char(Runtime& rt, std::string& out, const Spec& spec, const Value& v) {
  Int i = 0;
  std::string one;
  if (v.to_int(i)) {
    if (i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000)) rt.fail("%c arg is not a character");
    append_utf8(one, static_cast<char32_t>(i));
  } else if (const std::string* s = v.as_text(); s && code_points(*s) == 1) {
    one = *s;
  } else {
    rt.fail("%c requires int or char");
  }
  append_padded(out, spec, one, 0, '>');
}

// One value of a % format; the type has been checked to be a known letter.
void append_percent(Runtime& rt, std::string& out, Spec spec, const Value& v) {
  Int i = 0;
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a': {
      std::string text;
      spec.type == 's' ? append_str(rt, text, v) : append_repr(rt, text, v);
      if (!spec.align) spec.align = '>';
      spec.fill = " ";
      return append_text(out, spec, text);
    }
    case 'c':
      return append_char(rt, out, spec, v);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      if (const double* d = v.as_float(); d && spec.type != 'x' && spec.type != 'X' && spec.type != 'o') {
        if (!(std::fabs(*d) < 1e38)) rt.fail("cannot convert float to integer");
        i = static_cast<Int>(*d);
      } else if (!v.to_int(i)) {
        rt.fail(std::string("%") + spec.type + " format: a real number is required, not " + std::string(v.type_name()));
      }
      if (spec.type != 'x' && spec.type != 'X' && spec.type != 'o') spec.type = 'd';
      return append_int(out, spec, i);
    default:
      if (!v.is_number()) rt.fail("must be real number, not " + std::string(v.type_name()));
      return append_float(out, spec, as_double(v));
  }
}

// Flags, width and precision of a % conversion, up to its letter.
struct PercentParser {
  Runtime& rt;
  std::string_view format;
  const std::vector<Value>& values;
  std::size_t next = 0;

  const Value& take() {
    if (next >= values.size()) rt.fail("not enough arguments for format string");
    return values[next++];
  }
  int count(std::size_t& i) {
    if (i < format.size() && format[i] == '*') {
      ++i;
      Int n = 0;
      if (!take().to_int(n)) rt.fail("* wants int");
      if (n < -kMaxWidth || n > kMaxWidth) rt.fail("a width or precision of a format is too large");
      return static_cast<int>(n);
    }
    return parse_count(rt, format, i);
  }
  Spec spec(std::size_t& i) {
    Spec s;
    bool left = false, zero = false;
    for (; i < format.size(); ++i) {
      const char c = format[i];
      if (c == '-') {
        left = true;
      } else if (c == '0') {
        zero = true;
      } else if (c == '+' || (c == ' ' && s.sign != '+')) {
        s.sign = c;
      } else if (c == '#') {
        s.alternate = true;
      } else if (c != ' ') {
        break;
      }
    }
    s.width = count(i);
    if (s.width < 0) {
      left = true;
      s.width = -s.width;
    }
    if (i < format.size() && format[i] == '.') s.precision = std::max(count(++i), 0);
    while (i < format.size() && (format[i] == 'l' || format[i] == 'h' || format[i] == 'L')) ++i;
    if (left) {
      s.align = '<';
    } else if (zero) {
      s.align = '=';
      s.fill = "0";
    }
    return s;
  }
};
}  // namespace

Value percent_format(Runtime& rt, std::string_view format, const std::vector<Value>& values, const Value& mapping) {
  PercentParser parser{rt, format, values};
  std::string out;
  bool used_mapping = false;
  for (std::size_t i = 0; i < format.size();) {
    const std::size_t percent = std::min(format.find('%', i), format.size());
    out += format.substr(i, percent - i);
    i = percent + 1;
    if (percent == format.size()) break;
    std::optional<Value> named;
    if (i < format.size() && format[i] == '(') {
      const std::size_t close = format.find(')', i);
      const Dict* d = mapping.as_dict();
      if (close == std::string_view::npos) rt.fail("incomplete format key");
      if (!d) rt.fail("format requires a mapping");
      const std::string_view key = format.substr(i + 1, close - i - 1);
      const Value* found = d->find(key);
      if (!found) rt.fail("format key '" + std::string(key) + "' not found");
      named = *found;
      used_mapping = true;
      i = close + 1;
    }
    Spec spec = parser.spec(i);
    if (i >= format.size()) rt.fail("incomplete format");
    spec.type = format[i++];
    if (spec.type == '%') {
      out += '%';
      continue;
    }
    if (std::string_view("sracdiuxXoeEfFgG").find(spec.type) == std::string_view::npos)
      rt.fail(std::string("unsupported format character '") + spec.type + "'");
    append_percent(rt, out, spec, named ? *named : parser.take());
    rt.work(static_cast<std::size_t>(spec.width) + 8);
    rt.require(out.size());
  }
  if (!used_mapping && parser.next < values.size() && !mapping.as_dict() && !mapping.is_undefined())
    rt.fail("not all arguments converted during string formatting");
  return rt.text(std::move(out));
}

namespace {
Spec parse_brace_spec(Runtime& rt, std::string_view s) {
  Spec spec;
  std::size_t i = 0;
  if (!s.empty()) {
    std::size_t after = 0;
    next_code_point(s, after);
    const auto is_align = [&](std::size_t at) {
      return at < s.size() && std::string_view("<>=^").find(s[at]) != std::string_view::npos;
    };
    if (is_align(after)) {
      spec.fill = std::string(s.substr(0, after));
      spec.align = s[after];
      i = after + 1;
    } else if (is_align(0)) {
      spec.align = s[0];
      i = 1;
    }
  }
  if (i < s.size() && (s[i] == '+' || s[i] == '-' || s[i] == ' ')) spec.sign = s[i++];
  if (i < s.size() && s[i] == '#') spec.alternate = s[i++] == '#';
  if (i < s.size() && s[i] == '0') {
    ++i;
    if (!spec.align) {
      spec.align = '=';
      spec.fill = "0";
    }
  }
  spec.width = parse_count(rt, s, i);
  if (i < s.size() && (s[i] == ',' || s[i] == '_')) spec.grouping = s[i++];
  if (i < s.size() && s[i] == '.') spec.precision = parse_count(rt, s, ++i);
  if (i < s.size()) spec.type = s[i++];
  if (i != s.size()) rt.fail("Invalid format specifier '" + std::string(s) + "'");
  return spec;
}

void append_formatted(Runtime& rt, std::string& out, const Value& v, std::string_view spec_text) {
  Spec spec = parse_brace_spec(rt, spec_text);
  const auto type_in = [&](std::string_view set) { return set.find(spec.type) != std::string_view::npos; };
  const auto refuse = [&] {
    rt.fail(std::string("Unknown format code '") + spec.type + "' for object of type '" + std::string(v.type_name()) +
            "'");
  };
  Int i = 0;
  if (spec_text.empty()) {
    append_str(rt, out, v);
  } else if (v.as_float() || (v.is_number() && spec.type != 0 && type_in("eEfFgG%"))) {
    if (spec.type != 0 && !type_in("eEfFgG%")) refuse();
    append_float(out, spec, as_double(v));
  } else if (v.to_int(i)) {
    if (spec.type == 'c') return append_char(rt, out, spec, v);
    if (spec.type != 0 && !type_in("dnxXob")) refuse();
    append_int(out, spec, i);
  } else {
    if (spec.type != 0 && spec.type != 's') refuse();
    if (spec.align == '=') spec.align = '<';
    append_text(out, spec, to_str(rt, v));
  }
}

struct BraceParser {
  Runtime& rt;
  const Args& args;
  std::size_t automatic = 0;

  Value argument(std::string_view name) {
    std::size_t index = 0;
    if (name.empty()) {
      index = automatic++;
    } else if (name.find_first_not_of("0123456789") == std::string_view::npos) {
      if (name.size() > 6) rt.fail("Replacement index out of range");
      std::from_chars(name.data(), name.data() + name.size(), index);
    } else {
      for (const auto& [key, value] : args.named)
        if (key == name) return value;
      rt.fail("format: no argument named '" + std::string(name) + "'");
    }
    if (index >= args.positional.size())
      rt.fail("Replacement index " + std::to_string(index) + " out of range for positional args tuple");
    return args.positional[index];
  }

  // "0.name[key]"
  Value field(std::string_view text) {
    const std::size_t head = std::min(text.find_first_of(".["), text.size());
    Value v = argument(text.substr(0, head));
    for (std::size_t i = head; i < text.size();) {
      const bool dot = text[i] == '.';
      const std::size_t end = std::min(dot ? text.find_first_of(".[", i + 1) : text.find(']', i), text.size());
      const std::string_view key = text.substr(i + 1, end - i - 1);
      Int index = 0;
      for (const char c : key.substr(0, 9))
        index = c >= '0' && c <= '9' && index >= 0 ? index * 10 + (c - '0') : Int{-1};
      if (dot) {
        v = get_attribute(rt, v, key);
      } else {
        v = get_item(rt, v, index >= 0 && !key.empty() ? Value(index) : rt.text(std::string(key)));
      }
      i = dot ? end : end + 1;
    }
    if (v.is_undefined()) rt.fail(v.undefined_message());
    return v;
  }

  void replacement(std::string& out, std::string_view text) {
    std::size_t colon = text.find(':');
    std::string spec;
    if (colon != std::string_view::npos) spec = nested(text.substr(colon + 1));
    std::string_view name = text.substr(0, std::min(colon, text.size()));
    char conversion = 0;
    if (const std::size_t bang = name.rfind('!'); bang != std::string_view::npos && bang + 2 == name.size()) {
      conversion = name[bang + 1];
      name = name.substr(0, bang);
    }
    Value v = field(name);
    if (conversion == 'r' || conversion == 'a') {
      std::string r;
      append_repr(rt, r, v);
      v = rt.text(std::move(r));
    } else if (conversion == 's') {
      v = rt.text(to_str(rt, v));
    } else if (conversion != 0) {
      rt.fail(std::string("Unknown conversion specifier '") + conversion + "'");
    }
    append_formatted(rt, out, v, spec);
  }

  // A format specification may hold replacement fields of its own, one level deep.
  std::string nested(std::string_view spec) {
    std::string out;
    for (std::size_t i = 0; i < spec.size();) {
      if (spec[i] != '{') {
        out += spec[i++];
        continue;
      }
      const std::size_t close = spec.find('}', i);
      if (close == std::string_view::npos) rt.fail("expected '}' before end of string");
      append_str(rt, out, field(spec.substr(i + 1, close - i - 1)));
      i = close + 1;
    }
    return out;
  }
};
}  // namespace

Value brace_format(Runtime& rt, std::string_view format, const Args& args) {
  BraceParser parser{rt, args};
  std::string out;
  for (std::size_t i = 0; i < format.size();) {
    const char c = format[i];
    if ((c == '{' || c == '}') && i + 1 < format.size() && format[i + 1] == c) {
      out += c;
      i += 2;
    } else if (c == '}') {
      rt.fail("Single '}' encountered in format string");
    } else if (c != '{') {
      const std::size_t end = std::min(format.find_first_of("{}", i), format.size());
      out += format.substr(i, end - i);
      i = end;
    } else {
      int depth = 1;
      std::size_t end = i + 1;
      for (; end < format.size() && depth > 0; ++end) depth += format[end] == '{' ? 1 : format[end] == '}' ? -1 : 0;
      if (depth != 0) rt.fail("expected '}' before end of string");
      parser.replacement(out, format.substr(i + 1, end - i - 2));
      i = end;
    }
    rt.step();
    rt.require(out.size());
  }
  return rt.text(std::move(out));
}

}  // namespace common::jinja
