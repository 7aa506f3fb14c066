#include "api/fields.h"

#include <cmath>
#include <limits>

#include "common/json/parse_json.h"
#include "ggml/log.h"

namespace server {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

namespace {

std::string shortened(const Json& value) {
  std::string text = dump(value);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

Body parse_body(const std::string& text) {
  return Body(common::parse_json(text, "the body is", "send a JSON object, in UTF-8"));
}

Body::~Body() {
  common::release_json(json_);
}

void bad_field(std::string_view name, std::string_view expected, const Json& given) {
  std::string message = "Field '";
  message.append(name).append("': expected ").append(expected).append(", got ").append(shortened(given));
  throw Error(ErrorCode::invalid_argument, message);
}

void check_count(std::string_view name, std::size_t given, std::size_t allowed, std::string_view what) {
  if (given <= allowed) return;
  throw Error(ErrorCode::invalid_argument, strf("Field '%s': %zu %s, one request may have %zu",
                                                std::string(name).c_str(), given, std::string(what).c_str(), allowed));
}

Fields::Fields(const Json& body) : body_(body) {
  if (!body.is_object())
    throw Error(ErrorCode::invalid_argument, "the body must be a JSON object, got " + shortened(body));
}

Fields::Fields(const Body& body) : Fields(body.json()) {}

const Json* Fields::find(std::string_view name) const {
  const auto it = body_.find(name);
  return it == body_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<std::int64_t> Fields::integer(std::string_view name, std::int64_t lowest, std::int64_t highest) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string expected =
      strf("an integer from %lld to %lld", static_cast<long long>(lowest), static_cast<long long>(highest));
  std::int64_t number = 0;
  if (value->is_number_unsigned()) {
    const auto given = value->get<std::uint64_t>();
    if (given > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) bad_field(name, expected, *value);
    number = static_cast<std::int64_t>(given);
  } else if (value->is_number_integer()) {
    number = value->get<std::int64_t>();
  } else if (value->is_number_float() && std::abs(value->get<double>()) < 9e15 &&
             std::trunc(value->get<double>()) == value->get<double>()) {
    number = static_cast<std::int64_t>(value->get<double>());  // 5.0, as some clients write every number
  } else {
    bad_field(name, expected, *value);
  }
  if (number < lowest || number > highest) bad_field(name, expected, *value);
  return number;
}

std::optional<bool> Fields::boolean(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) bad_field(name, "true or false", *value);
  return value->get<bool>();
}

std::optional<std::string> Fields::text(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) bad_field(name, "a string", *value);
  return value->get<std::string>();
}

void Fields::read(std::string_view name, int& target, std::int64_t lowest, std::int64_t highest) const {
  if (const auto value = integer(name, lowest, highest)) target = static_cast<int>(*value);
}

void Fields::read(std::string_view name, bool& target) const {
  if (const auto value = boolean(name)) target = *value;
}

}  // namespace server
