#include "api/error_json.h"

namespace server {
namespace {

using ggml::ErrorCode;

struct Row {
  ErrorCode code;
  int status;
  const char* type;
};

constexpr Row kRows[] = {
    {ErrorCode::invalid_argument, 400, "invalid_request_error"},
    {ErrorCode::exceeds_limit, 400, "invalid_request_error"},
    {ErrorCode::not_found, 404, "not_found_error"},
    {ErrorCode::unsupported, 501, "not_supported_error"},
    {ErrorCode::unavailable, 503, "unavailable_error"},
    {ErrorCode::cancelled, 503, "unavailable_error"},
};

}  // namespace

HttpError http_error(int status, std::string_view type, std::string_view message) {
  return {status, {{"error", {{"code", status}, {"message", message}, {"type", type}}}}};
}

HttpError to_http(const ggml::Error& error) {
  std::string message = error.message();
  if (!error.hint().empty()) message += " (" + error.hint() + ")";
  for (const Row& row : kRows) {
    if (row.code == error.code()) return http_error(row.status, row.type, message);
  }
  return http_error(500, "server_error", message);
}

HttpError to_http(const ggml::Error& error, int n_prompt, int n_ctx) {
  // A context that fills up while an answer is written is the server's limit, not the request's fault.
  if (error.code() == ErrorCode::exceeds_limit && n_prompt < n_ctx)
    return http_error(500, "server_error", error.message());
  HttpError http = to_http(error);
  if (error.code() != ErrorCode::exceeds_limit) return http;
  http.body["error"]["message"] = error.message();
  http.body["error"]["type"] = "exceed_context_size_error";
  http.body["error"]["n_prompt_tokens"] = n_prompt;
  http.body["error"]["n_ctx"] = n_ctx;
  return http;
}

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace server
