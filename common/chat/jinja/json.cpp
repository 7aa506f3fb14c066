#include "common/chat/jinja/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/chat/jinja/repr.h"
#include "common/chat/jinja/runtime.h"
#include "common/chat/jinja/text.h"

namespace common::jinja {

namespace {
using nlohmann::ordered_json;

void append_unicode_escape(std::string& out, char32_t unit) {
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += "0123456789abcdef"[(unit >> shift) & 0xf];
}

void append_json_string(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t at = i;
    const char32_t c = next_code_point(text, i);
    switch (c) {
      case '"':
        out += "\\\"";
        continue;
      case '\\':
        out += "\\\\";
        continue;
      case '\n':
        out += "\\n";
        continue;
      case '\r':
        out += "\\r";
        continue;
      case '\t':
        out += "\\t";
        continue;
      case '\b':
        out += "\\b";
        continue;
      case '\f':
        out += "\\f";
        continue;
      default:
        break;
    }
    if (c < 0x20) {
      append_unicode_escape(out, c);
    } else if (c < 0x7f || !ensure_ascii) {
      out += text.substr(at, i - at);
    } else if (c == 0x7f) {
      out += '\x7f';
    } else if (c > 0x10ffff) {
      append_unicode_escape(out, 0xfffd);
    } else if (c > 0xffff) {
      append_unicode_escape(out, 0xd800 + ((c - 0x10000) >> 10));
      append_unicode_escape(out, 0xdc00 + ((c - 0x10000) & 0x3ff));
    } else {
      append_unicode_escape(out, c);
    }
  }
  out += '"';
}

std::string json_number(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
  return to_str(d);
}

class Dumper {
 public:
  Dumper(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style) {}

  void value(const Value& v) {
    rt_.step();
    if (const std::string* s = v.as_text()) {
      rt_.work(s->size());
      append_json_string(out_, *s, style_.ensure_ascii);
    } else if (v.is_none()) {
      out_ += "null";
    } else if (const bool* b = v.as_bool()) {
      out_ += *b ? "true" : "false";
    } else if (const Int* i = v.as_int()) {
      out_ += to_str(*i);
    } else if (const double* d = v.as_float()) {
      out_ += json_number(*d);
    } else if (const Sequence* seq = v.as_sequence()) {
      array(*seq);
    } else if (const Dict* dict = v.as_dict()) {
      object(*dict);
    } else {
      rt_.fail("Object of type " + std::string(v.type_name()) + " is not JSON serializable");
    }
    if (out_.size() > rt_.limits().output_bytes) rt_.fail_limit("tojson: the text is too long");
  }
  std::string take() { return std::move(out_); }

 private:
  void line() {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < depth_; ++i) rt_.append(out_, *style_.indent);
  }
  void separate(bool& first) {
    if (!first) rt_.append(out_, style_.item_separator);
    first = false;
    line();
  }
  void array(const Sequence& seq) {
    if (seq.items.empty()) {
      out_ += "[]";
      return;
    }
    rt_.check_stack();
    out_ += '[';
    ++depth_;
    bool first = true;
    for (const Value& item : seq.items) {
      separate(first);
      value(item);
    }
    --depth_;
    line();
    out_ += ']';
  }
  void object(const Dict& dict) {
    if (dict.entries().empty()) {
      out_ += "{}";
      return;
    }
    rt_.check_stack();
    std::vector<std::pair<std::string, const Value*>> members;
    members.reserve(dict.entries().size());
    for (const auto& [k, v] : dict.entries()) members.emplace_back(key(k), &v);
    if (style_.sort_keys)
      std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    out_ += '{';
    ++depth_;
    bool first = true;
    for (const auto& [k, v] : members) {
      separate(first);
      append_json_string(out_, k, style_.ensure_ascii);
      rt_.append(out_, style_.key_separator);
      value(*v);
    }
    --depth_;
    line();
    out_ += '}';
  }
  std::string key(const Value& k) {
    if (const std::string* s = k.as_text()) {
      rt_.work(s->size());
      rt_.require(out_.size() + s->size());
      return *s;
    }
    if (k.is_none()) return "null";
    if (const bool* b = k.as_bool()) return *b ? "true" : "false";
    if (const Int* i = k.as_int()) return to_str(*i);
    if (const double* d = k.as_float()) return json_number(*d);
    rt_.fail("keys must be str, int, float, bool or None, not " + std::string(k.type_name()));
  }

  Runtime& rt_;
  const JsonStyle& style_;
  std::string out_;
  int depth_ = 0;
};
}  // namespace

Value from_json(Runtime& rt, const ordered_json& json) {
  switch (json.type()) {
    case ordered_json::value_t::null:
    case ordered_json::value_t::discarded:
      return None{};
    case ordered_json::value_t::boolean:
      return json.get<bool>();
    case ordered_json::value_t::number_integer:
      return static_cast<Int>(json.get<std::int64_t>());
    case ordered_json::value_t::number_unsigned:
      return static_cast<Int>(json.get<std::uint64_t>());
    case ordered_json::value_t::number_float:
      return json.get<double>();
    case ordered_json::value_t::string:
      return rt.text(json.get_ref<const std::string&>());
    case ordered_json::value_t::binary:
      break;
    case ordered_json::value_t::array: {
      rt.check_stack();
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(rt, item));
      return rt.list(std::move(items));
    }
    case ordered_json::value_t::object: {
      rt.check_stack();
      Dict* d = rt.dict();
      for (const auto& [key, value] : json.items()) d->set(rt, rt.text(key), from_json(rt, value));
      return d;
    }
  }
  rt.fail("binary JSON values cannot be used in a template");
}

std::size_t json_bytes(const ordered_json& json) {
  // An explicit stack: this runs before any depth limit is checked.
  std::size_t total = 0;
  std::vector<const ordered_json*> todo{&json};
  while (!todo.empty()) {
    const ordered_json* at = todo.back();
    todo.pop_back();
    total += sizeof(Value);
    if (at->is_string()) total += at->get_ref<const std::string&>().size();
    if (at->is_object()) {
      for (auto it = at->begin(); it != at->end(); ++it) total += it.key().size();
    }
    if (at->is_structured()) {
      for (const auto& child : *at) todo.push_back(&child);
    }
  }
  return total;
}

std::string dump_json(Runtime& rt, const Value& v, const JsonStyle& style) {
  Dumper dumper(rt, style);
  dumper.value(v);
  return dumper.take();
}

}  // namespace common::jinja
