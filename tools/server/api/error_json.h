#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "ggml/error.h"

namespace server {

using Json = nlohmann::ordered_json;

/// An error as HTTP shows it: status and body {"error": {code, message, type, ...}}.
struct HttpError {
  int status = 500;
  Json body;
};

/// The one table from our error codes to HTTP. The hint follows the message after a full stop.
[[nodiscard]] HttpError to_http(const ggml::Error& error);
/// As above, with the two numbers that clients read when a prompt is too long.
[[nodiscard]] HttpError to_http(const ggml::Error& error, int n_prompt, int n_ctx);
[[nodiscard]] HttpError http_error(int status, std::string_view type, std::string_view message);

/// JSON text of a value; invalid UTF-8 in strings becomes U+FFFD.
[[nodiscard]] std::string dump(const Json& value);

}  // namespace server
