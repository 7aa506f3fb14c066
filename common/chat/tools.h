#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace common::chat {

inline constexpr std::size_t kMaxToolNameBytes = 256;

/// How a parameter's value that stands between tags is to be understood.
enum class ValueKind : std::uint8_t {
  text,    // a string may stand there: the raw text is one
  json,    // never a string
  either,  // the schema does not say: JSON if it is, else a string
};

/// One function that the model may call.
class Tool {
 public:
  /// `parameters`: a JSON schema, an object; null or absent: no parameters are declared.
  /// `index`: its place in the request, for errors.
  Tool(std::string name, const nlohmann::ordered_json* parameters, int index = 0);
  ~Tool();
  Tool(Tool&&) noexcept;
  Tool& operator=(Tool&&) noexcept;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const nlohmann::ordered_json& schema() const { return *schema_; }
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] ValueKind parameter_kind(std::string_view key) const;

  struct Parameter {
    std::string key;
    const nlohmann::ordered_json* schema;
    bool required;
    bool impossible;      // no value satisfies its schema, though there must be one
    std::string pointer;  // the schema's place in the tool's; empty: it has none
  };
  /// In the schema's order; those that `required` names alone come last, those that can never be there are left out.
  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Null for one that is not declared.
  [[nodiscard]] const Parameter* parameter(std::string_view key) const;

 private:
  class Collector;

  std::string name_;
  std::unique_ptr<nlohmann::ordered_json> schema_;
  std::vector<Parameter> parameters_;
  int index_;
};

/// How a value of this schema is understood; `root` is the document in which its references point.
[[nodiscard]] ValueKind value_kind(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root);
/// Which values a schema allows, as far as it says: all where it says nothing.
struct ValueTypes {
  bool text = true, object = true, list = true, other = true;
};
[[nodiscard]] ValueTypes value_types(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root);
/// The values that a schema lists, itself or branch by branch, as JSON; empty when there are others.
[[nodiscard]] std::vector<std::string> listed_values(const nlohmann::ordered_json& schema,
                                                     const nlohmann::ordered_json& root);
/// Such a value as it stands in tags: texts without quotes.
[[nodiscard]] std::string raw_text(const std::string& json);
/// The schema that a chain of `$ref`s ends at; the schema itself without one or when it leads nowhere.
[[nodiscard]] const nlohmann::ordered_json& resolved(const nlohmann::ordered_json& schema,
                                                     const nlohmann::ordered_json& root);

/// The tools of one request.
class ToolSet {
 public:
  ToolSet() = default;
  /// `tools`: an array that check_tools() has passed. `only`: leave out all others; empty: keep all.
  explicit ToolSet(const nlohmann::ordered_json& tools, std::string_view only = {});

  [[nodiscard]] bool empty() const { return tools_.empty(); }
  [[nodiscard]] const std::vector<Tool>& all() const { return tools_; }
  [[nodiscard]] const Tool* find(std::string_view name) const;

 private:
  std::vector<Tool> tools_;
};

}  // namespace common::chat
