// Methods of list and dict. They may modify: templates of real models append to lists.
#include <algorithm>
#include <unordered_map>

#include "common/chat/jinja/attributes.h"
#include "common/chat/jinja/operators.h"
#include "common/chat/jinja/ordering.h"
#include "common/chat/jinja/params.h"
#include "common/chat/jinja/repr.h"

namespace common::jinja {

namespace {
using Items = std::vector<Value>;

Items& items_of(const Value& self) {
  return self.as_sequence()->items;
}

Value append(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "append", args, {"object"}, 1);
  rt.charge(sizeof(Value));
  items_of(self).push_back(p.get(0));
  return None{};
}

Value extend(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "extend", args, {"iterable"}, 1);
  const Items more = iterate(rt, p.get(0));
  rt.charge(more.size() * sizeof(Value));
  items_of(self).insert(items_of(self).end(), more.begin(), more.end());
  return None{};
}

Value insert(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "insert", args, {"index", "object"}, 2);
  Items& items = items_of(self);
  const auto n = static_cast<Int>(items.size());
  const Int at = p.integer(0, 0);
  rt.charge(sizeof(Value));
  rt.work(items.size() * sizeof(Value));
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(std::clamp<Int>(at < 0 ? at + n : at, 0, n)), p.get(1));
  return None{};
}

Value list_pop(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "pop", args, {"index"});
  Items& items = items_of(self);
  const auto n = static_cast<Int>(items.size());
  Int at = p.integer(0, -1);
  if (at < 0) at += n;
  if (n == 0) rt.fail("pop from empty list");
  if (at < 0 || at >= n) rt.fail("pop index out of range");
  rt.work(items.size() * sizeof(Value));
  Value out = items[static_cast<std::size_t>(at)];
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
  return out;
}

Value remove(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "remove", args, {"value"}, 1);
  Items& items = items_of(self);
  const auto it = std::find_if(items.begin(), items.end(), [&](const Value& v) { return equal(rt, v, p.get(0)); });
  if (it == items.end()) rt.fail("list.remove(x): x not in list");
  rt.work(items.size() * sizeof(Value));
  items.erase(it);
  return None{};
}

Value list_clear(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "clear", args, {});
  items_of(self).clear();
  return None{};
}

Value list_copy(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "copy", args, {});
  return rt.list(items_of(self));
}

Value reverse(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "reverse", args, {});
  rt.work(items_of(self).size() * sizeof(Value));
  std::reverse(items_of(self).begin(), items_of(self).end());
  return None{};
}

Value sort(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "sort", args, {"reverse"});
  Items sorted = items_of(self);
  sort_values(rt, sorted, sorted, p.flag(0, false));
  items_of(self) = std::move(sorted);
  return None{};
}

Value list_index(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "index", args, {"value"}, 1);
  const Items& items = items_of(self);
  const auto it = std::find_if(items.begin(), items.end(), [&](const Value& v) { return equal(rt, v, p.get(0)); });
  if (it == items.end()) {
    std::string what;
    append_repr(rt, what, p.get(0));
    rt.fail(what + " is not in list");
  }
  return static_cast<Int>(it - items.begin());
}

Value list_count(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "count", args, {"value"}, 1);
  const Items& items = items_of(self);
  return static_cast<Int>(
      std::count_if(items.begin(), items.end(), [&](const Value& v) { return equal(rt, v, p.get(0)); }));
}

Value get(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "get", args, {"key", "default"}, 1);
  const Value* found = self.as_dict()->find(rt, p.get(0));
  return found ? *found : p.get(1, None{});
}

enum class View { keys, values, items };
template <View view>
Value dict_view(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "dict view", args, {});
  Items out;
  out.reserve(self.as_dict()->entries().size());
  for (const auto& [key, value] : self.as_dict()->entries())
    out.push_back(view == View::keys ? key : view == View::values ? value : rt.tuple({key, value}));
  constexpr const char* kLabels[] = {"dict_keys", "dict_values", "dict_items"};
  return rt.sequence(SequenceKind::view, std::move(out), kLabels[static_cast<int>(view)]);
}

Value dict_pop(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "pop", args, {"key", "default"}, 1);
  if (const Value* found = self.as_dict()->find(rt, p.get(0))) {
    Value out = *found;
    self.as_dict()->erase(rt, p.get(0));
    return out;
  }
  if (p.has(1)) return p.get(1);
  std::string key;
  append_repr(rt, key, p.get(0));
  rt.fail("KeyError: " + key);
}

Value popitem(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "popitem", args, {});
  Dict* d = self.as_dict();
  if (d->entries().empty()) rt.fail("popitem(): dictionary is empty");
  const Dict::Entry last = d->entries().back();
  d->erase(rt, last.first);
  return rt.tuple({last.first, last.second});
}

Value setdefault(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "setdefault", args, {"key", "default"}, 1);
  Dict* d = self.as_dict();
  if (const Value* found = d->find(rt, p.get(0))) return *found;
  Value v = p.get(1, None{});
  d->set(rt, p.get(0), v);
  return v;
}

Value update(Runtime& rt, const Value& self, Args& args) {
  if (args.positional.size() > 1) rt.fail("update expected at most 1 argument");
  update_dict(rt, *self.as_dict(), args);
  return None{};
}

Value dict_clear(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "clear", args, {});
  self.as_dict()->clear();
  return None{};
}

Value dict_copy(Runtime& rt, const Value& self, Args& args) {
  Params p(rt, "copy", args, {});
  Dict* copy = rt.dict();
  for (const auto& [key, value] : self.as_dict()->entries()) copy->set(rt, key, value);
  return copy;
}

Method look_up(const std::unordered_map<std::string_view, Method>& table, std::string_view name) {
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}
}  // namespace

void update_dict(Runtime& rt, Dict& d, const Args& args) {
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (const Dict* other = from.as_dict()) {
      const std::vector<Dict::Entry> entries = other->entries();  // a copy: `other` may be `d`
      for (const auto& [key, value] : entries) d.set(rt, key, value);
    } else {
      for (const Value& pair : iterate(rt, from)) {
        const std::vector<Value> two = iterate(rt, pair);
        if (two.size() != 2)
          rt.fail("dictionary update sequence element has length " + std::to_string(two.size()) + "; 2 is required");
        d.set(rt, two[0], two[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) d.set(rt, rt.text(name), value);
}

Method find_list_method(std::string_view name) {
  static const std::unordered_map<std::string_view, Method> table = {
      {"append", append}, {"extend", extend},    {"insert", insert},    {"pop", list_pop},
      {"remove", remove}, {"clear", list_clear}, {"copy", list_copy},   {"reverse", reverse},
      {"sort", sort},     {"index", list_index}, {"count", list_count},
  };
  return look_up(table, name);
}

Method find_dict_method(std::string_view name) {
  static const std::unordered_map<std::string_view, Method> table = {
      {"get", get},
      {"keys", dict_view<View::keys>},
      {"values", dict_view<View::values>},
      {"items", dict_view<View::items>},
      {"pop", dict_pop},
      {"popitem", popitem},
      {"setdefault", setdefault},
      {"update", update},
      {"clear", dict_clear},
      {"copy", dict_copy},
  };
  return look_up(table, name);
}

}  // namespace common::jinja
