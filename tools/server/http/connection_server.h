#pragma once

#include <httplib.h>

#include <atomic>

#include "http/open_requests.h"

namespace server {

/// The HTTP library's server, but with connections of our own (see Connection).
class ConnectionServer final : public httplib::Server {
 public:
  /// Counts in `requests`, which must outlive it.
  explicit ConnectionServer(OpenRequests& requests) : requests_(requests) {}

  /// No further connections, idle ones are closed, and answers that are still being written are cut.
  void end() noexcept;

 private:
  bool process_and_close_socket(socket_t socket) override;

  OpenRequests& requests_;
  std::atomic<bool> ending_{false};
};

}  // namespace server
