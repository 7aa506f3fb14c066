#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/grammar/grammar_builder.h"
#include "common/grammar/notation.h"
#include "common/grammar/schema_document.h"
#include "common/grammar/syntax.h"

/// JSON schema -> GBNF, inside of GrammarBuilder::schema().
namespace common::grammar {

using SchemaJson = nlohmann::ordered_json;

inline constexpr int kMaxSchemaDepth = 500;

/// The rules of JSON itself, or of another notation of its values.
class JsonRules {
 public:
  explicit JsonRules(GrammarBuilder& builder, const Notation* notation = nullptr) : b_(builder), notation_(notation) {}
  [[nodiscard]] bool is_json() const { return notation_ == nullptr; }
  /// Between the tokens; an empty expression where nothing may stand there.
  std::string space() { return is_json() ? b_.json_space() : std::string(); }
  std::string character();  // one character of JSON's strings, an escape sequence counts as one
  std::string string();
  std::string string_of(const std::string& text);  // a string of this raw text, which needs no escapes
  std::string number();
  std::string integer();
  std::string boolean();
  std::string null();
  std::string value();
  std::string object();
  std::string array();
  std::string constant(const SchemaJson& value);
  std::string member(const std::string& key, const std::string& value);
  [[nodiscard]] bool carries(const std::string& key) const { return is_json() || notation_->carries(key); }
  std::string item(const std::string& value) { return is_json() ? value : notation_->item(value); }
  /// A member under a key that is none of `taken`, in a notation that is not JSON.
  std::string other_member(std::span<const std::string> taken, const std::string& value) {
    return notation_->other_member(b_, taken, value);
  }
  [[nodiscard]] Notation::Frame object_frame() const;
  [[nodiscard]] Notation::Frame array_frame() const;

 private:
  void add_containers();
  std::string add(const char* name, const std::string& body) { return b_.json_rule(name, body); }
  [[nodiscard]] std::string named(const char* name) const;

  GrammarBuilder& b_;
  const Notation* notation_;
  std::string string_;  // the notation's, once it is there
};

/// Where a schema stands, for messages, and how its rules are called.
struct SchemaPlace {
  std::string pointer;  // "#/properties/a"
  std::string name;
  int depth = 0;

  [[nodiscard]] SchemaPlace at(std::string_view key) const;  // the same schema's member
  [[nodiscard]] SchemaPlace at(std::size_t index) const;
  [[nodiscard]] SchemaPlace named(std::string_view part) const;  // the same place, a longer name
};

/// Throws Error "json_schema: POINTER: what".
[[noreturn]] void schema_error(const SchemaPlace& place, const std::string& what, bool is_limit = false);

/// Throws Error "json_schema: POINTER: pattern "...", offset N: what".
[[noreturn]] void pattern_error(const SchemaPlace& place, const std::string& pattern, std::size_t offset,
                                const std::string& what);

/// A value as JSON, for a message; only the beginning of a long one.
[[nodiscard]] std::string schema_text(const SchemaJson& value);
/// A keyword's value; null when the schema does not have it, or has null for it (but `const`).
[[nodiscard]] const SchemaJson* schema_keyword(const SchemaJson& schema, const char* key);
/// Whether a schema's `required` names something.
[[nodiscard]] bool requires_some(const SchemaJson& schema);
/// Exactly, also where a double holds no more digits: below 0, 0 or above for a < b, a == b, a > b. Pre: numbers.
[[nodiscard]] int compare_numbers(const SchemaJson& a, const SchemaJson& b);
/// What a schema says of lists: the schemas of the first items, the one of all others, and how many there may be.
struct ListShape {
  const SchemaJson* prefix = nullptr;  // a list of schemas; null: none
  const char* prefix_key = "";
  const SchemaJson* rest = nullptr;  // null: any value
  const char* rest_key = "";
  int min = 0;
  int max = GrammarBuilder::kUnlimited;
};
[[nodiscard]] ListShape list_shape(const SchemaJson& schema);
/// Whether a schema's member of this name is known, be it only to be ignored.
[[nodiscard]] bool is_schema_keyword(const std::string& name);
/// Throws Error when a keyword of this one schema has a value that it cannot have, or two contradict each other.
/// Pre: an object.
void check_keywords(const SchemaJson& schema, const SchemaPlace& place);

/// One conversion. Every function that takes a schema returns the expression of a value of that schema.
class SchemaRules {
 public:
  SchemaRules(GrammarBuilder& builder, const SchemaJson& document, std::string name,
              const Notation* notation = nullptr);
  /// The document itself, all of it checked first.
  std::string root();
  /// The schema at a place of the document, "#/properties/a".
  std::string part(const std::string& pointer);

