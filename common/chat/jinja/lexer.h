#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/chat/jinja/template.h"

namespace common::jinja {

enum class TokenKind : std::uint8_t {
  text,  // template text between tags, white-space control applied
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,   // escapes resolved
  integer,  // as written, without underscores
  floating,
  op,  // an operator or bracket
  end,
};

struct Token {
  TokenKind kind;
  std::string text;
  SourcePos pos;
  [[nodiscard]] bool is_op(std::string_view s) const { return kind == TokenKind::op && text == s; }
  [[nodiscard]] bool is_name(std::string_view s) const { return kind == TokenKind::name && text == s; }
};

/// Splits a template's source into tokens, the last of which is `end`; comments are dropped, raw blocks become text.
/// Throws TemplateError (syntax).
[[nodiscard]] std::vector<Token> tokenize(std::string_view source);

}  // namespace common::jinja
