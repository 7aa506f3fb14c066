// Filters that reorder, cut and sum up sequences.
#include <algorithm>

#include "common/chat/jinja/attributes.h"
#include "common/chat/jinja/filters.h"
#include "common/chat/jinja/operators.h"
#include "common/chat/jinja/ordering.h"
#include "common/chat/jinja/params.h"
#include "common/chat/jinja/repr.h"
#include "common/chat/jinja/text.h"

namespace common::jinja {

namespace {
using Items = std::vector<Value>;

// What to compare: the attribute if one is named, in lower case unless the case matters.
Value key_of(Runtime& rt, const Value& item, const Value& attribute, bool case_sensitive) {
  const Value key = attribute.is_undefined() || attribute.is_none() ? item : get_path(rt, item, attribute);
  return case_sensitive ? key : fold_case(rt, key);
}

Items keys_of(Runtime& rt, const Items& items, const Value& attribute, bool case_sensitive) {
  Items keys;
  keys.reserve(items.size());
  for (const Value& item : items) keys.push_back(key_of(rt, item, attribute, case_sensitive));
  return keys;
}

Value first(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "first", args, {});
  if (const Sequence* s = v.as_sequence(); s && s->kind != SequenceKind::generator && !s->items.empty())
    return s->items.front();
  Items items = iterate(rt, v);
  return items.empty() ? Value::undefined({{}, {}, "No first item, sequence was empty."}) : items.front();
}

Value last(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "last", args, {});
  if (const Sequence* s = v.as_sequence(); s && s->kind == SequenceKind::generator)
    rt.fail("'generator' object is not reversible");
  if (const Sequence* s = v.as_sequence(); s && !s->items.empty()) return s->items.back();
  Items items = iterate(rt, v);
  return items.empty() ? Value::undefined({{}, {}, "No last item, sequence was empty."}) : items.back();
}

Value random(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "random", args, {});
  Items items = iterate(rt, v);
  return items.empty() ? Value::undefined({{}, {}, "No random item, sequence was empty."})
                       : items[rt.next_random() % items.size()];
}

Value length_filter(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "length", args, {});
  const auto n = length(v);
  if (!n) rt.fail("object of type '" + std::string(v.type_name()) + "' has no len()");
  if (const std::string* s = v.as_text()) rt.scan(s->size());
  return static_cast<Int>(*n);
}

Value join(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "join", args, {"d", "attribute"});
  const std::string separator = p.text(0, "");
  std::string out;
  bool first_item = true;
  for (const Value& item : iterate(rt, v)) {
    if (!first_item) out += separator;
    first_item = false;
    append_str(rt, out, p.has(1) && !p.get(1).is_none() ? get_path(rt, item, p.get(1)) : item);
    rt.work(separator.size());
    rt.require(out.size());
  }
  return rt.text(std::move(out));
}

Value list_filter(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "list", args, {});
  return rt.list(iterate(rt, v));
}

Value reverse(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "reverse", args, {});
  if (v.as_text()) {
    Slice backwards;
    backwards.step = Value::integer(-1);
    return get_slice(rt, v, backwards);
  }
  Items items = iterate(rt, v);
  std::reverse(items.begin(), items.end());
  return rt.generator(std::move(items));
}

// The attribute argument of sort may name several, separated by commas.
Items sort_keys(Runtime& rt, const Items& items, const Value& attribute, bool case_sensitive) {
  const std::string* names = attribute.as_text();
  if (!names || names->find(',') == std::string::npos) return keys_of(rt, items, attribute, case_sensitive);
  std::vector<Value> attributes;
  for (std::size_t at = 0; at <= names->size();) {
    const std::size_t end = std::min(names->find(',', at), names->size());
    attributes.push_back(rt.text(names->substr(at, end - at)));
    at = end + 1;
  }
  Items keys;
  for (const Value& item : items) {
    Items parts;
    for (const Value& name : attributes) parts.push_back(key_of(rt, item, name, case_sensitive));
    keys.push_back(rt.tuple(std::move(parts)));
  }
  return keys;
}

Value sort(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "sort", args, {"reverse", "case_sensitive", "attribute"});
  Items items = iterate(rt, v);
  const Items keys = sort_keys(rt, items, p.get(2), p.flag(1, false));
  sort_values(rt, items, keys, p.flag(0, false));
  return rt.list(std::move(items));
}

