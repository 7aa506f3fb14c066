#include "common/chat/jinja/interpreter.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/chat/jinja/attributes.h"
#include "common/chat/jinja/globals.h"
#include "common/chat/jinja/json.h"
#include "common/chat/jinja/repr.h"

namespace common::jinja {

namespace {
Symbol find_symbol(const ParsedTemplate& parsed, std::string_view name) {
  const auto it = std::find(parsed.names.begin(), parsed.names.end(), name);
  return it == parsed.names.end() ? Symbol{-1} : static_cast<Symbol>(it - parsed.names.begin());
}
}  // namespace

Interpreter::Interpreter(const ParsedTemplate& parsed, const nlohmann::ordered_json& context, Runtime& rt)
    : parsed_(parsed),
      rt_(rt),
      globals_(parsed.names.size()),
      loop_symbol_(find_symbol(parsed, "loop")),
      varargs_symbol_(find_symbol(parsed, "varargs")),
      kwargs_symbol_(find_symbol(parsed, "kwargs")),
      caller_symbol_(find_symbol(parsed, "caller")) {
  if (!context.is_object()) return;
  for (std::size_t i = 0; i < parsed.names.size(); ++i) {
    const auto it = context.find(parsed.names[i]);
    if (it != context.end()) globals_[i] = {Slot::set, from_json(rt, *it)};
  }
}

std::string Interpreter::run() {
  std::string out;
  out_ = &out;
  run_body(parsed_.body, nullptr);
  return out;
}

Scope* Interpreter::take_scope(Scope* parent) {
  if (free_scopes_.empty()) {
    rt_.charge(sizeof(Scope));
    scopes_.push_back(std::make_unique<Scope>());
    free_scopes_.push_back(scopes_.back().get());
  }
  Scope* scope = free_scopes_.back();
  free_scopes_.pop_back();
  scope->parent = parent;
  return scope;
}

void Interpreter::give_back(Scope* scope) {
  if (scope->kept) return;
  scope->vars.clear();
  free_scopes_.push_back(scope);
}

void Interpreter::keep(Scope* scope) {
  for (; scope && !scope->kept; scope = scope->parent) scope->kept = true;
}

Value Interpreter::look_up(Symbol symbol, Scope* scope) {
  for (; scope; scope = scope->parent) {
    for (const auto& [name, value] : scope->vars)
      if (name == symbol) return value;
  }
  auto& [slot, value] = globals_[static_cast<std::size_t>(symbol)];
  if (slot == Slot::unknown) {
    value = find_global(rt_, parsed_.names[static_cast<std::size_t>(symbol)]);
    slot = Slot::set;
  }
  return value.is_undefined() && rt_.lax() ? look_up_in_callers(symbol, value) : value;
}

Value Interpreter::look_up_in_callers(Symbol symbol, const Value& otherwise) const {
  for (auto caller = callers_.rbegin(); caller != callers_.rend(); ++caller) {
    for (const Scope* scope = *caller; scope; scope = scope->parent) {
      for (const auto& [name, value] : scope->vars)
        if (name == symbol) return value;
    }
  }
  return otherwise;
}

void Interpreter::store(Symbol symbol, Value value, Scope* scope) {
  if (!scope) {
    globals_[static_cast<std::size_t>(symbol)] = {Slot::set, std::move(value)};
    return;
  }
  for (auto& [name, old] : scope->vars) {
    if (name == symbol) {
      old = std::move(value);
      return;
    }
  }
  scope->vars.emplace_back(symbol, std::move(value));
}

void Interpreter::assign(const Target& target, const Value& value, Scope* scope) {
  if (!target.parts.empty()) {
    rt_.set_pos(target.pos);
    const std::vector<Value> items = iterate(rt_, value);
    const std::size_t wanted = target.parts.size();
    if (items.size() < wanted)
      rt_.fail("not enough values to unpack (expected " + std::to_string(wanted) + ", got " +
               std::to_string(items.size()) + ")");
    if (items.size() > wanted) rt_.fail("too many values to unpack (expected " + std::to_string(wanted) + ")");
    for (std::size_t i = 0; i < wanted; ++i) assign(target.parts[i], items[i], scope);
    return;
  }
  if (target.attribute.empty()) {
    store(target.symbol, value, scope);
    return;
  }
  rt_.set_pos(target.pos);
  const Value object = look_up(target.symbol, scope);
  if (Dict* dict = object.as_dict(); dict && rt_.lax()) {
    dict->set(rt_, rt_.text(target.attribute), value);
    return;
  }
  Object* o = object.as_object();
  if (!o || !o->assign(rt_, target.attribute, value)) rt_.fail("cannot assign attribute on non-namespace object");
}

void Interpreter::check_output() const {
  if (out_->size() > rt_.limits().output_bytes)
    rt_.fail_limit("the output is longer than " + std::to_string(rt_.limits().output_bytes) + " bytes");
}

void Interpreter::write(std::string_view text) {
  rt_.work(text.size());
  out_->append(text);
  check_output();
}

void Interpreter::write(const Value& v) {
  append_str(rt_, *out_, v);
  check_output();
}

Interpreter::Flow Interpreter::run_body(const Body& body, Scope* scope) {
  for (const StmtPtr& s : body) {
    const Flow flow = run(*s, scope);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::run(const Stmt& s, Scope* scope) {
  rt_.set_pos(s.pos);
  rt_.step();
  rt_.check_stack();
  here_ = scope;
  switch (s.kind) {
    case StmtKind::text:
      write(s.text);
      break;
    case StmtKind::output:
      write(eval(*s.expr, scope));
      break;
    case StmtKind::branches:
      return run_branches(s, scope);
    case StmtKind::loop: {
      const Value iterable = eval(*s.expr, scope);
      rt_.set_pos(s.expr->pos);
      return run_loop(s, scope, iterable, 1);
    }
    case StmtKind::set:
      assign(s.targets[0], eval(*s.expr, scope), scope);
      break;
    case StmtKind::set_block:
      run_set_block(s, scope);
      break;
    case StmtKind::with:
      return run_with(s, scope);
    case StmtKind::macro:
      keep(scope);
      store(s.targets[0].symbol, rt_.object<Macro>(*this, *s.macro, scope), scope);
      break;
    case StmtKind::call:
      run_call_block(s, scope);
      break;
    case StmtKind::filter:
      return run_filter_block(s, scope);
    case StmtKind::block:
      return run_scoped(s.bodies[0], nullptr);
    case StmtKind::scope:
      if (s.condition) (void)eval(*s.condition, scope);
      return run_scoped(s.bodies[0], scope);
    case StmtKind::loop_break:
      return Flow::break_loop;
    case StmtKind::loop_continue:
      return Flow::continue_loop;
    case StmtKind::unsupported:
      rt_.fail("'" + s.text + "' is not supported: a chat template is one file");
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_branches(const Stmt& s, Scope* scope) {
  for (std::size_t i = 0; i < s.bodies.size(); ++i)
    if (!s.conditions[i] || eval(*s.conditions[i], scope).truthy()) return run_body(s.bodies[i], scope);
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_scoped(const Body& body, Scope* scope) {
  ScopeGuard inner(*this, scope);
  return run_body(body, inner.get());
}

void Interpreter::run_set_block(const Stmt& s, Scope* scope) {
  Value text = capture([&] { (void)run_scoped(s.bodies[0], scope); });
  if (s.expr) text = eval_filter(*s.expr, scope, &text);
  assign(s.targets[0], text, scope);
}

Interpreter::Flow Interpreter::run_with(const Stmt& s, Scope* scope) {
  const std::vector<Value> values = eval_all(s.conditions, scope);
  ScopeGuard inner(*this, scope);
  for (std::size_t i = 0; i < values.size(); ++i) assign(s.targets[i], values[i], inner.get());
  return run_body(s.bodies[0], inner.get());
}

void Interpreter::run_call_block(const Stmt& s, Scope* scope) {
  keep(scope);
  const Value caller = rt_.object<Macro>(*this, *s.macro, scope);
  write(eval_call(*s.expr, scope, &caller));
}

Interpreter::Flow Interpreter::run_filter_block(const Stmt& s, Scope* scope) {
  Flow flow = Flow::normal;
  const Value text = capture([&] { flow = run_scoped(s.bodies[0], scope); });
  write(eval_filter(*s.expr, scope, &text));
  return flow;
}

}  // namespace common::jinja