 private:
  struct Property {
    std::string name;
    const SchemaJson* schema;
    SchemaPlace place;
  };
  struct Properties {
    std::vector<Property> required, optional;
    std::vector<std::string> never;          // names of the schema false
    const SchemaJson* additional = nullptr;  // null: none are allowed
    SchemaPlace additional_place;
  };
  class Inside;

  std::string value(const SchemaJson& schema, const SchemaPlace& place);
  std::string value_of_type(const SchemaJson& schema, const std::string& type, const SchemaPlace& place);
  std::string typed_value(const SchemaJson& schema, const std::string& type, const SchemaPlace& place);
  void spend(std::size_t work, const SchemaPlace& place);
  std::string plain_type(const std::string& type, const SchemaPlace& place);
  std::string reference(const SchemaJson& target, const SchemaPlace& place);
  std::pair<const SchemaJson*, std::string> resolve(const SchemaJson& target, const SchemaPlace& place);
  /// Throws the error for a schema that no value satisfies.
  [[noreturn]] void refuse_empty(const SchemaJson& schema, const SchemaPlace& place);
  std::string any_of_schemas(const SchemaJson& list, const SchemaPlace& place);
  std::string any_type(const SchemaJson& schema, const SchemaJson& types, const SchemaPlace& place);
  std::string enumeration(const SchemaJson& list, const SchemaPlace& place);
  // Containers.
  std::string object(const SchemaJson& schema, const SchemaPlace& place);
  std::string object_of(const Properties& properties, const SchemaPlace& place);
  std::string framed(const Notation::Frame& frame, const std::string& members);
  std::string member(const Property& property);
  std::string additional_member(const Properties& properties, const SchemaPlace& place);
  std::string all_of(const SchemaJson& schema, const SchemaPlace& place);
  struct Merged;
  void merge(const SchemaJson& schema, bool is_required, const SchemaPlace& place, Merged& into);
  void require_demanded(Merged& merged);
  std::string array(const SchemaJson& schema, const SchemaPlace& place);
  std::string items(const ListShape& shape, const SchemaPlace& place);
  // Strings and numbers.
  std::string sized_string(const SchemaJson& schema, const SchemaPlace& place);
  std::optional<std::string> formatted_string(const std::string& format);
  std::string bounded_integer(const SchemaJson& schema, const SchemaPlace& place);

  GrammarBuilder& b_;
  JsonRules json_;
  SchemaDocument document_;
  EmptySchemas empty_{document_};
  std::string name_;
  std::size_t work_ = 0;
  std::map<std::string, std::string> rule_of_reference_;  // pointer -> rule
  std::list<SchemaJson> made_;                            // schemas that stand in no document
  // References that were followed since the last character: meeting one again would never end.
  std::vector<std::string> open_references_;
};

/// A count such as minItems; `fallback` when the keyword is absent.
[[nodiscard]] int schema_count(const SchemaJson& schema, const char* key, int fallback);

/// The text of a string that a JSON-schema pattern allows, in its JSON spelling, without the quotes.
[[nodiscard]] std::string pattern_text(GrammarBuilder& builder, const std::string& pattern, const SchemaPlace& place);

/// A whole number of any size.
struct WholeNumber {
  bool negative = false;  // never of 0
  std::string digits;     // at least one, without zeros in front

  /// The number `step` away, which is 1 or -1.
  [[nodiscard]] WholeNumber next(int step) const;
  [[nodiscard]] std::string text() const { return (negative ? "-" : "") + digits; }
  friend bool operator<(const WholeNumber& a, const WholeNumber& b);
};

/// The decimal spelling of the whole numbers from `min` to `max`; an absent bound means 16 digits.
/// Pre: not both bounds absent, min <= max.
[[nodiscard]] std::string integer_range(const std::optional<WholeNumber>& min, const std::optional<WholeNumber>& max);

/// A class as GBNF.
[[nodiscard]] std::string class_text(const std::vector<CodeRange>& ranges, bool negated = false);

}  // namespace common::grammar
