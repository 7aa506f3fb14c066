#include "common/chat/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "common/chat/jinja/format.h"
#include "common/chat/jinja/runtime.h"
#include "common/chat/jinja/text.h"

namespace common::jinja {

namespace {
constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void unsupported(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  rt.fail(std::string("unsupported operand type(s) for ") + kSymbols[static_cast<int>(op)] + ": '" +
          std::string(a.type_name()) + "' and '" + std::string(b.type_name()) + "'");
}

[[noreturn]] void overflow(Runtime& rt) {
  rt.fail("integer result does not fit 128 bits");
}

double to_double(const Value& v) {
  if (const double* d = v.as_float()) return *d;
  Int i = 0;
  (void)v.to_int(i);
  return static_cast<double>(i);
}

Int floor_div(Int a, Int b) {
  Int q = a / b;
  if (a % b != 0 && (a < 0) != (b < 0)) --q;
  return q;
}

// Not a - floor_div(a, b) * b: the product need not fit where a is next to the least number.
Int floor_mod(Int a, Int b) {
  const Int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value int_power(Runtime& rt, Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) rt.fail("0.0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  if (base == 0 || base == 1 || base == -1) {
    if (exponent == 0) return Value::integer(1);
    return base == -1 && exponent % 2 == 0 ? Value::integer(1) : Value(base);
  }
  Int result = 1;
  for (; exponent > 0; --exponent)  // the 127th round overflows at the latest
    if (__builtin_mul_overflow(result, base, &result)) overflow(rt);
  return result;
}

Value int_binary(Runtime& rt, BinaryOp op, Int a, Int b) {
  Int r = 0;
  switch (op) {
    case BinaryOp::add:
      if (__builtin_add_overflow(a, b, &r)) overflow(rt);
      return r;
    case BinaryOp::subtract:
      if (__builtin_sub_overflow(a, b, &r)) overflow(rt);
      return r;
    case BinaryOp::multiply:
      if (__builtin_mul_overflow(a, b, &r)) overflow(rt);
      return r;
    case BinaryOp::divide:
      if (b == 0) rt.fail("division by zero");
      return static_cast<double>(a) / static_cast<double>(b);
    case BinaryOp::floor_divide:
    case BinaryOp::modulo:
      if (b == 0) rt.fail("integer division or modulo by zero");
      if (b == -1) {  // the one quotient that overflows
        if (op == BinaryOp::modulo) return Value::integer(0);
        if (__builtin_sub_overflow(Int{0}, a, &r)) overflow(rt);
        return r;
      }
      return op == BinaryOp::modulo ? floor_mod(a, b) : floor_div(a, b);
    case BinaryOp::power:
      return int_power(rt, a, b);
  }
  return r;
}

Value float_binary(Runtime& rt, BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::add:
      return a + b;
    case BinaryOp::subtract:
      return a - b;
    case BinaryOp::multiply:
      return a * b;
    case BinaryOp::divide:
      if (b == 0) rt.fail("float division by zero");
      return a / b;
    case BinaryOp::floor_divide:
      if (b == 0) rt.fail("float floor division by zero");
      return std::floor(a / b);
    case BinaryOp::modulo: {
      if (b == 0) rt.fail("float modulo by zero");
      double m = std::fmod(a, b);
      if (m != 0 && (m < 0) != (b < 0)) m += b;
      return m;
    }
    case BinaryOp::power: {
      if (a == 0 && b < 0) rt.fail("0.0 cannot be raised to a negative power");
      const double r = std::pow(a, b);
      if (std::isnan(r) && !std::isnan(a) && !std::isnan(b)) rt.fail("power has no real result");
      return r;
    }
  }
  return 0.0;
}

bool is_list_like(const Value& v) {
  const Sequence* s = v.as_sequence();
  return s && (s->kind == SequenceKind::list || s->kind == SequenceKind::tuple);
}

void require_product(Runtime& rt, std::size_t count, std::size_t bytes) {
  std::size_t total = 0;
  rt.require(__builtin_mul_overflow(count, bytes, &total) ? static_cast<std::size_t>(-1) : total);
}

Value repeat(Runtime& rt, const Value& what, Int times) {
  const Int n = std::max<Int>(times, 0);
  constexpr Int kFar = Int{1} << 40;  // beyond any memory limit
  if (const std::string* s = what.as_text()) {
    const auto count = s->empty() ? std::size_t{0} : static_cast<std::size_t>(std::min(n, kFar));
    require_product(rt, count, s->size());
    const std::size_t size = s->size() * count;
    std::string out;
    out.reserve(size);
    if (count > 0) out = *s;
    while (out.size() < size) out.append(out, 0, size - out.size());  // all of it once more, as far as there is room
    return rt.text(std::move(out));
  }
  const Sequence* seq = what.as_sequence();
  const auto count = seq->items.empty() ? std::size_t{0} : static_cast<std::size_t>(std::min(n, kFar));
  require_product(rt, count, seq->items.size() * sizeof(Value));
  std::vector<Value> items;
  items.reserve(seq->items.size() * count);
  for (std::size_t i = 0; i < count; ++i) {
    rt.work(seq->items.size() * sizeof(Value));
    items.insert(items.end(), seq->items.begin(), seq->items.end());
  }
  return rt.sequence(seq->kind, std::move(items));
}

Value add_containers(Runtime& rt, const Value& a, const Value& b) {
  const std::string* s = a.as_text();
  if (s) {
    const std::string* t = b.as_text();
    if (!t) rt.fail("can only concatenate str (not \"" + std::string(b.type_name()) + "\") to str");
    rt.require(s->size() + t->size());
    std::string out;
    out.reserve(s->size() + t->size());
    out += *s;
    out += *t;
    return rt.text(std::move(out));
  }
  const Sequence* x = a.as_sequence();
  const Sequence* y = b.as_sequence();
  if (!is_list_like(a)) unsupported(rt, BinaryOp::add, a, b);
  const std::string kind(a.type_name());
  if (!y || y->kind != x->kind)
    rt.fail("can only concatenate " + kind + " (not \"" + std::string(b.type_name()) + "\") to " + kind);
  std::vector<Value> items;
  items.reserve(x->items.size() + y->items.size());
  items = x->items;
  items.insert(items.end(), y->items.begin(), y->items.end());
  return rt.sequence(x->kind, std::move(items));
}

template <class T>
int three_way(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

bool equal_sequences(Runtime& rt, const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  if (a.kind == SequenceKind::generator || a.kind != b.kind || a.items.size() != b.items.size()) return false;
  rt.check_stack();
  for (std::size_t i = 0; i < a.items.size(); ++i)
    if (!equal(rt, a.items[i], b.items[i])) return false;
  return true;
}

bool equal_dicts(Runtime& rt, const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.entries().size() != b.entries().size()) return false;
  rt.check_stack();
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(rt, key);
    if (!other || !equal(rt, value, *other)) return false;
  }
  return true;
}
}  // namespace

