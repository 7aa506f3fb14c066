#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/chat/jinja/ast.h"
#include "common/chat/jinja/runtime.h"

namespace common::jinja {

/// Variables of one scope. Macros and recursive loops keep the scopes they were made in.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<Symbol, Value>> vars;
  bool kept = false;
};

class Macro;
class LoopObject;

/// Walks the tree of one template for one rendering. One thread at a time.
class Interpreter {
 public:
  Interpreter(const ParsedTemplate& parsed, const nlohmann::ordered_json& context, Runtime& rt);
  std::string run();

  /// For macros and call blocks.
  Value call_macro(const MacroDecl& decl, Scope* closure, Args& args);
  /// For loop(...) inside a recursive loop.
  Value call_loop(const Stmt& loop, Scope* closure, const Value& items, int depth);
  Runtime& runtime() { return rt_; }

 private:
  enum class Flow : std::uint8_t { normal, break_loop, continue_loop };

  /// Takes a scope for its own lifetime, and gives it back unless something keeps it.
  class ScopeGuard {
   public:
    ScopeGuard(Interpreter& in, Scope* parent) : in_(in), scope_(in.take_scope(parent)) {}
    ~ScopeGuard() { in_.give_back(scope_); }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;
    Scope* get() { return scope_; }
    /// Empty again: the next iteration's scope.
    void renew() {
      Scope* parent = scope_->parent;
      in_.give_back(scope_);
      scope_ = in_.take_scope(parent);
    }

   private:
    Interpreter& in_;
    Scope* scope_;
  };
  class CallGuard;

  Scope* take_scope(Scope* parent);
  void give_back(Scope* scope);
  static void keep(Scope* scope);

  // Variables. A null scope is the template's top level.
  Value look_up(Symbol symbol, Scope* scope);
  [[nodiscard]] Value look_up_in_callers(Symbol symbol, const Value& otherwise) const;
  void store(Symbol symbol, Value value, Scope* scope);
  void assign(const Target& target, const Value& value, Scope* scope);

  // Statements (interpreter.cpp).
  Flow run_body(const Body& body, Scope* scope);
  Flow run(const Stmt& s, Scope* scope);
  Flow run_branches(const Stmt& s, Scope* scope);
  void run_set_block(const Stmt& s, Scope* scope);
  Flow run_with(const Stmt& s, Scope* scope);
  Flow run_scoped(const Body& body, Scope* scope);
  void run_call_block(const Stmt& s, Scope* scope);
  Flow run_filter_block(const Stmt& s, Scope* scope);

  // Loops (interpreter_calls.cpp).
  Flow run_loop(const Stmt& s, Scope* scope, const Value& iterable, int depth);
  std::vector<Value> loop_items(const Stmt& s, Scope* scope, const Value& iterable);

  // Expressions (interpreter_expressions.cpp).
  Value eval(const Expr& e, Scope* scope);
  Value eval_item(const Expr& e, Scope* scope);
  Value eval_sign(const Expr& e, Scope* scope);
  Value eval_dict(const Expr& e, Scope* scope);
  Value eval_slice(const Expr& e, Scope* scope);
  Value eval_call(const Expr& e, Scope* scope, const Value* caller = nullptr);
  Value eval_filter(const Expr& e, Scope* scope, const Value* block = nullptr);
  bool eval_test(const Expr& e, Scope* scope);
  bool eval_compare(const Expr& e, Scope* scope);
  Value eval_concat(const Expr& e, Scope* scope);
  Value eval_conditional(const Expr& e, Scope* scope);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& list, Scope* scope);
  Args eval_args(const CallArgs* args, Scope* scope);

  // Output goes to the innermost buffer.
  void write(std::string_view text);
  void write(const Value& v);
  void check_output() const;
  template <class F>
  Value capture(F body) {
    std::string buffer;
    std::string* outer = std::exchange(out_, &buffer);
    struct Restore {
      Interpreter& in;
      std::string* outer;
      ~Restore() { in.out_ = outer; }
    } restore{*this, outer};
    body();
    return rt_.text(std::move(buffer));
  }

  const ParsedTemplate& parsed_;
  Runtime& rt_;
  enum class Slot : std::uint8_t { unknown, set };
  std::vector<std::pair<Slot, Value>> globals_;  // by symbol: the context, what the top level sets, built-ins used
  Symbol loop_symbol_, varargs_symbol_, kwargs_symbol_, caller_symbol_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<Scope*> free_scopes_;
  std::string* out_ = nullptr;
  int calls_ = 0;
  // Of lax renderings: the scope of the statement at work, and those of the statements that called the present macros.
  Scope* here_ = nullptr;
  std::vector<Scope*> callers_;
};

/// A macro, or the body of a call block.
class Macro final : public Object {
 public:
  Macro(Interpreter& in, const MacroDecl& decl, Scope* closure) : in_(in), decl_(decl), closure_(closure) {}
  [[nodiscard]] std::string_view type_name() const override { return "Macro"; }
  [[nodiscard]] std::string repr() const override { return "<Macro '" + decl_.name + "'>"; }
  [[nodiscard]] bool callable() const override { return true; }
  Value call(Runtime&, Args& args) override { return in_.call_macro(decl_, closure_, args); }
  Value attribute(Runtime& rt, std::string_view name) override;

 private:
  Interpreter& in_;
  const MacroDecl& decl_;
  Scope* closure_;
};

/// The variable `loop`.
class LoopObject final : public Object {
 public:
  LoopObject(Interpreter& in, const Stmt& stmt, Scope* closure, int depth)
      : in_(in), stmt_(stmt), closure_(closure), depth_(depth) {}
  [[nodiscard]] std::string_view type_name() const override { return "LoopContext"; }
  [[nodiscard]] bool callable() const override { return stmt_.recursive; }
  Value call(Runtime& rt, Args& args) override;
  Value attribute(Runtime& rt, std::string_view name) override;
  Value cycle(Args& args) const;
  bool changed(Args& args);

  std::vector<Value> items;  // emptied when the loop is over
  std::size_t index = 0;

 private:
  Interpreter& in_;
  const Stmt& stmt_;
  Scope* closure_;
  int depth_;
  std::vector<Value> last_changed_;
  bool ever_changed_ = false;
};

}  // namespace common::jinja
