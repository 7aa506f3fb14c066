#include "common/chat/jinja/value.h"

#include <cmath>

#include "common/chat/jinja/operators.h"
#include "common/chat/jinja/runtime.h"

namespace common::jinja {

namespace {
// Below this many entries a scan is faster than a hash table.
constexpr std::size_t kIndexFrom = 12;

constexpr std::size_t kUnhashable = static_cast<std::size_t>(-1);

std::size_t hash_int(Int i) {
  return std::hash<std::uint64_t>{}(static_cast<std::uint64_t>(i) ^ static_cast<std::uint64_t>(i >> 64));
}

// Numbers that are equal hash alike whatever their type. kUnhashable for lists, dicts and undefined values.
std::size_t hash_value(Runtime& rt, const Value& v) {
  rt.step();
  Int i = 0;
  if (v.to_int(i)) return hash_int(i);
  if (const double* d = v.as_float()) {
    if (std::nearbyint(*d) == *d && std::fabs(*d) < 1e18) return hash_int(static_cast<Int>(*d));
    return std::hash<double>{}(*d);
  }
  if (const std::string* s = v.as_text()) {
    rt.work(s->size());
    return std::hash<std::string_view>{}(*s);
  }
  if (v.is_none()) return 0x9e3779b9;
  if (Object* o = v.as_object()) return std::hash<Object*>{}(o);
  const Sequence* seq = v.as_sequence();
  if (!seq || seq->kind != SequenceKind::tuple) return kUnhashable;
  rt.check_stack();
  std::size_t h = 0x345678;
  for (const Value& item : seq->items) {
    const std::size_t one = hash_value(rt, item);
    if (one == kUnhashable) return kUnhashable;
    h = (h ^ one) * 1000003;
  }
  return h == kUnhashable ? 1 : h;
}
}  // namespace

StrData::StrData(std::string t, Runtime* owner) : text(std::move(t)), owner_(owner) {
  if (owner_) owner_->charge(text.capacity() + sizeof(StrData));
}

StrData::~StrData() {
  if (owner_) owner_->release(text.capacity() + sizeof(StrData));
}

std::string UndefinedInfo::text() const {
  if (!message.empty()) return message;
  if (owner.empty()) return "'" + name + "' is undefined";
  return "'" + owner + "' has no attribute '" + name + "'";
}

std::ptrdiff_t Dict::position(Runtime& rt, const Value& key) const {
  const std::size_t h = hash_value(rt, key);
  if (h == kUnhashable) return -1;
  if (index_.empty()) {
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (equal(rt, entries_[i].first, key)) return static_cast<std::ptrdiff_t>(i);
    return -1;
  }
  const auto [first, last] = index_.equal_range(h);
  for (auto it = first; it != last; ++it)
    if (equal(rt, entries_[it->second].first, key)) return static_cast<std::ptrdiff_t>(it->second);
  return -1;
}

const Value* Dict::find(Runtime& rt, const Value& key) const {
  const std::ptrdiff_t at = position(rt, key);
  return at < 0 ? nullptr : &entries_[static_cast<std::size_t>(at)].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto matches = [&](std::size_t i) {
    const std::string* s = entries_[i].first.as_text();
    return s && *s == key;
  };
  if (index_.empty()) {
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (matches(i)) return &entries_[i].second;
    return nullptr;
  }
  const auto [first, last] = index_.equal_range(std::hash<std::string_view>{}(key));
  for (auto it = first; it != last; ++it)
    if (matches(it->second)) return &entries_[it->second].second;
  return nullptr;
}

void Dict::index_from(std::size_t first, Runtime& rt) {
  for (std::size_t i = first; i < entries_.size(); ++i) index_.emplace(hash_value(rt, entries_[i].first), i);
}

void Dict::set(Runtime& rt, const Value& key, Value value) {
  if (hash_value(rt, key) == kUnhashable) rt.fail("unhashable type: '" + std::string(key.type_name()) + "'");
  const std::ptrdiff_t at = position(rt, key);
  if (at >= 0) {
    entries_[static_cast<std::size_t>(at)].second = std::move(value);
    return;
  }
  rt.charge(sizeof(Entry));
  entries_.emplace_back(key, std::move(value));
  if (!index_.empty()) {
    index_from(entries_.size() - 1, rt);
  } else if (entries_.size() >= kIndexFrom) {
    index_from(0, rt);
  }
}

bool Dict::erase(Runtime& rt, const Value& key) {
  const std::ptrdiff_t at = position(rt, key);
  if (at < 0) return false;
  rt.work(entries_.size() * sizeof(Entry));
  entries_.erase(entries_.begin() + at);
  if (!index_.empty()) {
    index_.clear();
    if (entries_.size() >= kIndexFrom) index_from(0, rt);
  }
  return true;
}

void Dict::clear() {
  entries_.clear();
  index_.clear();
}

std::string Object::repr() const {
  return "<" + std::string(type_name()) + " object>";
}

Value Object::call(Runtime& rt, Args&) {
  rt.fail("'" + std::string(type_name()) + "' object is not callable");
}

Value Object::attribute(Runtime&, std::string_view name) {
  return Value::undefined({std::string(type_name()) + " object", std::string(name), {}});
}

// By value because objects that take the value keep it. NOLINTNEXTLINE(performance-unnecessary-value-param)
bool Object::assign(Runtime&, std::string_view, Value) {
  return false;
}

bool Value::to_int(Int& out) const {
  if (const Int* i = as_int()) {
    out = *i;
    return true;
  }
  if (const bool* b = as_bool()) {
    out = *b ? 1 : 0;
    return true;
  }
  return false;
}

std::string Value::undefined_message() const {
  const UndefinedPtr& p = std::get<UndefinedPtr>(v_);
  return p ? p->text() : "the value is undefined";
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (const bool* b = as_bool()) return *b;
  if (const Int* i = as_int()) return *i != 0;
  if (const double* d = as_float()) return *d != 0;
  if (const std::string* s = as_text()) return !s->empty();
  // A generator does not know its length, so Python takes it for true.
  if (const Sequence* s = as_sequence()) return s->kind == SequenceKind::generator || !s->items.empty();
  if (const Dict* d = as_dict()) return !d->entries().empty();
  return true;
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (as_bool()) return "bool";
  if (as_int()) return "int";
  if (as_float()) return "float";
  if (as_text()) return "str";
  if (as_dict()) return "dict";
  if (const Object* o = as_object()) return o->type_name();
  const Sequence* s = as_sequence();
  switch (s->kind) {
    case SequenceKind::list:
      return "list";
    case SequenceKind::tuple:
      return "tuple";
    case SequenceKind::range:
      return "range";
    case SequenceKind::view:
      return s->label;
    case SequenceKind::generator:
      break;
  }
  return "generator";
}

std::string Value::described() const {
  if (is_none()) return "None";
  return std::string(type_name()) + " object";
}

}  // namespace common::jinja
