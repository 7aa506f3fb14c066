#pragma once

#include <httplib.h>

#include "api/error_json.h"

namespace server {

inline void send(httplib::Response& response, const Json& body, int status = 200) {
  response.status = status;
  response.set_content(dump(body), "application/json; charset=utf-8");
}

inline void send(httplib::Response& response, const HttpError& error) {
  send(response, error.body, error.status);
}

}  // namespace server
