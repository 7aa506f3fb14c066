#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

namespace common::grammar {

/// A key as a step of a JSON pointer.
[[nodiscard]] std::string pointer_step(std::string_view key);

/// Finds the places of a schema that its references name. Thread-compatible; refers to the document.
class SchemaDocument {
 public:
  explicit SchemaDocument(const nlohmann::ordered_json& root) : root_(root) {}

  [[nodiscard]] const nlohmann::ordered_json& root() const { return root_; }
  /// What stands at `pointer` ("#/$defs/a"); null when it is no pointer into this document or leads nowhere. Then
  /// `missing`, where given, is the step that is not there.
  [[nodiscard]] const nlohmann::ordered_json* find(const std::string& pointer, std::string* missing = nullptr);

 private:
  const nlohmann::ordered_json* member_of(const nlohmann::ordered_json& object, const std::string& key);

  const nlohmann::ordered_json& root_;
  // Objects of many members that references lead through: a search from the first member on would take a time that
  // grows with the square of their number.
  std::map<const nlohmann::ordered_json*, std::unordered_map<std::string_view, const nlohmann::ordered_json*>> members_;
};

/// Tells the schemas that no value satisfies: `false`, and what leads to nothing else through references, branches,
/// required properties and items that must be there. As exact as the grammars are: keywords that they leave out do not
/// count. Thread-compatible; refers to the document.
class EmptySchemas {
 public:
  explicit EmptySchemas(SchemaDocument& document) : document_(document) {}

  /// `schema` must live as long as this object, for what was found about it is kept.
  [[nodiscard]] bool is_empty(const nlohmann::ordered_json& schema);

 private:
  bool search(const nlohmann::ordered_json& schema);
  bool search_parts(const nlohmann::ordered_json& schema);
  bool search_object(const nlohmann::ordered_json& schema);
  bool search_array(const nlohmann::ordered_json& schema);

  SchemaDocument& document_;
  std::unordered_map<const nlohmann::ordered_json*, bool> known_;  // whether it is empty
  // Those whose parts are being looked at, with their levels: a value that holds one of the same kind would never end.
  std::unordered_map<const nlohmann::ordered_json*, std::size_t> open_;
  std::size_t outermost_ = 0;  // the level of what is open that the search came upon
  std::size_t n_steps_ = 0;
};

}  // namespace common::grammar
