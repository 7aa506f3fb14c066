#include "common/chat/jinja/repr.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/chat/jinja/operators.h"
#include "common/chat/jinja/runtime.h"
#include "common/chat/jinja/text.h"

namespace common::jinja {

namespace {
void append_hex(std::string& out, char32_t c, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[(c >> shift) & 0xf];
}

void append_escaped(std::string& out, char32_t c) {
  if (c <= 0xff || c >= 0x80000000) {  // the latter: a byte that is not UTF-8
    out += "\\x";
    append_hex(out, c & 0xff, 2);
  } else if (c <= 0xffff) {
    out += "\\u";
    append_hex(out, c, 4);
  } else {
    out += "\\U";
    append_hex(out, c, 8);
  }
}

void append_items(Runtime& rt, std::string& out, const Sequence& s, ReprStyle style) {
  bool first = true;
  for (const Value& item : s.items) {
    if (!first) out += ", ";
    first = false;
    append_repr(rt, out, item, style);
  }
}

void append_sequence(Runtime& rt, std::string& out, const Sequence& s, ReprStyle style) {
  switch (s.kind) {
    case SequenceKind::range:
      out += s.label;
      return;
    case SequenceKind::generator:
      out += "<generator object>";
      return;
    case SequenceKind::list:
      out += '[';
      break;
    case SequenceKind::tuple:
      out += '(';
      break;
    case SequenceKind::view:
      out += s.label + "([";
      break;
  }
  append_items(rt, out, s, style);
  switch (s.kind) {
    case SequenceKind::list:
      out += ']';
      break;
    case SequenceKind::tuple:
      out += s.items.size() == 1 ? ",)" : ")";
      break;
    default:
      out += "])";
      break;
  }
}

void append_dict(Runtime& rt, std::string& out, const Dict& d, ReprStyle style) {
  std::vector<const Dict::Entry*> order;
  order.reserve(d.entries().size());
  for (const auto& e : d.entries()) order.push_back(&e);
  if (style == ReprStyle::sorted_keys) {
    std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
      const std::string* x = a->first.as_text();
      const std::string* y = b->first.as_text();
      return x && y && *x < *y;
    });
  }
  out += '{';
  bool first = true;
  for (const Dict::Entry* e : order) {
    if (!first) out += ", ";
    first = false;
    append_repr(rt, out, e->first, style);
    out += ": ";
    append_repr(rt, out, e->second, style);
  }
  out += '}';
}
}  // namespace

void append_repr(std::string& out, std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t at = i;
    const char32_t c = next_code_point(text, i);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(at, i - at);
    } else {
      append_escaped(out, c);
    }
  }
  out += quote;
}

void append_repr(Runtime& rt, std::string& out, const Value& v, ReprStyle style) {
  rt.step();
  if (const std::string* s = v.as_text()) {
    rt.work(s->size());
    append_repr(out, *s);
  } else if (v.is_undefined()) {
    out += "Undefined";
  } else if (const Sequence* seq = v.as_sequence()) {
    rt.check_stack();
    append_sequence(rt, out, *seq, style);
  } else if (const Dict* d = v.as_dict()) {
    rt.check_stack();
    append_dict(rt, out, *d, style);
  } else {
    append_str(rt, out, v);
  }
  if (out.size() > rt.limits().output_bytes) rt.fail_limit("a printed value is too long");
}

void append_str(Runtime& rt, std::string& out, const Value& v) {
  if (const std::string* s = v.as_text()) {
    rt.work(s->size());
    out += *s;
  } else if (v.is_undefined()) {
    return;
  } else if (v.is_none()) {
    out += "None";
  } else if (const bool* b = v.as_bool()) {
    out += *b ? "True" : "False";
  } else if (const Int* i = v.as_int()) {
    out += to_str(*i);
  } else if (const double* d = v.as_float()) {
    out += to_str(*d);
  } else if (const Object* o = v.as_object()) {
    out += o->repr();
  } else {
    append_repr(rt, out, v);
  }
}

std::string to_str(Runtime& rt, const Value& v) {
  std::string out;
  append_str(rt, out, v);
  return out;
}

std::string to_str(Int i) {
  // The magnitude is built from negative digits: the least value has no positive twin.
  std::string digits;
  const bool negative = i < 0;
  Int rest = negative ? i : -i;
  do {
    digits += static_cast<char>('0' - static_cast<int>(rest % 10));
    rest /= 10;
  } while (rest != 0);
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string to_str(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = text.find('e');
  int exponent = 0;
  const char* first = text.data() + e + 1;
  std::from_chars(*first == '+' ? first + 1 : first, end, exponent);
  std::string out;
  if (text[0] == '-') {
    out += '-';
    text.remove_prefix(1);
  }
  std::string digits(1, text[0]);
  if (const std::size_t dot = text.find('.'); dot != std::string_view::npos)
    digits += text.substr(dot + 1, text.find('e') - dot - 1);
  const auto n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out += "." + digits.substr(1);
    const int magnitude = exponent < 0 ? -exponent : exponent;
    out += exponent < 0 ? "e-" : "e+";
    if (magnitude < 10) out += '0';
    return out += std::to_string(magnitude);
  }
  const int whole = exponent + 1;  // digits in front of the point
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (n <= whole) return out + digits + std::string(static_cast<std::size_t>(whole - n), '0') + ".0";
  return out + digits.insert(static_cast<std::size_t>(whole), ".");
}

}  // namespace common::jinja
