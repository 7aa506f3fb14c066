#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/chat/syntax/element.h"
#include "common/chat/tools.h"

/// Arguments that are given one by one, each with its key and its value as text.
namespace common::chat::syntax {

/// All parameters of a call; `one` is one of them, with key() and value() inside. Written: those that are required, in
/// any order while they are few, and optional ones between them.
[[nodiscard]] ElementPtr parameters(const ElementPtr& one);

/// The parameter's name, up to one of `stops`. A name in which one of them occurs cannot be written.
[[nodiscard]] ElementPtr key(std::vector<std::string> stops);

enum class ValueIs : std::uint8_t {
  by_schema,  // strings stand raw, everything else is JSON
  text,       // a raw string, whatever the schema says; written for parameters that may be strings
  json        // JSON; written for the others
};
struct ValueShape {
  ValueIs is = ValueIs::by_schema;
  /// The mark behind the value; it stays unread. `{key}` in it stands for the parameter's name.
  std::string stop;
  bool own_lines = false;  // a line break on either side does not belong to the value
  /// Values that may be lists or objects are written as tags, which open with this text and close with the same and a
  /// slash; the value ends at the first that closes none of its own. Empty: as JSON.
  std::string nested_tag = {};
  /// Turns the raw text of such a value into JSON; `parameter` is null for one that the tool does not declare.
  std::function<std::string(const std::string& raw, const Tool* tool, const Tool::Parameter* parameter)> to_json = {};
  /// And the grammar of such a value; that of JSON when empty.
  std::function<std::string(GrammarWriter&)> value_grammar = {};
};
[[nodiscard]] ElementPtr value(ValueShape shape);

/// One member of a list, as a grammar writes it.
struct WrittenMember {
  std::string expression;
  bool required = true;
};
/// The members in their order with `separator` between those that are there.
[[nodiscard]] std::string separated(GrammarWriter& writer, const std::string& name,
                                    const std::vector<WrittenMember>& members, const std::string& separator);

/// A mark that holds the parameter's name (`{key}`).
[[nodiscard]] ElementPtr keyed_text(std::string pattern);

}  // namespace common::chat::syntax
