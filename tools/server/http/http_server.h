#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "api/service.h"
#include "common/args/settings.h"
#include "http/answering.h"
#include "http/open_requests.h"
#include "http/socket_file.h"

namespace httplib {
struct Request;
struct Response;
}  // namespace httplib

namespace server {

class ConnectionServer;
class ConnectionThreads;

/// The HTTP side: transport, keys, CORS, routes. It listens before the model is there and answers 503 until
/// set_service(). Handlers run on the library's threads and never touch the model; all methods are thread-safe.
class HttpServer {
 public:
  /// Binds the port, or the Unix socket's file. Throws Error(io) naming it, and the cause, when that fails.
  explicit HttpServer(const common::Settings& settings);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Where it listens, for people: http://HOST:PORT or the socket's file.
  [[nodiscard]] std::string address() const;
  /// Null without one.
  [[nodiscard]] std::shared_ptr<SocketFile> socket_file() const { return socket_file_; }
  void set_service(std::shared_ptr<Service> service);
  /// Waits until the open requests have been answered, but no longer than `longest`; then stops accepting, cuts what is
  /// still being written and waits for the handlers. Idempotent.
  void stop(std::chrono::milliseconds longest);
  /// Shortens the wait for requests of a stop() in another thread.
  void hurry(std::chrono::milliseconds longest) { open_requests_.hurry(longest); }
  /// Requests that have not been answered in full.
  [[nodiscard]] int n_open_requests() const { return open_requests_.count(); }

 private:
  using Handler = void (HttpServer::*)(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  enum class Access : std::uint8_t { needs_key, open };

  void listen();
  void add_middleware();
  void add_routes();
  /// Queues the request and writes its answer, whole or as server-sent events.
  void answer(CompletionRequest completion, Answering::MakeFormat format, const httplib::Request& request,
              httplib::Response& response, const std::shared_ptr<Service>& service);
  void route(const char* method, const std::string& path, Handler handler, bool needs_body = false);
  /// For 405: what the path is answered to, as the header Allow has it; empty for a path without a handler.
  [[nodiscard]] std::string allowed_methods(std::string_view path) const;
  /// True, with the error in `response`, for what needs no look at the body: its size and form, the key, the method.
  [[nodiscard]] bool refuse_head(const httplib::Request& request, httplib::Response& response) const;
  /// 405 and true when the path is there, but not for this method.
  [[nodiscard]] bool refuse_method(const httplib::Request& request, httplib::Response& response) const;
  /// What a client on this machine types, up to a path.
  [[nodiscard]] std::string curl_command() const;
  [[nodiscard]] bool has_key(const httplib::Request& request) const;
  void add_cors(const httplib::Request& request, httplib::Response& response) const;
  [[nodiscard]] std::shared_ptr<Service> service() const;
  /// Connections wait for threads: those that have had an answer make room.
  [[nodiscard]] bool crowded() const;

  void health(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void models(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void model_tags(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void props(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void change_props(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void slots(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void slot_action(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void metrics(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void adapters(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void change_adapters(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void tokenize(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void detokenize(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void apply_template(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void count_tokens(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void native_completion(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void text_completion(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void chat_completion(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void disabled(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);
  void not_available(const httplib::Request&, httplib::Response&, const std::shared_ptr<Service>&);

  const common::Settings& settings_;
  OpenRequests open_requests_;  // before http_, which counts in it
  std::unique_ptr<ConnectionServer> http_;
  std::shared_ptr<SocketFile> socket_file_;
  struct Route {
    std::string path;         // with the prefix; a segment that begins with ':' stands for any
    std::string_view method;  // GET or POST
  };
  std::vector<Route> routes_;                       // set before the first handler runs
  const ConnectionThreads* connections_ = nullptr;  // the library's; set before the first handler runs
  int port_ = 0;
  std::int64_t started_unix_s_ = 0;
  mutable std::mutex mutex_;  // guards service_
  std::shared_ptr<Service> service_;
  std::thread thread_;
};

}  // namespace server
