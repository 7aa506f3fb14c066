// Tests: what stands behind `is`.
#include "common/chat/jinja/attributes.h"
#include "common/chat/jinja/filters.h"
#include "common/chat/jinja/operators.h"
#include "common/chat/jinja/params.h"
#include "common/chat/jinja/repr.h"
#include "common/chat/jinja/text.h"

namespace common::jinja {

namespace {
template <bool (*pred)(const Value&)>
bool plain(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "test", args, {});
  return pred(v);
}

bool is_defined(const Value& v) {
  return !v.is_undefined();
}
bool is_undefined(const Value& v) {
  return v.is_undefined();
}
bool is_none(const Value& v) {
  return v.is_none();
}
bool is_boolean(const Value& v) {
  return v.as_bool() != nullptr;
}
bool is_true(const Value& v) {
  return v.as_bool() && *v.as_bool();
}
bool is_false(const Value& v) {
  return v.as_bool() && !*v.as_bool();
}
bool is_integer(const Value& v) {
  return v.as_int() != nullptr;
}
bool is_float(const Value& v) {
  return v.as_float() != nullptr;
}
bool is_number(const Value& v) {
  return v.is_number();
}
bool is_string(const Value& v) {
  return v.as_text() != nullptr;
}
bool is_mapping(const Value& v) {
  return v.as_dict() != nullptr;
}
bool is_callable(const Value& v) {
  return v.as_object() && v.as_object()->callable();
}
bool never(const Value&) {
  return false;
}
bool is_iterable(const Value& v) {
  return v.is_undefined() || v.as_text() || v.as_sequence() || v.as_dict();
}

bool is_sequence(const Value& v) {
  const Sequence* s = v.as_sequence();
  const bool unordered = s && (s->kind == SequenceKind::generator || s->kind == SequenceKind::view);
  return is_iterable(v) && !unordered;
}

template <CompareOp op>
bool compared(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "test", args, {"other"}, 1);
  return compare(rt, op, v, p.get(0));
}

bool is_sameas(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "sameas", args, {"other"}, 1);
  const Value other = p.get(0);
  if (v.as_sequence() || v.as_dict() || v.as_object())
    return v.as_sequence() == other.as_sequence() && v.as_dict() == other.as_dict() &&
           v.as_object() == other.as_object();
  return v.type_name() == other.type_name() && equal(rt, v, other);
}

Value remainder(Runtime& rt, const Value& v, const Value& by) {
  return binary(rt, BinaryOp::modulo, v, by);
}

bool is_divisibleby(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "divisibleby", args, {"num"}, 1);
  return !remainder(rt, v, p.get(0)).truthy();
}

template <bool odd>
bool has_parity(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, odd ? "odd" : "even", args, {});
  return remainder(rt, v, Value::integer(2)).truthy() == odd;
}

template <bool upper>
bool has_case(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, upper ? "upper" : "lower", args, {});
  Args none;
  return find_text_method(upper ? "isupper" : "islower")(rt, rt.text(to_str(rt, v)), none).truthy();
}

bool is_filter(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "filter", args, {});
  return v.as_text() && find_filter(*v.as_text());
}

bool is_test(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "test", args, {});
  return v.as_text() && find_test(*v.as_text());
}

const std::unordered_map<std::string_view, Test>& tests() {
  static const std::unordered_map<std::string_view, Test> table = {
      {"defined", plain<is_defined>},
      {"undefined", plain<is_undefined>},
      {"none", plain<is_none>},
      {"boolean", plain<is_boolean>},
      {"true", plain<is_true>},
      {"false", plain<is_false>},
      {"integer", plain<is_integer>},
      {"float", plain<is_float>},
      {"number", plain<is_number>},
      {"string", plain<is_string>},
      {"mapping", plain<is_mapping>},
      {"sequence", plain<is_sequence>},
      {"iterable", plain<is_iterable>},
      {"callable", plain<is_callable>},
      {"escaped", plain<never>},
      {"filter", is_filter},
      {"test", is_test},
      {"sameas", is_sameas},
      {"divisibleby", is_divisibleby},
      {"odd", has_parity<true>},
      {"even", has_parity<false>},
      {"upper", has_case<true>},
      {"lower", has_case<false>},
      {"in", compared<CompareOp::in>},
      {"eq", compared<CompareOp::equal>},
      {"==", compared<CompareOp::equal>},
      {"equalto", compared<CompareOp::equal>},
      {"ne", compared<CompareOp::not_equal>},
      {"!=", compared<CompareOp::not_equal>},
      {"lt", compared<CompareOp::less>},
      {"<", compared<CompareOp::less>},
      {"lessthan", compared<CompareOp::less>},
      {"le", compared<CompareOp::less_equal>},
      {"<=", compared<CompareOp::less_equal>},
      {"gt", compared<CompareOp::greater>},
      {">", compared<CompareOp::greater>},
      {"greaterthan", compared<CompareOp::greater>},
      {"ge", compared<CompareOp::greater_equal>},
      {">=", compared<CompareOp::greater_equal>},
  };
  return table;
}
}  // namespace

Test find_test(std::string_view name) {
  const auto it = tests().find(name);
  return it == tests().end() ? nullptr : it->second;
}

}  // namespace common::jinja
