#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/chat/jinja/ast.h"
#include "common/chat/jinja/lexer.h"

namespace common::jinja {

/// Recursive descent over the tokens. The grammar, level by level, is Jinja's own.
class Parser {
 public:
  Parser(std::vector<Token> tokens, const Limits& limits) : tokens_(std::move(tokens)), limits_(limits) {}
  ParsedTemplate run();

 private:
  enum class WithConditional : bool { no, yes };
  struct Nested;  // counts nesting for its lifetime

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take();
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  const Token& expect_op(std::string_view op);
  const Token& expect_name(std::string_view name);
  const Token& expect_kind(TokenKind kind, std::string_view what);
  [[noreturn]] void fail(const Token& at, std::string message) const;
  Symbol symbol(const std::string& name);

  // Expressions (parser_expressions.cpp).
  ExprPtr make(ExprKind kind, SourcePos pos) const;
  ExprPtr finish(ExprPtr e) const;
  ExprPtr expression(WithConditional with = WithConditional::yes);
  ExprPtr conditional();
  ExprPtr or_expr();
  ExprPtr and_expr();
  ExprPtr not_expr();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters);
  ExprPtr primary();
  ExprPtr number(const Token& token) const;
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr e);
  ExprPtr postfix_once(ExprPtr e);
  ExprPtr filters_and_tests(ExprPtr e);
  ExprPtr subscript(ExprPtr e);
  ExprPtr subscript_element(ExprPtr e, const Token& bracket);
  ExprPtr call(ExprPtr callee);
  ExprPtr filter(ExprPtr subject);
  ExprPtr filter_chain(ExprPtr subject);
  ExprPtr test(ExprPtr subject);
  std::unique_ptr<CallArgs> call_args();
  /// An expression, or a tuple when commas follow. `stop` is a name that ends it.
  ExprPtr tuple(WithConditional with, std::string_view stop = {}, bool parenthesized = false);
  bool tuple_ends(std::string_view stop) const;
  std::string dotted_name();

  // Statements (parser_statements.cpp).
  Body body(std::initializer_list<std::string_view> end_tags, std::string_view of, SourcePos opened);
  void text_and_output(Body& out);
  StmtPtr statement();
  StmtPtr if_statement(SourcePos pos);
  StmtPtr for_statement(SourcePos pos);
  StmtPtr set_statement(SourcePos pos);
  StmtPtr with_statement(SourcePos pos);
  StmtPtr macro_statement(SourcePos pos);
  StmtPtr call_statement(SourcePos pos);
  StmtPtr filter_statement(SourcePos pos);
  StmtPtr block_statement(SourcePos pos);
  StmtPtr scope_statement(const std::string& tag, SourcePos pos);
  StmtPtr loop_control(const std::string& tag, SourcePos pos);
  StmtPtr print_statement(SourcePos pos);
  StmtPtr unsupported_statement(const std::string& tag, SourcePos pos);
  StmtPtr make_stmt(StmtKind kind, SourcePos pos) const;
  void params(MacroDecl& macro);
  void macro_body(MacroDecl& macro, std::string_view end_tag, std::string_view of, SourcePos opened);
  Target target();
  Target target_list(std::string_view stop);
  void end_block() { expect_kind(TokenKind::block_end, "end of statement block"); }

  std::vector<Token> tokens_;
  const Limits& limits_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;
  std::vector<MacroDecl*> macros_;  // open ones, innermost last
  std::unordered_map<std::string, Symbol> symbols_;
  std::vector<std::string> names_;
};

struct Parser::Nested {
  explicit Nested(Parser& parser);
  ~Nested() { --parser_.nesting_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Parser& parser_;
};

}  // namespace common::jinja
