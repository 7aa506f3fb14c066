#include <algorithm>

#include "common/chat/jinja/parser.h"

namespace common::jinja {

Parser::Nested::Nested(Parser& parser) : parser_(parser) {
  if (++parser_.nesting_ > parser_.limits_.nesting) {
    --parser_.nesting_;
    throw TemplateError(TemplateError::Origin::limit, parser_.current().pos,
                        "nested more than " + std::to_string(parser_.limits_.nesting) + " levels deep");
  }
}

const Token& Parser::take() {
  const Token& t = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return t;
}

bool Parser::skip_op(std::string_view op) {
  if (!current().is_op(op)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}

namespace {
std::string describe(const Token& t) {
  switch (t.kind) {
    case TokenKind::block_end:
      return "end of statement block";
    case TokenKind::variable_end:
      return "end of print statement";
    case TokenKind::end:
      return "end of template";
    default:
      return t.text;
  }
}
}  // namespace

const Token& Parser::expect_op(std::string_view op) {
  if (!current().is_op(op))
    fail(current(), "expected token '" + std::string(op) + "', got '" + describe(current()) + "'");
  return take();
}

const Token& Parser::expect_name(std::string_view name) {
  if (!current().is_name(name))
    fail(current(), "expected token '" + std::string(name) + "', got '" + describe(current()) + "'");
  return take();
}

const Token& Parser::expect_kind(TokenKind kind, std::string_view what) {
  if (current().kind != kind)
    fail(current(), "expected token '" + std::string(what) + "', got '" + describe(current()) + "'");
  return take();
}

void Parser::fail(const Token& at, std::string message) const {
  throw TemplateError(TemplateError::Origin::syntax, at.pos, std::move(message));
}

Symbol Parser::symbol(const std::string& name) {
  const auto [it, added] = symbols_.emplace(name, static_cast<Symbol>(names_.size()));
  if (added) names_.push_back(name);
  // A call block's body belongs to the macro around it, too.
  for (auto macro = macros_.rbegin(); macro != macros_.rend(); ++macro) {
    (*macro)->uses_varargs = (*macro)->uses_varargs || name == "varargs";
    (*macro)->uses_kwargs = (*macro)->uses_kwargs || name == "kwargs";
    (*macro)->uses_caller = (*macro)->uses_caller || name == "caller";
    if (!(*macro)->is_call_block) break;
  }
  return it->second;
}

ParsedTemplate Parser::run() {
  ParsedTemplate parsed;
  parsed.body = body({}, {}, {});
  parsed.names = std::move(names_);
  return parsed;
}

StmtPtr Parser::make_stmt(StmtKind kind, SourcePos pos) const {
  auto s = std::make_unique<Stmt>();
  s->kind = kind;
  s->pos = pos;
  return s;
}

// Statements up to one of the end tags, whose name is the current token then. Without end tags: up to the end.
Body Parser::body(std::initializer_list<std::string_view> end_tags, std::string_view of, SourcePos opened) {
  const Nested nested(*this);
  Body out;
  for (;;) {
    const Token& t = current();
    if (t.kind == TokenKind::end) {
      if (end_tags.size() == 0) return out;
      std::string wanted;
      for (const std::string_view tag : end_tags) wanted += (wanted.empty() ? "'" : " or '") + std::string(tag) + "'";
      fail(t, "Unexpected end of template. Jinja was looking for the following tags: " + wanted +
                  ". The innermost block that needs to be closed is '" + std::string(of) + "' (line " +
                  std::to_string(opened.line) + ").");
    }
    if (t.kind != TokenKind::block_begin) {
      text_and_output(out);
      continue;
    }
    take();
    const Token& tag = current();
    if (tag.kind == TokenKind::name && std::find(end_tags.begin(), end_tags.end(), tag.text) != end_tags.end())
      return out;
    out.push_back(statement());
  }
}

void Parser::text_and_output(Body& out) {
  const Token& t = take();
  if (t.kind == TokenKind::text) {
    auto s = make_stmt(StmtKind::text, t.pos);
    s->text = t.text;
    out.push_back(std::move(s));
    return;
  }
  auto s = make_stmt(StmtKind::output, t.pos);
  s->expr = tuple(WithConditional::yes);
  expect_kind(TokenKind::variable_end, "end of print statement");
  out.push_back(std::move(s));
}

StmtPtr Parser::statement() {
  const Token& t = current();
  if (t.kind != TokenKind::name) fail(t, "tag name expected, got '" + describe(t) + "'");
  take();
  const std::string& tag = t.text;
  if (tag == "if") return if_statement(t.pos);
  if (tag == "for") return for_statement(t.pos);
  if (tag == "set") return set_statement(t.pos);
  if (tag == "with") return with_statement(t.pos);
  if (tag == "macro") return macro_statement(t.pos);
  if (tag == "call") return call_statement(t.pos);
  if (tag == "filter") return filter_statement(t.pos);
  if (tag == "block") return block_statement(t.pos);
  if (tag == "generation" || tag == "autoescape") return scope_statement(tag, t.pos);
  if (tag == "break" || tag == "continue") return loop_control(tag, t.pos);
  if (tag == "print") return print_statement(t.pos);
  if (tag == "include" || tag == "import" || tag == "from" || tag == "extends")
    return unsupported_statement(tag, t.pos);
  fail(t, "Encountered unknown tag '" + tag + "'.");
}

StmtPtr Parser::if_statement(SourcePos pos) {
  auto s = make_stmt(StmtKind::branches, pos);
  for (;;) {
    s->conditions.push_back(tuple(WithConditional::no));
    end_block();
    s->bodies.push_back(body({"elif", "else", "endif"}, "if", pos));
    if (skip_name("elif")) continue;
    if (skip_name("else")) {
      end_block();
      s->conditions.push_back(nullptr);
      s->bodies.push_back(body({"endif"}, "if", pos));
    }
    expect_name("endif");
    end_block();
    return s;
  }
}

// A name, or names in parentheses or with commas. `set` also takes namespace.attribute.
Target Parser::target() {
  const Nested nested(*this);
  Target t;
  t.pos = current().pos;
  if (skip_op("(") || current().is_op("[")) {
    const bool square = current().is_op("[");
    if (square) take();
    t = target_list({});
    expect_op(square ? "]" : ")");
    if (t.parts.empty() && square) fail(current(), "cannot assign to a list of one name");
    return t;
  }
  const Token& name = expect_kind(TokenKind::name, "name");
  constexpr std::string_view kConstants[] = {"true", "True", "false", "False", "none", "None"};
  if (std::find(std::begin(kConstants), std::end(kConstants), name.text) != std::end(kConstants))
    fail(name, "can't assign to '" + name.text + "'");
  t.symbol = symbol(name.text);
  if (skip_op(".")) t.attribute = expect_kind(TokenKind::name, "name").text;
  return t;
}

Target Parser::target_list(std::string_view stop) {
  Target first = target();
  if (!current().is_op(",")) return first;
  Target all;
  all.pos = first.pos;
  all.parts.push_back(std::move(first));
  while (skip_op(",")) {
    const Token& t = current();
    if (t.kind == TokenKind::block_end || t.is_op("=") || t.is_op(")") || t.is_op("]") ||
        (!stop.empty() && t.is_name(stop)))
      break;
    all.parts.push_back(target());
  }
  return all;
}

StmtPtr Parser::for_statement(SourcePos pos) {
  auto s = make_stmt(StmtKind::loop, pos);
  s->targets.push_back(target_list("in"));
  expect_name("in");
  s->expr = tuple(WithConditional::no, "recursive");
  if (skip_name("if")) s->condition = expression();
  s->recursive = skip_name("recursive");
  end_block();
  ++loops_;
  s->bodies.push_back(body({"else", "endfor"}, "for", pos));
  --loops_;
  if (skip_name("else")) {
    end_block();
    s->bodies.push_back(body({"endfor"}, "for", pos));
  }
  expect_name("endfor");
  end_block();
  return s;
}

StmtPtr Parser::set_statement(SourcePos pos) {
  auto s = make_stmt(StmtKind::set, pos);
  s->targets.push_back(target_list({}));
  if (skip_op("=")) {
    s->expr = tuple(WithConditional::yes);
    end_block();
    return s;
  }
  s->kind = StmtKind::set_block;
  if (skip_op("|")) s->expr = filter_chain(nullptr);
  end_block();
  s->bodies.push_back(body({"endset"}, "set", pos));
  expect_name("endset");
  end_block();
  return s;
}

StmtPtr Parser::with_statement(SourcePos pos) {
  auto s = make_stmt(StmtKind::with, pos);
  while (current().kind != TokenKind::block_end) {
    if (!s->targets.empty()) expect_op(",");
    s->targets.push_back(target());
    expect_op("=");
    s->conditions.push_back(expression());
  }
  end_block();
  s->bodies.push_back(body({"endwith"}, "with", pos));
  expect_name("endwith");
  end_block();
  return s;
}

void Parser::params(MacroDecl& macro) {
  expect_op("(");
  while (!current().is_op(")")) {
    if (!macro.params.empty()) expect_op(",");
    if (current().is_op(")")) break;
    const Token& name = expect_kind(TokenKind::name, "name");
    Param p{symbol(name.text), name.text, nullptr};
    if (skip_op("=")) {
      p.otherwise = expression();
    } else if (!macro.params.empty() && macro.params.back().otherwise) {
      fail(name, "non-default argument follows default argument");
    }
    macro.params.push_back(std::move(p));
  }
  expect_op(")");
}

void Parser::macro_body(MacroDecl& macro, std::string_view end_tag, std::string_view of, SourcePos opened) {
  const int outer_loops = std::exchange(loops_, 0);
  macros_.push_back(&macro);
  macro.body = body({end_tag}, of, opened);
  macros_.pop_back();
  loops_ = outer_loops;
  expect_name(end_tag);
  end_block();
}

StmtPtr Parser::macro_statement(SourcePos pos) {
  auto s = make_stmt(StmtKind::macro, pos);
  s->macro = std::make_unique<MacroDecl>();
  const Token& name = expect_kind(TokenKind::name, "name");
  s->macro->name = name.text;
  Target t;
  t.pos = name.pos;
  t.symbol = symbol(name.text);
  s->targets.push_back(std::move(t));
  params(*s->macro);
  end_block();
  macro_body(*s->macro, "endmacro", "macro", pos);
  return s;
}

StmtPtr Parser::call_statement(SourcePos pos) {
  auto s = make_stmt(StmtKind::call, pos);
  s->macro = std::make_unique<MacroDecl>();
  s->macro->name = "caller";
  s->macro->is_call_block = true;
  if (current().is_op("(")) params(*s->macro);
  const Token& at = current();
  s->expr = expression();
  if (s->expr->kind != ExprKind::call) fail(at, "expected call");
  end_block();
  macro_body(*s->macro, "endcall", "call", pos);
  return s;
}

StmtPtr Parser::filter_statement(SourcePos pos) {
  auto s = make_stmt(StmtKind::filter, pos);
  s->expr = filter_chain(nullptr);
  end_block();
  s->bodies.push_back(body({"endfilter"}, "filter", pos));
  expect_name("endfilter");
  end_block();
  return s;
}

StmtPtr Parser::block_statement(SourcePos pos) {
  auto s = make_stmt(StmtKind::block, pos);
  s->text = expect_kind(TokenKind::name, "name").text;
  skip_name("scoped");
  skip_name("required");
  end_block();
  const int outer_loops = std::exchange(loops_, 0);
  s->bodies.push_back(body({"endblock"}, "block", pos));
  loops_ = outer_loops;
  expect_name("endblock");
  skip_name(s->text);
  end_block();
  return s;
}

// `generation` marks the assistant's text for training and prints it; `autoescape` is always off.
StmtPtr Parser::scope_statement(const std::string& tag, SourcePos pos) {
  auto s = make_stmt(StmtKind::scope, pos);
  if (tag == "autoescape") s->condition = expression();
  end_block();
  const std::string end_tag = "end" + tag;
  s->bodies.push_back(body({end_tag}, tag, pos));
  expect_name(end_tag);
  end_block();
  return s;
}

StmtPtr Parser::loop_control(const std::string& tag, SourcePos pos) {
  if (loops_ == 0) throw TemplateError(TemplateError::Origin::syntax, pos, "'" + tag + "' outside loop");
  end_block();
  return make_stmt(tag == "break" ? StmtKind::loop_break : StmtKind::loop_continue, pos);
}

StmtPtr Parser::print_statement(SourcePos pos) {
  auto s = make_stmt(StmtKind::output, pos);
  s->expr = tuple(WithConditional::yes);
  end_block();
  return s;
}

StmtPtr Parser::unsupported_statement(const std::string& tag, SourcePos pos) {
  auto s = make_stmt(StmtKind::unsupported, pos);
  s->text = tag;
  while (current().kind != TokenKind::block_end && current().kind != TokenKind::end) take();
  end_block();
  return s;
}

ParsedTemplate parse_template(std::string_view source, const Limits& limits) {
  if (source.size() > limits.source_bytes)
    throw TemplateError(TemplateError::Origin::limit, {},
                        "the template has " + std::to_string(source.size()) + " bytes, more than the allowed " +
                            std::to_string(limits.source_bytes));
  return Parser(tokenize(source), limits).run();
}

}  // namespace common::jinja
