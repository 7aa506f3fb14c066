#include "http/connection_server.h"

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "http/connection.h"

namespace server {
namespace {

/// What the library would do with a request and we would not.
void adjust(httplib::Request& request) {
  for (const std::string_view scheme : {"http://", "https://"}) {  // a request as to a proxy names the whole address
    if (request.path.compare(0, scheme.size(), scheme) != 0) continue;
    const std::size_t path = request.path.find('/', scheme.size());
    request.path = path == std::string::npos ? "/" : request.path.substr(path);
  }
  if (request.version == "HTTP/1.0") request.headers.erase("Expect");  // it has no interim answers
  if (request.method != "POST") return;
  request.ranges.clear();  // parts exist of files only, and by GET
  request.headers.erase(
      "Content-Type");  // bodies are JSON, whatever a client calls them: none is taken apart as a form
}

}  // namespace

void ConnectionServer::end() noexcept {
  ending_ = true;
  stop();
}

bool ConnectionServer::process_and_close_socket(socket_t socket) {
  using std::chrono::seconds;
  bool answered = false;
  {
    Connection connection(socket, seconds(read_timeout_sec_), seconds(write_timeout_sec_), ending_);
    std::string remote, local;
    int remote_port = 0, local_port = 0;
    connection.get_remote_ip_and_port(remote, remote_port);
    connection.get_local_ip_and_port(local, local_port);
    for (std::size_t left = keep_alive_max_count_; left > 0; --left) {
      if (ending_ || !connection.await_request(seconds(keep_alive_timeout_sec_))) break;
      const std::shared_ptr<void> ticket = requests_.enter();
      bool closed = false;
      answered = process_request(connection, remote, remote_port, local, local_port, left == 1, closed, adjust);
      if (!answered || closed || connection.ends()) break;
    }
  }
  close_gently(socket);
  return answered;
}

}  // namespace server
