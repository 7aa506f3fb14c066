#pragma once

#include <initializer_list>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace common::grammar {

class Notation;

/// Puts a GBNF text together from expressions, named rules and JSON schemas. Expressions are pieces of GBNF as strings:
/// what literal(), sequence(), any_of(), repeat(), rule() and schema() return may be nested in each other at will.
///
///   GrammarBuilder b;
///   const std::string call = b.sequence({b.literal("<call>"), b.schema("arguments", parameters),
///   b.literal("</call>")}); b.set_root(b.repeat(call, 1)); const auto grammar = Grammar::parse(b.text());
///
/// Thread-compatible.
class GrammarBuilder {
 public:
  static constexpr int kUnlimited = -1;  // as the maximum of repeat()

  // Expressions.
  /// Exactly these bytes (valid UTF-8). An empty text matches nothing at all, without a gap: "".
  [[nodiscard]] static std::string literal(std::string_view text);
  [[nodiscard]] static std::string sequence(std::span<const std::string> items);
  [[nodiscard]] static std::string sequence(std::initializer_list<std::string> items);
  /// One of the alternatives; an empty string among them makes it optional. Throws Error(internal) for none.
  [[nodiscard]] static std::string any_of(std::span<const std::string> alternatives);
  [[nodiscard]] static std::string any_of(std::initializer_list<std::string> alternatives);
  /// `item` from `min` to `max` times.
  [[nodiscard]] static std::string repeat(const std::string& item, int min, int max = kUnlimited);
  [[nodiscard]] static std::string optional(const std::string& item) { return repeat(item, 0, 1); }
  /// The token with this id, whatever its text.
  [[nodiscard]] static std::string token(int id);

  // Rules. Names may be any text: letters, digits and '-' are kept, the rest becomes '-'. Each returns the expression
  // that refers to the rule, which is the name in use: a name that is taken by another body gets a number.
  std::string rule(std::string_view name, std::string_view body);
  /// A name for a rule whose body is given later by define(); for rules that refer to each other.
  std::string declare(std::string_view name);
  void define(const std::string& declared, std::string_view body);
  /// A JSON value of this schema; its rules are called `name`, `name-...`. `$ref`s lead into `schema` itself. Throws
  /// Error(invalid_argument or exceeds_limit) with the JSON pointer of what is wrong. With a `notation` the value is
  /// spelled in that; then strings are held to constants, enums and formats only.
  std::string schema(std::string_view name, const nlohmann::ordered_json& schema, const Notation* notation = nullptr);
  /// The same for the schema at `pointer` of a document ("#/properties/a"), which check_schema() has passed.
  std::string schema_part(std::string_view name, const nlohmann::ordered_json& document, const std::string& pointer,
                          const Notation* notation = nullptr);
  /// Any JSON value, any JSON object, any JSON string; and what may stand between their tokens.
  std::string json_value();
  std::string json_object();
  std::string json_string();
  std::string json_space();
  /// Any text, also none, in which none of `stops` occurs and which ends before one begins: the longest run of text up
  /// to a closing mark, when that mark follows. Throws Error(invalid_argument) for no stop or an empty one.
  std::string text_until(std::string_view name, std::span<const std::string> stops);

  /// Sets the start rule.
  void set_root(std::string_view body);
  /// The grammar so far as GBNF; rules sorted by name, root first.
  [[nodiscard]] std::string text() const;

 private:
  friend class JsonRules;
  friend class SchemaRules;
  std::string unused_name(const std::string& wanted);
  /// A rule whose name begins with "json-", which no other rule may.
  std::string json_rule(const std::string& name, std::string_view body);
  /// Throws Error(exceeds_limit) once the rules are longer than a grammar may be: long before Grammar::parse() says so,
  /// many schemas may have been written out.
  void spend(std::size_t bytes);

  std::map<std::string, std::string> rules_;  // name -> body
  std::map<std::string, int> next_number_;    // of names that were taken
  std::size_t n_bytes_ = 0;                   // of all rules but those of JSON itself
};

/// The GBNF text whose root is a JSON value of `schema`. Throws as GrammarBuilder::schema().
[[nodiscard]] std::string schema_to_gbnf(const nlohmann::ordered_json& schema);

}  // namespace common::grammar
