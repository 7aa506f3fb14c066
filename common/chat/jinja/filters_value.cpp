// Filters for numbers, JSON and values of any type, and the look-up of all filters.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/chat/jinja/attributes.h"
#include "common/chat/jinja/filters.h"
#include "common/chat/jinja/json.h"
#include "common/chat/jinja/operators.h"
#include "common/chat/jinja/params.h"
#include "common/chat/jinja/repr.h"
#include "common/chat/jinja/text.h"
#include "common/json/parse_json.h"

namespace common::jinja {

namespace {
Value default_filter(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "default", args, {"default_value", "boolean"});
  const bool replace = v.is_undefined() || (p.flag(1, false) && !v.truthy());
  if (!replace) return v;
  return p.has(0) ? p.get(0) : rt.text({});
}

Value string_filter(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "string", args, {});
  return v.as_text() ? v : rt.text(to_str(rt, v));
}

Value pprint(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "pprint", args, {});
  std::string out;
  append_repr(rt, out, v, ReprStyle::sorted_keys);
  return rt.text(std::move(out));
}

Value attr(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "attr", args, {"name"}, 1);
  // Attributes only, not items: a dict's keys are not seen.
  const std::string name = p.text(0, "");
  if (v.as_dict() && !find_method(v, name)) return Value::undefined({v.described(), name, {}});
  return get_attribute(rt, v, name);
}

// Python's int(text, base): white space, sign, prefix, single underscores between digits.
std::optional<Int> parse_int(std::string_view text, Int base) {
  text = strip(text, Side::both);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const auto prefix = [&](char lower, Int its_base) {
    if ((base == its_base || base == 0) && text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == lower) {
      text.remove_prefix(2);
      base = its_base;
    }
  };
  prefix('x', 16);
  prefix('o', 8);
  prefix('b', 2);
  if (base == 0) base = 10;
  Int value = 0;
  bool digit_before = false;
  for (const char c : text) {
    if (c == '_' && digit_before) {
      digit_before = false;
      continue;
    }
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 10
                      : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                             : 99;
    if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
        __builtin_add_overflow(value, Int{digit}, &value))
      return std::nullopt;
    digit_before = true;
  }
  if (!digit_before) return std::nullopt;
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  std::string s(strip(text, Side::both));
  std::string clean;
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '_' && i > 0 && i + 1 < s.size() && std::isdigit(static_cast<unsigned char>(s[i - 1])) &&
        std::isdigit(static_cast<unsigned char>(s[i + 1])))
      continue;
    clean += s[i];
  }
  const std::string lower = to_lower(clean);
  const std::string_view unsigned_part =
      std::string_view(lower).substr(!lower.empty() && (lower[0] == '-' || lower[0] == '+') ? 1 : 0);
  const bool word = unsigned_part == "inf" || unsigned_part == "infinity" || unsigned_part == "nan";
  if (!word && (clean.empty() || clean.find_first_not_of("0123456789+-.eE") != std::string::npos)) return std::nullopt;
  char* end = nullptr;
  const double d = std::strtod(clean.c_str(), &end);
  if (end != clean.c_str() + clean.size()) return std::nullopt;
  return d;
}

std::optional<Int> truncated(double d) {
  constexpr double kBound = 0x1p127;
  if (!(d >= -kBound && d < kBound)) return std::nullopt;
  return static_cast<Int>(d);
}

Value int_filter(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "int", args, {"default", "base"});
  Value otherwise = p.get(0, Value::integer(0));
  if (v.is_undefined()) rt.fail(v.undefined_message());
  Int i = 0;
  if (v.to_int(i)) return i;
  if (const double* d = v.as_float()) {
    const auto whole = truncated(*d);
    return whole ? Value(*whole) : otherwise;
  }
  const std::string* s = v.as_text();
  if (!s) return otherwise;
  if (const auto parsed = parse_int(*s, p.integer(1, 10))) return *parsed;
  if (const auto d = parse_float(*s))
    if (const auto whole = truncated(*d)) return *whole;
  return otherwise;
}

Value float_filter(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "float", args, {"default"});
  if (v.is_undefined()) rt.fail(v.undefined_message());
  Int i = 0;
  if (v.to_int(i)) return static_cast<double>(i);
  if (v.as_float()) return v;
  const std::string* s = v.as_text();
  if (const auto d = s ? parse_float(*s) : std::nullopt) return *d;
  return p.get(0, 0.0);
}