Value dictsort(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "dictsort", args, {"case_sensitive", "by", "reverse"});
  const Dict* d = v.as_dict();
  if (v.is_undefined()) rt.fail(v.undefined_message());
  if (!d) rt.fail("'" + v.described() + "' has no attribute 'items'");
  const std::string by = p.text(1, "key");
  if (by != "key" && by != "value") rt.fail("You can only sort by either \"key\" or \"value\"");
  Items pairs, keys;
  for (const auto& [key, value] : d->entries()) {
    pairs.push_back(rt.tuple({key, value}));
    keys.push_back(p.flag(0, false) ? (by == "key" ? key : value) : fold_case(rt, by == "key" ? key : value));
  }
  sort_values(rt, pairs, keys, p.flag(2, false));
  return rt.list(std::move(pairs));
}

Value items_filter(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "items", args, {});
  if (v.is_undefined()) return rt.generator({});
  const Dict* d = v.as_dict();
  if (!d) rt.fail("Can only get item pairs from a mapping.");
  Items pairs;
  for (const auto& [key, value] : d->entries()) pairs.push_back(rt.tuple({key, value}));
  return rt.generator(std::move(pairs));
}

Value unique(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "unique", args, {"case_sensitive", "attribute"});
  Dict* seen = rt.dict();
  Items out;
  for (const Value& item : iterate(rt, v)) {
    const Value key = key_of(rt, item, p.get(1), p.flag(0, false));
    if (seen->find(rt, key)) continue;
    seen->set(rt, key, None{});
    out.push_back(item);
  }
  return rt.generator(std::move(out));
}

template <bool greatest>
Value extreme(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, greatest ? "max" : "min", args, {"case_sensitive", "attribute"});
  const Items items = iterate(rt, v);
  if (items.empty()) return Value::undefined({{}, {}, "No aggregated item, sequence was empty."});
  const Items keys = keys_of(rt, items, p.get(1), p.flag(0, false));
  std::size_t best = 0;
  for (std::size_t i = 1; i < items.size(); ++i) {
    const int c = order(rt, keys[i], keys[best], greatest ? ">" : "<");
    if (greatest ? c > 0 : c < 0) best = i;
  }
  return items[best];
}

Value sum(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "sum", args, {"attribute", "start"});
  Value total = p.get(1, Value::integer(0));
  for (const Value& item : iterate(rt, v))
    total = binary(rt, BinaryOp::add, total, p.has(0) && !p.get(0).is_none() ? get_path(rt, item, p.get(0)) : item);
  return total;
}

Value batch(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "batch", args, {"linecount", "fill_with"}, 1);
  const Int size = p.integer(0, 1);
  if (size <= 0) rt.fail("batch: the number of items must be positive, not " + to_str(size));
  Items out, row;
  for (Value& item : iterate(rt, v)) {
    if (static_cast<Int>(row.size()) == size) out.push_back(rt.list(std::exchange(row, {})));
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    if (p.has(1) && !p.get(1).is_none()) {
      rt.require(static_cast<std::size_t>(std::min<Int>(size, Int{1} << 40)) * sizeof(Value));
      row.resize(static_cast<std::size_t>(size), p.get(1));
    }
    out.push_back(rt.list(std::move(row)));
  }
  return rt.generator(std::move(out));
}

Value slice(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "slice", args, {"slices", "fill_with"}, 1);
  const Int slices = p.integer(0, 1);
  if (slices <= 0) rt.fail("slice: the number of slices must be positive, not " + to_str(slices));
  rt.require(static_cast<std::size_t>(std::min<Int>(slices, Int{1} << 40)) * sizeof(Sequence));
  const Items items = iterate(rt, v);
  const auto n = static_cast<std::size_t>(slices);
  const std::size_t each = items.size() / n, longer = items.size() % n;
  Items out;
  std::size_t at = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t count = each + (i < longer ? 1 : 0);
    Items part(items.begin() + static_cast<std::ptrdiff_t>(at),
               items.begin() + static_cast<std::ptrdiff_t>(at + count));
    at += count;
    if (p.has(1) && !p.get(1).is_none() && i >= longer) part.push_back(p.get(1));
    out.push_back(rt.list(std::move(part)));
  }
  return rt.generator(std::move(out));
}
}  // namespace

const FilterTable& sequence_filters() {
  static const FilterTable table = {
      {"first", first},          {"last", last},           {"random", random},
      {"length", length_filter}, {"count", length_filter}, {"join", join},
      {"list", list_filter},     {"reverse", reverse},     {"sort", sort},
      {"dictsort", dictsort},    {"items", items_filter},  {"unique", unique},
      {"min", extreme<false>},   {"max", extreme<true>},   {"sum", sum},
      {"batch", batch},          {"slice", slice},
  };
  return table;
}

}  // namespace common::jinja
