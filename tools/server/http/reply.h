#pragma once

#include <httplib.h>

#include <string>
#include <utility>

#include "api/error_json.h"

namespace server {

/// A body that is JSON already.
inline void send_text(httplib::Response& response, std::string json, int status = 200) {
  response.status = status;
  response.body = std::move(json);
  response.headers.erase("Content-Type");
  response.set_header("Content-Type", "application/json; charset=utf-8");
}

inline void send(httplib::Response& response, const Json& body, int status = 200) {
  send_text(response, dump(body), status);
}

inline void send(httplib::Response& response, const HttpError& error) {
  send(response, error.body, error.status);
}

}  // namespace server
