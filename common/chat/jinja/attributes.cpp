#include "common/chat/jinja/attributes.h"

#include <algorithm>
#include <charconv>

#include "common/chat/jinja/repr.h"
#include "common/chat/jinja/runtime.h"
#include "common/chat/jinja/text.h"

namespace common::jinja {

namespace {
class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, Method method, std::string name)
      : self_(std::move(self)), method_(method), name_(std::move(name)) {}
  [[nodiscard]] std::string_view type_name() const override { return "builtin_function_or_method"; }
  [[nodiscard]] std::string repr() const override {
    return "<built-in method " + name_ + " of " + std::string(self_.type_name()) + " object>";
  }
  [[nodiscard]] bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override { return method_(rt, self_, args); }

 private:
  Value self_;
  Method method_;
  std::string name_;
};

Value missing(const Value& v, std::string_view name) {
  if (v.is_none()) return Value::undefined({"None", std::string(name), {}});
  return Value::undefined({std::string(v.type_name()) + " object", std::string(name), {}});
}

std::optional<Value> bound_method(Runtime& rt, const Value& v, std::string_view name) {
  const Method method = find_method(v, name);
  if (!method) return std::nullopt;
  return Value(rt.object<BoundMethod>(v, method, std::string(name)));
}

bool indexable(const Sequence& s) {
  return s.kind != SequenceKind::generator && s.kind != SequenceKind::view;
}

// The element at a Python index, which counts from the end when negative.
std::optional<Value> element(Runtime& rt, const Value& v, Int index) {
  if (const Sequence* s = v.as_sequence()) {
    if (!indexable(*s)) return std::nullopt;
    const auto n = static_cast<Int>(s->items.size());
    if (index < 0) index += n;
    if (index < 0 || index >= n) return std::nullopt;
    return s->items[static_cast<std::size_t>(index)];
  }
  const std::string* text = v.as_text();
  if (!text) return std::nullopt;
  rt.scan(text->size());
  const auto n = static_cast<Int>(code_points(*text));
  if (index < 0) index += n;
  if (index < 0 || index >= n) return std::nullopt;
  std::size_t first = byte_offset(*text, static_cast<std::size_t>(index));
  std::size_t last = first;
  next_code_point(*text, last);
  return rt.text(text->substr(first, last - first));
}

// A slice's bounds for `n` elements, by Python's rules.
struct Bounds {
  Int start, stop, step;
};

Int slice_part(Runtime& rt, const std::optional<Value>& part, Int otherwise) {
  if (!part || part->is_none()) return otherwise;
  Int i = 0;
  if (!part->to_int(i)) {
    if (part->is_undefined()) rt.fail(part->undefined_message());
    rt.fail("slice indices must be integers or None or have an __index__ method");
  }
  return i;
}

Bounds slice_bounds(Runtime& rt, const Slice& slice, Int n) {
  const Int step = slice_part(rt, slice.step, 1);
  if (step == 0) rt.fail("slice step cannot be zero");
  const Int lowest = step < 0 ? -1 : 0, highest = step < 0 ? n - 1 : n;
  const auto bound = [&](const std::optional<Value>& part, Int otherwise) {
    if (!part || part->is_none()) return otherwise;
    Int i = slice_part(rt, part, 0);
    if (i < 0) i += n;
    return std::clamp(i, lowest, highest);
  };
  const Int start = bound(slice.start, step < 0 ? highest : lowest);
  const Int stop = bound(slice.stop, step < 0 ? lowest : highest);
  return {start, stop, std::clamp<Int>(step, -n - 1, n + 1)};
}

template <class F>
void for_each_index(const Bounds& b, F f) {
  for (Int i = b.start; b.step > 0 ? i < b.stop : i > b.stop; i += b.step) f(static_cast<std::size_t>(i));
}

Value slice_text(Runtime& rt, const std::string& text, const Slice& slice) {
  rt.scan(text.size());
  const Bounds b = slice_bounds(rt, slice, static_cast<Int>(code_points(text)));
  if (b.step == 1) {
    if (b.start >= b.stop) return rt.text({});
    const std::size_t first = byte_offset(text, static_cast<std::size_t>(b.start));
    const std::size_t count =
        byte_offset(std::string_view(text).substr(first), static_cast<std::size_t>(b.stop - b.start));
    return rt.text(text.substr(first, count));
  }
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < text.size();) {
    starts.push_back(i);
    next_code_point(text, i);
  }
  rt.require(starts.size() * sizeof(std::size_t));
  std::string out;
  for_each_index(b, [&](std::size_t i) {
    const std::size_t end = i + 1 < starts.size() ? starts[i + 1] : text.size();
    out.append(text, starts[i], end - starts[i]);
  });
  return rt.text(std::move(out));
}
}  // namespace

