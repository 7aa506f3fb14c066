#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/error_json.h"

namespace server {

class Body;

/// Typed reads of a request body. null counts as absent. A value of another type or out of range throws
/// Error(invalid_argument) that names the field, what was expected and what was given.
class Fields {
 public:
  /// Throws Error(invalid_argument) when the body is no object.
  explicit Fields(const Json& body);
  explicit Fields(const Body& body);

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

/// A parsed request body. Its end needs no memory, unlike that of a Json: see common::release_json().
class Body {
 public:
  explicit Body(Json json) : json_(std::move(json)) {}
  ~Body();
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  [[nodiscard]] const Json& json() const { return json_; }

 private:
  Json json_;
};

/// Parses a request body. Throws Error(invalid_argument) with the byte position of a syntax error; nesting beyond 512
/// levels is refused before it can exhaust the stack, and so is what would take too much memory (common/json).
[[nodiscard]] Body parse_body(const std::string& text);

}  // namespace server