Value binary(Runtime& rt, BinaryOp op, const Value& left, const Value& right) {
  if (left.is_undefined()) rt.fail(left.undefined_message());
  if (right.is_undefined() && !(op == BinaryOp::modulo && left.as_text())) rt.fail(right.undefined_message());
  Int a = 0, b = 0;
  const bool left_int = left.to_int(a), right_int = right.to_int(b);
  if (left_int && right_int) return int_binary(rt, op, a, b);
  if (left.is_number() && right.is_number()) return float_binary(rt, op, to_double(left), to_double(right));
  switch (op) {
    case BinaryOp::add:
      return add_containers(rt, left, right);
    case BinaryOp::multiply:
      if (right_int && (left.as_text() || is_list_like(left))) return repeat(rt, left, b);
      if (left_int && (right.as_text() || is_list_like(right))) return repeat(rt, right, a);
      break;
    case BinaryOp::modulo:
      if (const std::string* format = left.as_text()) {
        const Sequence* seq = right.as_sequence();
        const bool is_tuple = seq && seq->kind == SequenceKind::tuple;
        return percent_format(rt, *format, is_tuple ? seq->items : std::vector<Value>{right}, right);
      }
      break;
    default:
      break;
  }
  unsupported(rt, op, left, right);
}

Value negate(Runtime& rt, const Value& v) {
  if (v.is_undefined()) rt.fail(v.undefined_message());
  Int i = 0;
  if (v.to_int(i)) {
    Int r = 0;
    if (__builtin_sub_overflow(Int{0}, i, &r)) overflow(rt);
    return r;
  }
  if (const double* d = v.as_float()) return -*d;
  rt.fail("bad operand type for unary -: '" + std::string(v.type_name()) + "'");
}

