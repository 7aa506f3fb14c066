#pragma once

#include <string>
#include <vector>

#include "common/chat/syntax/element.h"

namespace common::chat::syntax {

/// The members of an object that is a call, in the order in which they are written; read in any order.
struct JsonCall {
  enum class Role : std::uint8_t { name, arguments, id };
  struct Member {
    std::string key;
    Role role;
  };
  std::vector<Member> members;
  std::string id_pattern;    // GBNF of the id's text between the quotes; needed when there is one
  bool id_optional = false;  // written or not; then the id stands last
  bool key_is_name = false;  // {"NAME": arguments}; then `members` is empty
  Names names = Names::any;
};

/// The usual one: {"name": NAME, "arguments": {...}}.
[[nodiscard]] JsonCall name_and_arguments();

/// One call as an object. Members it does not know are skipped; an object under "function" holds members too.
[[nodiscard]] ElementPtr json_call(JsonCall shape);
/// `[` calls `]`.
[[nodiscard]] ElementPtr json_call_list(JsonCall shape);

}  // namespace common::chat::syntax
