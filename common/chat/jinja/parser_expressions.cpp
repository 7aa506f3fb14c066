#include <algorithm>
#include <cstdlib>

#include "common/chat/jinja/parser.h"

namespace common::jinja {

namespace {
// Operators and postfixes in a row make a deep tree without nesting in the source.
constexpr int kMaxDepth = 1000;

Value text_constant(std::string s) {
  return Value(Str(std::make_shared<const StrData>(std::move(s))));
}

std::optional<CompareOp> compare_op(const Token& t) {
  if (t.is_op("==")) return CompareOp::equal;
  if (t.is_op("!=")) return CompareOp::not_equal;
  if (t.is_op("<")) return CompareOp::less;
  if (t.is_op("<=")) return CompareOp::less_equal;
  if (t.is_op(">")) return CompareOp::greater;
  if (t.is_op(">=")) return CompareOp::greater_equal;
  return std::nullopt;
}
}  // namespace

ExprPtr Parser::make(ExprKind kind, SourcePos pos) const {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->pos = pos;
  return e;
}

ExprPtr Parser::finish(ExprPtr e) const {
  int deepest = 0;
  const auto look_at = [&](const ExprPtr& kid) {
    if (kid) deepest = std::max(deepest, kid->depth);
  };
  for (const ExprPtr& kid : e->kids) look_at(kid);
  if (e->args) {
    for (const ExprPtr& arg : e->args->positional) look_at(arg);
    for (const auto& [name, arg] : e->args->named) look_at(arg);
    look_at(e->args->star);
    look_at(e->args->star_star);
  }
  e->depth = deepest + 1;
  if (e->depth > kMaxDepth)
    throw TemplateError(TemplateError::Origin::limit, e->pos,
                        "the expression is more than " + std::to_string(kMaxDepth) + " levels deep");
  return e;
}

ExprPtr Parser::expression(WithConditional with) {
  const Nested nested(*this);
  return with == WithConditional::yes ? conditional() : or_expr();
}

ExprPtr Parser::conditional() {
  ExprPtr e = or_expr();
  while (current().is_name("if")) {
    auto cond = make(ExprKind::conditional, take().pos);
    cond->kids.push_back(std::move(e));
    cond->kids.push_back(or_expr());
    ExprPtr otherwise;
    if (skip_name("else")) {
      const Nested nested(*this);
      otherwise = conditional();
    }
    cond->kids.push_back(std::move(otherwise));
    e = finish(std::move(cond));
  }
  return e;
}

ExprPtr Parser::or_expr() {
  ExprPtr left = and_expr();
  while (current().is_name("or")) {
    auto e = make(ExprKind::logical_or, take().pos);
    e->kids.push_back(std::move(left));
    e->kids.push_back(and_expr());
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::and_expr() {
  ExprPtr left = not_expr();
  while (current().is_name("and")) {
    auto e = make(ExprKind::logical_and, take().pos);
    e->kids.push_back(std::move(left));
    e->kids.push_back(not_expr());
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::not_expr() {
  if (!current().is_name("not")) return comparison();
  const Nested nested(*this);
  auto e = make(ExprKind::logical_not, take().pos);
  e->kids.push_back(not_expr());
  return finish(std::move(e));
}

ExprPtr Parser::comparison() {
  ExprPtr first = sum();
  ExprPtr e;
  for (;;) {
    const SourcePos pos = current().pos;
    auto op = compare_op(current());
    if (op) {
      take();
    } else if (skip_name("in")) {
      op = CompareOp::in;
    } else if (current().is_name("not") && look().is_name("in")) {
      take();
      take();
      op = CompareOp::not_in;
    } else {
      break;
    }
    if (!e) {
      e = make(ExprKind::compare, pos);
      e->kids.push_back(std::move(first));
    }
    e->compare_ops.push_back(*op);
    e->kids.push_back(sum());
  }
  return e ? finish(std::move(e)) : std::move(first);
}

ExprPtr Parser::sum() {
  ExprPtr left = concat();
  while (current().is_op("+") || current().is_op("-")) {
    const Token& t = take();
    auto e = make(ExprKind::binary, t.pos);
    e->op = t.text == "+" ? BinaryOp::add : BinaryOp::subtract;
    e->kids.push_back(std::move(left));
    e->kids.push_back(concat());
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::concat() {
  ExprPtr first = product();
  if (!current().is_op("~")) return first;
  auto e = make(ExprKind::concat, current().pos);
  e->kids.push_back(std::move(first));
  while (skip_op("~")) e->kids.push_back(product());
  return finish(std::move(e));
}

ExprPtr Parser::product() {
  ExprPtr left = power();
  for (;;) {
    const Token& t = current();
    std::optional<BinaryOp> op;
    if (t.is_op("*")) op = BinaryOp::multiply;
    if (t.is_op("/")) op = BinaryOp::divide;
    if (t.is_op("//")) op = BinaryOp::floor_divide;
    if (t.is_op("%")) op = BinaryOp::modulo;
    if (!op) return left;
    auto e = make(ExprKind::binary, take().pos);
    e->op = *op;
    e->kids.push_back(std::move(left));
    e->kids.push_back(power());
    left = finish(std::move(e));
  }
}

ExprPtr Parser::power() {
  ExprPtr left = unary(true);
  while (current().is_op("**")) {
    auto e = make(ExprKind::binary, take().pos);
    e->op = BinaryOp::power;
    e->kids.push_back(std::move(left));
    e->kids.push_back(unary(true));
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::unary(bool with_filters) {
  ExprPtr e;
  if (current().is_op("-") || current().is_op("+")) {
    const Nested nested(*this);
    const Token& t = take();
    e = make(t.text == "-" ? ExprKind::negate : ExprKind::positive, t.pos);
    e->kids.push_back(unary(false));
    e = finish(std::move(e));
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return with_filters ? filters_and_tests(std::move(e)) : std::move(e);
}

ExprPtr Parser::number(const Token& token) const {
  auto e = make(ExprKind::constant, token.pos);
  if (token.kind == TokenKind::floating) {
    e->value = std::strtod(token.text.c_str(), nullptr);
    return e;
  }
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0' && !(digits[1] >= '0' && digits[1] <= '9')) {
    base = (digits[1] | 0x20) == 'x' ? 16 : (digits[1] | 0x20) == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  }
  Int value = 0;
  for (const char c : digits) {
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    if (__builtin_mul_overflow(value, Int{base}, &value) || __builtin_add_overflow(value, Int{digit}, &value))
      fail(token, "the number " + token.text.substr(0, 60) + " does not fit 128 bits");
  }
  e->value = value;
  return e;
}

ExprPtr Parser::primary() {
  const Token& t = current();
  switch (t.kind) {
    case TokenKind::name: {
      take();
      auto e = make(ExprKind::constant, t.pos);
      if (t.text == "true" || t.text == "True") {
        e->value = true;
      } else if (t.text == "false" || t.text == "False") {
        e->value = false;
      } else if (t.text == "none" || t.text == "None") {
        e->value = None{};
      } else {
        e->kind = ExprKind::name;
        e->symbol = symbol(t.text);
      }
      return e;
    }
    case TokenKind::string: {
      auto e = make(ExprKind::constant, t.pos);
      std::string s = take().text;
      while (current().kind == TokenKind::string) s += take().text;
      e->value = text_constant(std::move(s));
      return e;
    }
    case TokenKind::integer:
    case TokenKind::floating:
      return number(take());
    default:
      break;
  }
  if (skip_op("(")) {
    ExprPtr e = tuple(WithConditional::yes, {}, true);
    expect_op(")");
    return e;
  }
  if (t.is_op("[")) return list();
  if (t.is_op("{")) return dict();
  const bool ended = t.kind == TokenKind::block_end || t.kind == TokenKind::variable_end || t.kind == TokenKind::end;
  fail(t, ended ? "Expected an expression, got 'end of " +
                      std::string(t.kind == TokenKind::block_end ? "statement block'" : "print statement'")
                : "unexpected '" + t.text + "'");
}

ExprPtr Parser::list() {
  auto e = make(ExprKind::list, expect_op("[").pos);
  while (!current().is_op("]")) {
    if (!e->kids.empty()) expect_op(",");
    if (current().is_op("]")) break;
    e->kids.push_back(expression());
  }
  expect_op("]");
  return finish(std::move(e));
}

ExprPtr Parser::dict() {
  auto e = make(ExprKind::dict, expect_op("{").pos);
  while (!current().is_op("}")) {
    if (!e->kids.empty()) expect_op(",");
    if (current().is_op("}")) break;
    e->kids.push_back(expression());
    expect_op(":");
    e->kids.push_back(expression());
  }
  expect_op("}");
  return finish(std::move(e));
}

bool Parser::tuple_ends(std::string_view stop) const {
  const Token& t = current();
  return t.kind == TokenKind::variable_end || t.kind == TokenKind::block_end || t.is_op(")") ||
         (!stop.empty() && t.is_name(stop));
}

ExprPtr Parser::tuple(WithConditional with, std::string_view stop, bool parenthesized) {
  const SourcePos pos = current().pos;
  std::vector<ExprPtr> parts;
  bool commas = false;
  while (!tuple_ends(stop)) {
    parts.push_back(expression(with));
    if (!skip_op(",")) break;
    commas = true;
  }
  if (!commas && parts.size() == 1) return std::move(parts[0]);
  if (parts.empty() && !parenthesized) {
    const Token& t = current();
    fail(t, "Expected an expression, got '" +
                (t.kind == TokenKind::block_end      ? "end of statement block"
                 : t.kind == TokenKind::variable_end ? "end of print statement"
                                                     : t.text) +
                "'");
  }
  auto e = make(ExprKind::tuple, pos);
  e->kids = std::move(parts);
  return finish(std::move(e));
}

ExprPtr Parser::postfix_once(ExprPtr e) {
  if (current().is_op(".") || current().is_op("[")) return subscript(std::move(e));
  return call(std::move(e));
}

ExprPtr Parser::postfix(ExprPtr e) {
  while (current().is_op(".") || current().is_op("[") || current().is_op("(")) e = postfix_once(std::move(e));
  return e;
}

ExprPtr Parser::filters_and_tests(ExprPtr e) {
  for (;;) {
    if (current().is_op("|")) {
      e = filter(std::move(e));
    } else if (current().is_name("is")) {
      e = test(std::move(e));
    } else if (current().is_op("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr subject) {
  const Token& t = take();
  if (t.is_op(".")) {
    const Token& key = take();
    if (key.kind == TokenKind::name) {
      auto e = make(ExprKind::attribute, key.pos);
      e->text = key.text;
      e->value = text_constant(key.text);
      e->kids.push_back(std::move(subject));
      return finish(std::move(e));
    }
    if (key.kind != TokenKind::integer) fail(key, "expected name or number");
    auto e = make(ExprKind::item, key.pos);
    e->kids.push_back(std::move(subject));
    e->kids.push_back(number(key));
    return finish(std::move(e));
  }
  ExprPtr e = subscript_element(std::move(subject), t);
  if (current().is_op(",")) {
    if (e->kind == ExprKind::slice) fail(current(), "a slice cannot stand in a tuple of subscripts");
    auto key = make(ExprKind::tuple, t.pos);
    key->kids.push_back(std::move(e->kids[1]));
    while (skip_op(",") && !current().is_op("]")) key->kids.push_back(expression());
    e->kids[1] = finish(std::move(key));
    e = finish(std::move(e));
  }
  expect_op("]");
  return e;
}

ExprPtr Parser::subscript_element(ExprPtr subject, const Token& bracket) {
  ExprPtr first;
  if (!current().is_op(":")) {
    first = expression();
    if (!current().is_op(":")) {
      auto e = make(ExprKind::item, bracket.pos);
      e->kids.push_back(std::move(subject));
      e->kids.push_back(std::move(first));
      return finish(std::move(e));
    }
  }
  auto e = make(ExprKind::slice, bracket.pos);
  e->kids.push_back(std::move(subject));
  e->kids.push_back(std::move(first));
  const auto part = [&]() -> ExprPtr {
    if (!skip_op(":")) return nullptr;
    const bool absent = current().is_op(":") || current().is_op("]") || current().is_op(",");
    return absent ? nullptr : expression();
  };
  e->kids.push_back(part());
  e->kids.push_back(part());
  return finish(std::move(e));
}

ExprPtr Parser::call(ExprPtr callee) {
  auto e = make(ExprKind::call, current().pos);
  e->kids.push_back(std::move(callee));
  e->args = call_args();
  return finish(std::move(e));
}

std::unique_ptr<CallArgs> Parser::call_args() {
  const Nested nested(*this);
  expect_op("(");
  auto args = std::make_unique<CallArgs>();
  bool first = true;
  while (!current().is_op(")")) {
    if (!first) {
      expect_op(",");
      if (current().is_op(")")) break;
    }
    first = false;
    const Token& t = current();
    if (skip_op("*")) {
      if (args->star || args->star_star) fail(t, "invalid syntax for function call expression");
      args->star = expression();
    } else if (skip_op("**")) {
      if (args->star_star) fail(t, "invalid syntax for function call expression");
      args->star_star = expression();
    } else if (t.kind == TokenKind::name && look().is_op("=")) {
      if (args->star_star) fail(t, "invalid syntax for function call expression");
      take();
      take();
      args->named.emplace_back(t.text, expression());
    } else {
      if (!args->named.empty() || args->star || args->star_star) fail(t, "invalid syntax for function call expression");
      args->positional.push_back(expression());
    }
  }
  expect_op(")");
  return args;
}

std::string Parser::dotted_name() {
  std::string name = expect_kind(TokenKind::name, "name").text;
  while (skip_op(".")) name += "." + expect_kind(TokenKind::name, "name").text;
  return name;
}

ExprPtr Parser::filter(ExprPtr subject) {
  take();
  auto e = make(ExprKind::filter, current().pos);
  e->text = dotted_name();
  e->filter = find_filter(e->text);
  if (subject) e->kids.push_back(std::move(subject));
  if (current().is_op("(")) e->args = call_args();
  return finish(std::move(e));
}

// `name(args) | name ...` of a filter tag: the first filter's subject is the block.
ExprPtr Parser::filter_chain(ExprPtr subject) {
  auto e = make(ExprKind::filter, current().pos);
  e->text = dotted_name();
  e->filter = find_filter(e->text);
  if (subject) e->kids.push_back(std::move(subject));
  if (current().is_op("(")) e->args = call_args();
  e = finish(std::move(e));
  while (current().is_op("|")) e = filter(std::move(e));
  return e;
}

ExprPtr Parser::test(ExprPtr subject) {
  take();
  const bool negated = skip_name("not");
  auto e = make(ExprKind::test, current().pos);
  e->text = dotted_name();
  e->test = find_test(e->text);
  e->kids.push_back(std::move(subject));
  const Token& t = current();
  const bool keyword = t.is_name("else") || t.is_name("or") || t.is_name("and") || t.is_name("if") ||
                       t.is_name("not") || t.is_name("in");
  const bool operand = t.kind == TokenKind::name || t.kind == TokenKind::string || t.kind == TokenKind::integer ||
                       t.kind == TokenKind::floating || t.is_op("[") || t.is_op("{");
  if (t.is_op("(")) {
    e->args = call_args();
  } else if (operand && !keyword) {
    if (t.is_name("is")) fail(t, "You cannot chain multiple tests with is");
    e->args = std::make_unique<CallArgs>();
    e->args->positional.push_back(postfix(primary()));
  }
  e = finish(std::move(e));
  if (!negated) return e;
  auto inverted = make(ExprKind::logical_not, e->pos);
  inverted->kids.push_back(std::move(e));
  return finish(std::move(inverted));
}

}  // namespace common::jinja