Method find_method(const Value& self, std::string_view name) {
  if (self.as_text()) return find_text_method(name);
  if (self.as_dict()) return find_dict_method(name);
  if (const Sequence* s = self.as_sequence()) {
    const bool list = s->kind == SequenceKind::list;
    if (list || (s->kind == SequenceKind::tuple && (name == "count" || name == "index"))) return find_list_method(name);
  }
  return nullptr;
}

Value get_attribute(Runtime& rt, const Value& v, std::string_view name) {
  rt.step();
  if (v.is_undefined() && rt.lax()) return v;
  if (v.is_undefined()) rt.fail(v.undefined_message());
  if (Object* o = v.as_object()) return o->attribute(rt, name);
  if (auto method = bound_method(rt, v, name)) return *method;
  if (const Dict* d = v.as_dict())
    if (const Value* found = d->find(name)) return *found;
  return missing(v, name);
}

Value get_item(Runtime& rt, const Value& v, const Value& key) {
  rt.step();
  if (v.is_undefined()) rt.fail(v.undefined_message());
  if (const Dict* d = v.as_dict())
    if (const Value* found = d->find(rt, key)) return *found;
  Int index = 0;
  if (key.to_int(index)) {
    if (auto found = element(rt, v, index)) return *found;
    return Value::undefined({{}, {}, v.described() + " has no element " + to_str(index)});
  }
  if (const std::string* name = key.as_text()) {
    if (Object* o = v.as_object()) return o->attribute(rt, *name);
    if (auto method = bound_method(rt, v, *name)) return *method;
    return missing(v, *name);
  }
  return Value::undefined({{}, {}, v.described() + " has no such element"});
}

Value get_path(Runtime& rt, const Value& v, const Value& path) {
  const std::string* text = path.as_text();
  if (!text) return get_item(rt, v, path);
  Value at = v;
  for (std::size_t i = 0; i <= text->size();) {
    const std::size_t end = std::min(text->find('.', i), text->size());
    const std::string part = text->substr(i, end - i);
    std::int64_t index = 0;
    const auto [rest, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = !part.empty() && error == std::errc() && rest == part.data() + part.size() && part[0] != '-';
    at = get_item(rt, at, number ? Value::integer(index) : rt.text(part));
    i = end + 1;
  }
  return at;
}

Value get_slice(Runtime& rt, const Value& v, const Slice& slice) {
  if (v.is_undefined()) rt.fail(v.undefined_message());
  if (const std::string* text = v.as_text()) return slice_text(rt, *text, slice);
  const Sequence* s = v.as_sequence();
  if (!s || !indexable(*s)) return Value::undefined({{}, {}, v.described() + " cannot be sliced"});
  const Bounds b = slice_bounds(rt, slice, static_cast<Int>(s->items.size()));
  std::vector<Value> items;
  for_each_index(b, [&](std::size_t i) { items.push_back(s->items[i]); });
  return rt.sequence(s->kind == SequenceKind::tuple ? SequenceKind::tuple : SequenceKind::list, std::move(items));
}

std::vector<Value> iterate(Runtime& rt, const Value& v) {
  rt.step();
  if (v.is_undefined()) return {};
  if (Sequence* s = v.as_sequence()) {
    if (s->kind == SequenceKind::generator) return std::exchange(s->items, {});
    rt.require(s->items.size() * sizeof(Value));
    rt.work(s->items.size() * sizeof(Value));
    return s->items;
  }
  std::vector<Value> items;
  if (const Dict* d = v.as_dict()) {
    rt.work(d->entries().size() * sizeof(Dict::Entry));
    items.reserve(d->entries().size());
    for (const auto& [key, value] : d->entries()) items.push_back(key);
    return items;
  }
  if (const std::string* text = v.as_text()) {
    for (std::size_t i = 0; i < text->size();) {
      const std::size_t first = i;
      next_code_point(*text, i);
      items.push_back(rt.text(text->substr(first, i - first)));
    }
    return items;
  }
  rt.fail("'" + std::string(v.type_name()) + "' object is not iterable");
}

std::optional<std::size_t> length(const Value& v) {
  if (v.is_undefined()) return 0;
  if (const std::string* text = v.as_text()) return code_points(*text);
  if (const Dict* d = v.as_dict()) return d->entries().size();
  if (const Sequence* s = v.as_sequence(); s && s->kind != SequenceKind::generator) return s->items.size();
  return std::nullopt;
}

}  // namespace common::jinja