Value abs_filter(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "abs", args, {});
  if (v.is_undefined()) rt.fail(v.undefined_message());
  Int i = 0;
  if (v.to_int(i)) return i < 0 ? negate(rt, v) : positive(rt, v);
  if (const double* d = v.as_float()) return std::fabs(*d);
  rt.fail("bad operand type for abs(): '" + std::string(v.type_name()) + "'");
}

Value round_filter(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "round", args, {"precision", "method"});
  const Int precision = p.integer(0, 0);
  const std::string method = p.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") rt.fail("method must be common, ceil or floor");
  if (v.is_undefined()) rt.fail(v.undefined_message());
  Int whole = 0;
  const bool is_int = v.to_int(whole);
  if (!is_int && !v.as_float()) rt.fail("type " + std::string(v.type_name()) + " doesn't define __round__ method");
  if (is_int && method == "common" && precision >= 0) return whole;
  const double d = is_int ? static_cast<double>(whole) : *v.as_float();
  const auto digits = static_cast<int>(std::clamp<Int>(precision, -400, 400));
  if (!std::isfinite(d)) return d;
  if (method != "common") {
    const double scale = std::pow(10.0, digits);
    if (!std::isfinite(scale) || scale == 0) return d;
    return (method == "ceil" ? std::ceil(d * scale) : std::floor(d * scale)) / scale;
  }
  if (digits < 0) {
    const double scale = std::pow(10.0, -digits);
    const double rounded = std::nearbyint(d / scale) * scale;
    if (!is_int) return rounded;
    const auto result = truncated(rounded);
    if (!result) rt.fail("integer result does not fit 128 bits");
    return *result;
  }
  // printf rounds the exact binary value, ties to even, as Python's round() does.
  char buffer[800];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, d);
  return std::strtod(buffer, nullptr);
}

Value tojson(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  // Plain Jinja has `indent` first; a number there can only mean that.
  std::size_t indent_at = 1;
  if (p.has(0) && !p.has(1) && p.get(0).as_int()) {
    indent_at = 0;
  } else {
    style.ensure_ascii = p.flag(0, false);
  }
  style.sort_keys = p.flag(3, false);
  if (p.has(indent_at) && !p.get(indent_at).is_none()) {
    if (const std::string* s = p.get(indent_at).as_text()) {
      style.indent = *s;
    } else {
      style.indent = std::string(static_cast<std::size_t>(std::clamp<Int>(p.integer(indent_at, 0), 0, 256)), ' ');
    }
    style.item_separator = ",";
  }
  if (p.has(2) && !p.get(2).is_none()) {
    const std::vector<Value> two = iterate(rt, p.get(2));
    if (two.size() != 2 || !two[0].as_text() || !two[1].as_text()) rt.fail("tojson: separators must be two strings");
    style.item_separator = *two[0].as_text();
    style.key_separator = *two[1].as_text();
  }
  return rt.text(dump_json(rt, v, style));
}

// from_json() recurses, so depth is checked first.
void check_json_depth(Runtime& rt, std::string_view text) {
  constexpr int kMaxDepth = 256;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth)
        rt.fail_limit("from_json: nested more than " + std::to_string(kMaxDepth) + " levels deep");
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

Value from_json_filter(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "from_json", args, {});
  const std::string* s = v.as_text();
  if (v.is_undefined()) rt.fail(v.undefined_message());
  if (!s) rt.fail("the JSON object must be str, not " + std::string(v.type_name()));
  check_json_depth(rt, *s);
  rt.require(s->size() * 8);  // what the parsed tree takes in the worst case of many small members
  const auto json = try_parse_json(*s);
  if (!json.has_value()) rt.fail("from_json: the text is not valid JSON");
  return from_json(rt, *json);
}
}  // namespace

const FilterTable& value_filters() {
  static const FilterTable table = {
      {"default", default_filter},
      {"d", default_filter},
      {"string", string_filter},
      {"pprint", pprint},
      {"attr", attr},
      {"int", int_filter},
      {"float", float_filter},
      {"abs", abs_filter},
      {"round", round_filter},
      {"tojson", tojson},
      {"from_json", from_json_filter},
      {"fromjson", from_json_filter},
  };
  return table;
}

Value apply_filter(Filter filter, Runtime& rt, const Value& subject, Args& args) {
  if (const std::string* text = subject.as_text()) rt.scan(text->size());
  return filter(rt, subject, args);
}

Filter find_filter(std::string_view name) {
  for (const FilterTable* table : {&text_filters(), &sequence_filters(), &selection_filters(), &value_filters()}) {
    const auto it = table->find(name);
    if (it != table->end()) return it->second;
  }
  return nullptr;
}

}  // namespace common::jinja
