// Loops, macros and the objects that stand for them.
#include <algorithm>

#include "common/chat/jinja/attributes.h"
#include "common/chat/jinja/interpreter.h"
#include "common/chat/jinja/operators.h"
#include "common/chat/jinja/params.h"

namespace common::jinja {

class Interpreter::CallGuard {
 public:
  explicit CallGuard(Interpreter& in) : in_(in) {
    in_.callers_.push_back(in_.here_);
    if (++in_.calls_ > in_.rt_.limits().recursion) {
      leave();
      in_.rt_.fail_limit("macros or recursive loops call each other more than " +
                         std::to_string(in_.rt_.limits().recursion) + " levels deep");
    }
  }
  ~CallGuard() { leave(); }
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

 private:
  void leave() {
    --in_.calls_;
    in_.here_ = in_.callers_.back();
    in_.callers_.pop_back();
  }
  Interpreter& in_;
};

std::vector<Value> Interpreter::loop_items(const Stmt& s, Scope* scope, const Value& iterable) {
  std::vector<Value> items = iterate(rt_, iterable);
  if (!s.condition) return items;
  std::vector<Value> chosen;
  ScopeGuard inner(*this, scope);
  for (Value& item : items) {
    assign(s.targets[0], item, inner.get());
    if (eval(*s.condition, inner.get()).truthy()) chosen.push_back(std::move(item));
  }
  return chosen;
}

Interpreter::Flow Interpreter::run_loop(const Stmt& s, Scope* scope, const Value& iterable, int depth) {
  std::vector<Value> items = loop_items(s, scope, iterable);
  if (items.empty()) return s.bodies.size() > 1 ? run_scoped(s.bodies[1], scope) : Flow::normal;
  if (s.recursive) keep(scope);
  // The items live outside the arena: given back when the loop is over, for the sake of loops in loops.
  struct Charge {
    Runtime& rt;
    std::size_t bytes;
    Charge(Runtime& r, std::size_t n) : rt(r), bytes(n) { rt.charge(n); }
    ~Charge() { rt.release(bytes); }
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;
  } const charge(rt_, items.size() * sizeof(Value));
  LoopObject* loop = rt_.object<LoopObject>(*this, s, scope, depth);
  loop->items = std::move(items);
  struct Clear {
    LoopObject* loop;
    ~Clear() { std::vector<Value>().swap(loop->items); }
  } const clear{loop};
  ScopeGuard inner(*this, scope);
  const std::size_t n = loop->items.size();
  for (std::size_t i = 0; i < n; ++i) {
    rt_.step();
    if (i > 0) inner.renew();
    loop->index = i;
    if (loop_symbol_ >= 0) store(loop_symbol_, loop, inner.get());
    assign(s.targets[0], loop->items[i], inner.get());
    if (run_body(s.bodies[0], inner.get()) == Flow::break_loop) break;
  }
  return Flow::normal;
}

Value Interpreter::call_loop(const Stmt& loop, Scope* closure, const Value& items, int depth) {
  const CallGuard guard(*this);
  rt_.check_stack();
  return capture([&] { (void)run_loop(loop, closure, items, depth); });
}

Value Interpreter::call_macro(const MacroDecl& decl, Scope* closure, Args& args) {
  const CallGuard guard(*this);
  rt_.check_stack();
  ScopeGuard scope(*this, closure);
  const std::size_t n = decl.params.size();
  if (args.positional.size() > n && !decl.uses_varargs)
    rt_.fail("macro '" + decl.name + "' takes not more than " + std::to_string(n) + " argument(s)");
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto it = std::find_if(args.named.begin(), args.named.end(), [&](const auto& a) { return a.first == name; });
    if (it == args.named.end()) return std::nullopt;
    Value v = std::move(it->second);
    args.named.erase(it);
    return v;
  };
  for (std::size_t i = 0; i < n; ++i) {
    const Param& p = decl.params[i];
    if (i < args.positional.size()) {
      scope.get()->vars.emplace_back(p.symbol, args.positional[i]);
    } else if (auto named = take_named(p.name)) {
      scope.get()->vars.emplace_back(p.symbol, std::move(*named));
    } else if (p.otherwise) {
      Value v = eval(*p.otherwise, scope.get());
      scope.get()->vars.emplace_back(p.symbol, std::move(v));
    } else {
      scope.get()->vars.emplace_back(p.symbol,
                                     Value::undefined({{}, {}, "parameter '" + p.name + "' was not provided"}));
    }
  }
  if (decl.uses_caller && !decl.is_call_block)
    store(caller_symbol_, take_named("caller").value_or(Value::undefined({{}, {}, "No caller defined"})), scope.get());
  if (decl.uses_varargs && !decl.is_call_block) {
    std::vector<Value> rest;
    if (args.positional.size() > n)
      rest.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(n), args.positional.end());
    store(varargs_symbol_, rt_.tuple(std::move(rest)), scope.get());
  }
  if (decl.uses_kwargs && !decl.is_call_block) {
    Dict* rest = rt_.dict();
    for (auto& [name, value] : args.named) rest->set(rt_, rt_.text(name), value);
    store(kwargs_symbol_, rest, scope.get());
  } else if (!args.named.empty()) {
    rt_.fail("macro '" + decl.name + "' takes no keyword argument '" + args.named[0].first + "'");
  }
  return capture([&] { (void)run_body(decl.body, scope.get()); });
}

