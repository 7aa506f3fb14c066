#include <algorithm>

#include "common/chat/jinja/attributes.h"
#include "common/chat/jinja/interpreter.h"
#include "common/chat/jinja/operators.h"
#include "common/chat/jinja/repr.h"

namespace common::jinja {

Value Interpreter::eval(const Expr& e, Scope* scope) {
  rt_.step();
  rt_.check_stack();
  switch (e.kind) {
    case ExprKind::constant:
      return e.value;
    case ExprKind::name:
      return look_up(e.symbol, scope);
    case ExprKind::list:
      return rt_.list(eval_all(e.kids, scope));
    case ExprKind::tuple:
      return rt_.tuple(eval_all(e.kids, scope));
    case ExprKind::dict:
      return eval_dict(e, scope);
    case ExprKind::attribute: {
      const Value subject = eval(*e.kids[0], scope);
      rt_.set_pos(e.pos);
      return get_attribute(rt_, subject, e.text);
    }
    case ExprKind::item:
      return eval_item(e, scope);
    case ExprKind::slice:
      return eval_slice(e, scope);
    case ExprKind::call:
      return eval_call(e, scope);
    case ExprKind::filter:
      return eval_filter(e, scope);
    case ExprKind::test:
      return eval_test(e, scope);
    case ExprKind::negate:
    case ExprKind::positive:
      return eval_sign(e, scope);
    case ExprKind::logical_not:
      return !eval(*e.kids[0], scope).truthy();
    case ExprKind::logical_and: {
      Value left = eval(*e.kids[0], scope);
      return left.truthy() ? eval(*e.kids[1], scope) : left;
    }
    case ExprKind::logical_or: {
      Value left = eval(*e.kids[0], scope);
      return left.truthy() ? left : eval(*e.kids[1], scope);
    }
    case ExprKind::binary: {
      const Value left = eval(*e.kids[0], scope);
      const Value right = eval(*e.kids[1], scope);
      rt_.set_pos(e.pos);
      return binary(rt_, e.op, left, right);
    }
    case ExprKind::concat:
      return eval_concat(e, scope);
    case ExprKind::compare:
      return eval_compare(e, scope);
    case ExprKind::conditional:
      return eval_conditional(e, scope);
  }
  return {};
}

Value Interpreter::eval_item(const Expr& e, Scope* scope) {
  const Value subject = eval(*e.kids[0], scope);
  const Value key = eval(*e.kids[1], scope);
  rt_.set_pos(e.pos);
  return get_item(rt_, subject, key);
}

Value Interpreter::eval_sign(const Expr& e, Scope* scope) {
  const Value v = eval(*e.kids[0], scope);
  rt_.set_pos(e.pos);
  return e.kind == ExprKind::negate ? negate(rt_, v) : positive(rt_, v);
}

std::vector<Value> Interpreter::eval_all(const std::vector<ExprPtr>& list, Scope* scope) {
  std::vector<Value> out;
  out.reserve(list.size());
  for (const ExprPtr& e : list) out.push_back(eval(*e, scope));
  return out;
}

Value Interpreter::eval_dict(const Expr& e, Scope* scope) {
  Dict* d = rt_.dict();
  for (std::size_t i = 0; i + 1 < e.kids.size(); i += 2) {
    const Value key = eval(*e.kids[i], scope);
    Value value = eval(*e.kids[i + 1], scope);
    rt_.set_pos(e.kids[i]->pos);
    d->set(rt_, key, std::move(value));
  }
  return d;
}

Value Interpreter::eval_slice(const Expr& e, Scope* scope) {
  const Value subject = eval(*e.kids[0], scope);
  Slice slice;
  if (e.kids[1]) slice.start = eval(*e.kids[1], scope);
  if (e.kids[2]) slice.stop = eval(*e.kids[2], scope);
  if (e.kids[3]) slice.step = eval(*e.kids[3], scope);
  rt_.set_pos(e.pos);
  return get_slice(rt_, subject, slice);
}

Value Interpreter::eval_conditional(const Expr& e, Scope* scope) {
  if (eval(*e.kids[1], scope).truthy()) return eval(*e.kids[0], scope);
  if (e.kids[2]) return eval(*e.kids[2], scope);
  return Value::undefined({{},
                           {},
                           "the inline if-expression on line " + std::to_string(e.pos.line) +
                               " evaluated to false and no else section was defined."});
}

Value Interpreter::eval_concat(const Expr& e, Scope* scope) {
  std::string out;
  for (const ExprPtr& kid : e.kids) {
    append_str(rt_, out, eval(*kid, scope));
    rt_.require(out.size());
  }
  rt_.set_pos(e.pos);
  return rt_.text(std::move(out));
}

bool Interpreter::eval_compare(const Expr& e, Scope* scope) {
  Value left = eval(*e.kids[0], scope);
  for (std::size_t i = 0; i < e.compare_ops.size(); ++i) {
    Value right = eval(*e.kids[i + 1], scope);
    rt_.set_pos(e.pos);
    if (!compare(rt_, e.compare_ops[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Args Interpreter::eval_args(const CallArgs* args, Scope* scope) {
  Args out;
  if (!args) return out;
  out.positional = eval_all(args->positional, scope);
  for (const auto& [name, e] : args->named) out.named.emplace_back(name, eval(*e, scope));
  if (args->star) {
    const Value list = eval(*args->star, scope);
    rt_.set_pos(args->star->pos);
    for (Value& v : iterate(rt_, list)) out.positional.push_back(std::move(v));
  }
  if (args->star_star) {
    const Value mapping = eval(*args->star_star, scope);
    rt_.set_pos(args->star_star->pos);
    const Dict* d = mapping.as_dict();
    if (!d) rt_.fail("argument after ** must be a mapping, not " + std::string(mapping.type_name()));
    for (const auto& [key, value] : d->entries()) {
      const std::string* name = key.as_text();
      if (!name) rt_.fail("keywords must be strings");
      out.named.emplace_back(*name, value);
    }
  }
  for (std::size_t i = 1; i < out.named.size(); ++i)
    for (std::size_t k = 0; k < i; ++k) {
      rt_.step();
      if (out.named[i].first == out.named[k].first)
        rt_.fail("got multiple values for keyword argument '" + out.named[i].first + "'");
    }
  return out;
}

Value Interpreter::eval_call(const Expr& e, Scope* scope, const Value* caller) {
  const Expr& callee = *e.kids[0];
  Value function;
  // Methods of text, lists and dicts run without a bound-method object in between.
  if (callee.kind == ExprKind::attribute) {
    const Value self = eval(*callee.kids[0], scope);
    if (const Method method = find_method(self, callee.text)) {
      Args args = eval_args(e.args.get(), scope);
      rt_.set_pos(callee.pos);
      return method(rt_, self, args);
    }
    rt_.set_pos(callee.pos);
    function = get_attribute(rt_, self, callee.text);
  } else {
    function = eval(callee, scope);
  }
  Args args = eval_args(e.args.get(), scope);
  if (caller) args.named.emplace_back("caller", *caller);
  rt_.set_pos(callee.pos);
  if (function.is_undefined()) rt_.fail(function.undefined_message());
  Object* o = function.as_object();
  if (!o) rt_.fail("'" + std::string(function.type_name()) + "' object is not callable");
  return o->call(rt_, args);
}

Value Interpreter::eval_filter(const Expr& e, Scope* scope, const Value* block) {
  Value subject;
  if (e.kids.empty()) {
    subject = *block;
  } else if (block && e.kids[0]->kind == ExprKind::filter) {
    subject = eval_filter(*e.kids[0], scope, block);
  } else {
    subject = eval(*e.kids[0], scope);
  }
  Args args = eval_args(e.args.get(), scope);
  rt_.set_pos(e.pos);
  if (!e.filter) rt_.fail("No filter named '" + e.text + "'.");
  return apply_filter(e.filter, rt_, subject, args);
}

bool Interpreter::eval_test(const Expr& e, Scope* scope) {
  const Value subject = eval(*e.kids[0], scope);
  Args args = eval_args(e.args.get(), scope);
  rt_.set_pos(e.pos);
  if (!e.test) rt_.fail("No test named '" + e.text + "'.");
  return e.test(rt_, subject, args);
}

}  // namespace common::jinja
