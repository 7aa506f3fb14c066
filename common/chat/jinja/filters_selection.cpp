// Filters that map, choose and group the elements of a sequence.
#include <algorithm>

#include "common/chat/jinja/attributes.h"
#include "common/chat/jinja/filters.h"
#include "common/chat/jinja/operators.h"
#include "common/chat/jinja/ordering.h"
#include "common/chat/jinja/params.h"
#include "common/chat/jinja/repr.h"

namespace common::jinja {

namespace {
using Items = std::vector<Value>;

// map, select and their kin take anything that counts as false, none too, for an empty sequence.
Items elements(Runtime& rt, const Value& v) {
  return v.truthy() ? iterate(rt, v) : Items{};
}

Value take_named(Args& args, std::string_view name) {
  const auto it = std::find_if(args.named.begin(), args.named.end(), [&](const auto& n) { return n.first == name; });
  if (it == args.named.end()) return {};
  Value v = std::move(it->second);
  args.named.erase(it);
  return v;
}

// map(attribute='a', default=x) or map('filter', arguments of the filter ...)
Value map(Runtime& rt, const Value& v, Args& args) {
  Items out = elements(rt, v);
  if (args.positional.empty()) {
    const Value attribute = take_named(args, "attribute");
    const Value otherwise = take_named(args, "default");
    if (!args.named.empty()) rt.fail("Unexpected keyword argument '" + args.named[0].first + "'");
    if (attribute.is_undefined()) rt.fail("map requires a filter argument");
    for (Value& item : out) {
      item = get_path(rt, item, attribute);
      if (item.is_undefined() && !otherwise.is_undefined()) item = otherwise;
    }
    return rt.generator(std::move(out));
  }
  const std::string* name = args.positional[0].as_text();
  const Filter filter = name ? find_filter(*name) : nullptr;
  if (!filter) rt.fail("No filter named " + (name ? "'" + *name + "'" : to_str(rt, args.positional[0])) + ".");
  Args rest = args;
  rest.positional.erase(rest.positional.begin());
  rt.check_stack();  // map('map', ...) nests
  for (Value& item : out) {
    Args each = rest;
    item = apply_filter(filter, rt, item, each);
  }
  return rt.generator(std::move(out));
}

template <bool by_attribute, bool keep>
Value choose(Runtime& rt, const Value& v, Args& args) {
  if (by_attribute && args.positional.empty()) rt.fail("Missing parameter for attribute name");
  const std::size_t test_at = by_attribute ? 1 : 0;
  Test test = nullptr;
  if (args.positional.size() > test_at) {
    const std::string* name = args.positional[test_at].as_text();
    test = name ? find_test(*name) : nullptr;
    if (!test) rt.fail("No test named " + (name ? "'" + *name + "'" : to_str(rt, args.positional[test_at])) + ".");
  }
  Args rest = args;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                               test_at + 1, rest.positional.size())));
  Items out;
  for (Value& item : elements(rt, v)) {
    const Value subject = by_attribute ? get_path(rt, item, args.positional[0]) : item;
    Args each = rest;
    if ((test ? test(rt, subject, each) : subject.truthy()) == keep) out.push_back(std::move(item));
  }
  return rt.generator(std::move(out));
}

Value groupby(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = p.flag(2, false);
  Items items = iterate(rt, v), values, keys;
  for (const Value& item : items) {
    Value value = get_path(rt, item, p.get(0));
    if (value.is_undefined() && p.has(1)) value = p.get(1);
    values.push_back(value);
    keys.push_back(case_sensitive ? value : fold_case(rt, value));
  }
  Items order;
  for (std::size_t i = 0; i < items.size(); ++i) order.push_back(Value::integer(static_cast<std::int64_t>(i)));
  sort_values(rt, order, keys, false);
  Items groups, members;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto at = static_cast<std::size_t>(*order[i].as_int());
    members.push_back(items[at]);
    const bool ends =
        i + 1 == order.size() || !equal(rt, keys[at], keys[static_cast<std::size_t>(*order[i + 1].as_int())]);
    if (!ends) continue;
    const auto head = static_cast<std::size_t>(*order[i + 1 - members.size()].as_int());
    groups.push_back(rt.tuple({values[head], rt.list(std::exchange(members, {}))}));
  }
  return rt.list(std::move(groups));
}
}  // namespace

const FilterTable& selection_filters() {
  static const FilterTable table = {
      {"map", map},
      {"select", choose<false, true>},
      {"reject", choose<false, false>},
      {"selectattr", choose<true, true>},
      {"rejectattr", choose<true, false>},
      {"groupby", groupby},
  };
  return table;
}

}  // namespace common::jinja
