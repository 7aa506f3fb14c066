#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error_json.h"

namespace server {

/// Typed reads of a request body. null counts as absent. A value of another type or out of range throws
/// Error(invalid_argument) that names the field, what was expected and what was given.
class Fields {
 public:
  /// Throws Error(invalid_argument) when the body is no object.
  explicit Fields(const Json& body);

  [[nodiscard]] const Json* find(std::string_view name) const;
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name, std::int64_t lowest,
                                                    std::int64_t highest) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view name) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view name) const;

  // The same, into a variable that keeps its value when the field is absent.
  void read(std::string_view name, int& target, std::int64_t lowest, std::int64_t highest) const;
  void read(std::string_view name, bool& target) const;

  [[nodiscard]] const Json& body() const { return body_; }

 private:
  const Json& body_;
};

/// Throws Error(invalid_argument) "Field 'name': expected ..., got ...".
[[noreturn]] void bad_field(std::string_view name, std::string_view expected, const Json& given);

/// Throws Error(invalid_argument) "Field 'name': 7 strings, one request may have 5" when more are given than allowed.
void check_count(std::string_view name, std::size_t given, std::size_t allowed, std::string_view what);

/// Parses a request body. Throws Error(invalid_argument) with the byte position of a syntax error; nesting beyond 512
/// levels is refused before it can exhaust the stack.
[[nodiscard]] Json parse_body(const std::string& text);

}  // namespace server
