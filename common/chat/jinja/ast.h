#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/chat/jinja/filters.h"
#include "common/chat/jinja/operators.h"
#include "common/chat/jinja/template.h"
#include "common/chat/jinja/value.h"

namespace common::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

/// Index of a variable's name in ParsedTemplate::names.
using Symbol = int;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;       // *sequence
  ExprPtr star_star;  // **mapping
};

enum class ExprKind : std::uint8_t {
  constant,     // value
  name,         // symbol
  list,         // kids
  tuple,        // kids
  dict,         // kids: key, value, key, value ...
  attribute,    // kids[0] . text
  item,         // kids[0] [ kids[1] ]
  slice,        // kids[0] [ kids[1] : kids[2] : kids[3] ], each of the three may be null
  call,         // kids[0] ( args )
  filter,       // kids[0] | text ( args ); no kid in filter blocks
  test,         // kids[0] is text ( args )
  negate,       // - kids[0]
  positive,     // + kids[0]
  logical_not,  // not kids[0]
  logical_and,  // kids[0] and kids[1]
  logical_or,   // kids[0] or kids[1]
  binary,       // kids[0] op kids[1]
  concat,       // kids[0] ~ kids[1] ~ ...
  compare,      // kids[0] compare_ops[0] kids[1] compare_ops[1] kids[2] ...
  conditional,  // kids[0] if kids[1] else kids[2]; the last may be null
};

struct Expr {
  ExprKind kind;
  SourcePos pos;
  int depth = 1;  // of the tree below
  Symbol symbol = -1;
  BinaryOp op = BinaryOp::add;
  Filter filter = nullptr;  // null: unknown, an error when it is used
  Test test = nullptr;
  Value value;
  std::string text;
  std::vector<ExprPtr> kids;
  std::vector<CompareOp> compare_ops;
  std::unique_ptr<CallArgs> args;
};

/// Where `set`, `for` and `with` put a value.
struct Target {
  SourcePos pos;
  Symbol symbol = -1;
  std::string attribute;      // of the namespace in `symbol`, when not empty
  std::vector<Target> parts;  // unpacking, when not empty
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct Param {
  Symbol symbol;
  std::string name;
  ExprPtr otherwise;  // null: none
};

/// The parameters and the body of a macro or call block.
struct MacroDecl {
  std::string name;
  std::vector<Param> params;
  Body body;
  bool is_call_block = false;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

enum class StmtKind : std::uint8_t {
  text,       // text
  output,     // expr
  branches,   // if / elif / else: conditions[i] -> bodies[i], an else has a null condition
  loop,       // for targets[0] in expr if condition: bodies[0], else bodies[1]
  set,        // targets[0] = expr
  set_block,  // targets[0] = bodies[0] | expr (a chain of filters whose innermost has no subject; may be null)
  with,       // targets[i] = conditions[i]: bodies[0]
  macro,      // targets[0] = macro
  call,       // expr (a call) with `macro` as its caller
  filter,     // bodies[0] | expr
  block,      // bodies[0], seeing only global variables
  scope,      // bodies[0] in a scope of its own
  loop_break,
  loop_continue,
  unsupported,  // text: the tag's name
};

struct Stmt {
  StmtKind kind;
  SourcePos pos;
  bool recursive = false;
  std::string text;
  ExprPtr expr;
  ExprPtr condition;
  std::vector<Target> targets;
  std::vector<ExprPtr> conditions;
  std::vector<Body> bodies;
  std::unique_ptr<MacroDecl> macro;
};

struct ParsedTemplate {
  Body body;
  std::vector<std::string> names;
};

/// Throws TemplateError (syntax or limit).
[[nodiscard]] ParsedTemplate parse_template(std::string_view source, const Limits& limits);

}  // namespace common::jinja