Value positive(Runtime& rt, const Value& v) {
  if (v.is_undefined()) rt.fail(v.undefined_message());
  Int i = 0;
  if (v.to_int(i)) return i;
  if (v.as_float()) return v;
  rt.fail("bad operand type for unary +: '" + std::string(v.type_name()) + "'");
}

bool equal(Runtime& rt, const Value& left, const Value& right) {
  rt.step();
  Int a = 0, b = 0;
  if (left.to_int(a) && right.to_int(b)) return a == b;
  if (left.is_number() && right.is_number()) return to_double(left) == to_double(right);
  if (const std::string* s = left.as_text()) {
    const std::string* t = right.as_text();
    if (t && s->size() == t->size()) rt.work(s->size());
    return t && *s == *t;
  }
  if (left.is_undefined() || right.is_undefined()) return left.is_undefined() && right.is_undefined();
  if (left.is_none() || right.is_none()) return left.is_none() && right.is_none();
  if (const Sequence* s = left.as_sequence()) {
    const Sequence* t = right.as_sequence();
    return t && equal_sequences(rt, *s, *t);
  }
  if (const Dict* d = left.as_dict()) {
    const Dict* e = right.as_dict();
    return e && equal_dicts(rt, *d, *e);
  }
  return left.as_object() && left.as_object() == right.as_object();
}

int order(Runtime& rt, const Value& left, const Value& right, const char* symbol) {
  rt.step();
  Int a = 0, b = 0;
  if (left.to_int(a) && right.to_int(b)) return three_way(a, b);
  if (left.is_number() && right.is_number()) return three_way(to_double(left), to_double(right));
  if (left.as_text() && right.as_text()) {
    rt.work(std::min(left.as_text()->size(), right.as_text()->size()));
    return three_way(left.as_text()->compare(*right.as_text()), 0);  // UTF-8 sorts as its code points do
  }
  if (left.is_undefined()) rt.fail(left.undefined_message());
  if (right.is_undefined()) rt.fail(right.undefined_message());
  const Sequence* s = left.as_sequence();
  const Sequence* t = right.as_sequence();
  if (is_list_like(left) && is_list_like(right) && s->kind == t->kind) {
    rt.check_stack();
    for (std::size_t i = 0; i < std::min(s->items.size(), t->items.size()); ++i)
      if (!equal(rt, s->items[i], t->items[i])) return order(rt, s->items[i], t->items[i], symbol);
    return three_way(s->items.size(), t->items.size());
  }
  rt.fail(std::string("'") + symbol + "' not supported between instances of '" + std::string(left.type_name()) +
          "' and '" + std::string(right.type_name()) + "'");
}

bool compare(Runtime& rt, CompareOp op, const Value& left, const Value& right) {
  // NaN is neither below nor above: order() would call it equal.
  const auto is_nan = [](const Value& v) { return v.as_float() && std::isnan(*v.as_float()); };
  const bool nan = is_nan(left) || is_nan(right);
  switch (op) {
    case CompareOp::equal:
      return equal(rt, left, right);
    case CompareOp::not_equal:
      return !equal(rt, left, right);
    case CompareOp::less:
      return order(rt, left, right, "<") < 0;
    case CompareOp::less_equal:
      return order(rt, left, right, "<=") <= 0 && !nan;
    case CompareOp::greater:
      return order(rt, left, right, ">") > 0;
    case CompareOp::greater_equal:
      return order(rt, left, right, ">=") >= 0 && !nan;
    case CompareOp::in:
      return contains(rt, right, left);
    case CompareOp::not_in:
      return !contains(rt, right, left);
  }
  return false;
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  if (const std::string* s = container.as_text()) {
    const std::string* needle = item.as_text();
    if (!needle) {
      if (item.is_undefined()) rt.fail(item.undefined_message());
      rt.fail("'in <string>' requires string as left operand, not " + std::string(item.type_name()));
    }
    rt.scan(s->size());
    return find_text(*s, *needle) != std::string_view::npos;
  }
  if (const Dict* d = container.as_dict()) return d->find(rt, item) != nullptr;
  if (const Sequence* seq = container.as_sequence()) {
    return std::any_of(seq->items.begin(), seq->items.end(), [&](const Value& v) { return equal(rt, v, item); });
  }
  if (container.is_undefined()) return false;
  rt.fail("argument of type '" + std::string(container.type_name()) + "' is not iterable");
}

}  // namespace common::jinja