Value Macro::attribute(Runtime& rt, std::string_view name) {
  if (name == "name") return rt.text(decl_.name);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const Param& p : decl_.params) names.push_back(rt.text(p.name));
    return rt.tuple(std::move(names));
  }
  if (name == "catch_kwargs") return decl_.uses_kwargs;
  if (name == "catch_varargs") return decl_.uses_varargs;
  if (name == "caller") return decl_.uses_caller;
  return Object::attribute(rt, name);
}

namespace {
// loop.cycle and loop.changed
class LoopMethod final : public Object {
 public:
  LoopMethod(LoopObject* loop, bool cycles) : loop_(loop), cycles_(cycles) {}
  [[nodiscard]] std::string_view type_name() const override { return "method"; }
  [[nodiscard]] bool callable() const override { return true; }
  Value call(Runtime&, Args& args) override { return cycles_ ? loop_->cycle(args) : Value(loop_->changed(args)); }

 private:
  LoopObject* loop_;
  bool cycles_;
};
}  // namespace

Value LoopObject::call(Runtime& rt, Args& args) {
  if (!stmt_.recursive) rt.fail("The loop must have the 'recursive' marker to be called recursively.");
  Params p(rt, "loop", args, {"iterable"}, 1);
  return in_.call_loop(stmt_, closure_, p.get(0), depth_ + 1);
}

Value LoopObject::cycle(Args& args) const {
  if (args.positional.empty()) in_.runtime().fail("no items for cycling given");
  return args.positional[index % args.positional.size()];
}

bool LoopObject::changed(Args& args) {
  bool same = ever_changed_ && args.positional.size() == last_changed_.size();
  for (std::size_t i = 0; same && i < last_changed_.size(); ++i)
    same = equal(in_.runtime(), args.positional[i], last_changed_[i]);
  ever_changed_ = true;
  last_changed_ = args.positional;
  return !same;
}

Value LoopObject::attribute(Runtime& rt, std::string_view name) {
  const auto n = static_cast<std::int64_t>(items.size());
  const auto at = static_cast<std::int64_t>(index);
  if (name == "index") return Value::integer(at + 1);
  if (name == "index0") return Value::integer(at);
  if (name == "first") return at == 0;
  if (name == "last") return at + 1 == n;
  if (name == "length") return Value::integer(n);
  if (name == "revindex") return Value::integer(n - at);
  if (name == "revindex0") return Value::integer(n - at - 1);
  if (name == "depth") return Value::integer(depth_);
  if (name == "depth0") return Value::integer(depth_ - 1);
  if (name == "previtem")
    return at > 0 && at <= n ? items[index - 1] : Value::undefined({{}, {}, "there is no previous item"});
  if (name == "nextitem") return at + 1 < n ? items[index + 1] : Value::undefined({{}, {}, "there is no next item"});
  if (name == "cycle" || name == "changed") return rt.object<LoopMethod>(this, name == "cycle");
  return Object::attribute(rt, name);
}

}  // namespace common::jinja
