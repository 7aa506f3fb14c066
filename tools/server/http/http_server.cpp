// Transport: sockets, keys, CORS, errors. The endpoints are in routes.cpp.
#include "http/http_server.h"

#include <httplib.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>

#include "api/pieces.h"
#include "api/utilities.h"
#include "ggml/log.h"
#include "http/connection.h"
#include "http/connection_server.h"
#include "http/connection_threads.h"
#include "http/reply.h"

namespace server {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

namespace {

constexpr std::size_t kMaxBodyBytes =
    256u << 20;  // prompts of 10 MB are ordinary; this bounds what one request may make us hold

constexpr std::size_t kShownBytes = 64;  // of what a client sent, in an error

constexpr int kMostConnections = 1024;  // at a time, unless --threads-http asks for more: a thread each

/// Compares in time that depends on the lengths only, so that a key cannot be guessed letter by letter.
bool equal_keys(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

bool equal_without_case(std::string_view a, std::string_view b) {
  const auto same = [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

bool is_open_path(const std::string& path) {
  static constexpr const char* kOpen[] = {"/", "/health", "/v1/health", "/models", "/v1/models"};
  return std::any_of(std::begin(kOpen), std::end(kOpen), [&](const char* open) { return path == open; });
}

bool is_local_origin(const std::string& origin) {
  const std::size_t scheme = origin.find("://");
  if (scheme == std::string::npos) return false;
  std::string host = origin.substr(scheme + 3);
  const std::size_t port = host.rfind(':');
  if (port != std::string::npos && host.find(']', port) == std::string::npos) host.resize(port);
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

HttpError body_too_large() {
  return http_error(413, "invalid_request_error", strf("the body is larger than %zu MiB", kMaxBodyBytes >> 20));
}

/// The cause of a 400 that the library answers by itself.
std::string malformed_message(const httplib::Request& request) {
  const std::string begin = "this is no valid HTTP request: ";
  static constexpr const char* kKnown[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"};
  const bool known =
      std::any_of(std::begin(kKnown), std::end(kKnown), [&](const char* m) { return request.method == m; });
  // Both are empty when the first line could not be taken apart.
  if (!request.version.empty() && request.version != "HTTP/1.1" && request.version != "HTTP/1.0")
    return begin + "its version is '" + request.version.substr(0, 16) + "', this server speaks HTTP/1.0 and HTTP/1.1";
  if (!request.method.empty() && !known)
    return begin + "its method is '" + request.method.substr(0, 16) +
           "', GET, HEAD, POST and OPTIONS are answered here";
  return begin +
         "a malformed or too long line or header (at most 8 KiB each, 100 headers), a Content-Length that is no number "
         "or does not agree with the body, or broken chunks";
}

/// What the HTTP library refuses by a bare status.
std::string transport_message(const httplib::Request& request, int status) {
  switch (status) {
    case 400:
      return malformed_message(request);
    case 414:
      return "the address of the request is too long";
    case 415:
      return "compressed bodies are not accepted: send it without Content-Encoding";
    case 416:
      return "the Range header asks for bytes that do not exist";
    default:
      return strf("the request could not be handled (HTTP status %d)", status);
  }
}

/// The head tells the length of no body. One that comes nevertheless cannot be read: where it ends, nobody knows.
bool announces_no_body(const httplib::Request& request) {
  return (request.method == "POST" || request.method == "PUT" || request.method == "PATCH") &&
         !request.has_header("Content-Length") && !request.has_header("Transfer-Encoding");
}

/// What Transfer-Encoding names besides chunks, which alone are taken apart here; empty when nothing.
std::string foreign_coding(const httplib::Request& request) {
  const std::size_t n = request.get_header_value_count("Transfer-Encoding");
  std::string codings;
  for (std::size_t i = 0; i < n; ++i)
    codings += (i > 0 ? ", " : "") + request.get_header_value("Transfer-Encoding", "", i);
  return equal_without_case(codings, "chunked") ? std::string() : codings;
}

HttpError length_required() {
  return http_error(411, "invalid_request_error",
                    "the body is missing or has no length: send Content-Length, or Transfer-Encoding: chunked");
}

/// Refuses a body that this server cannot take, by its head alone.
bool refuse_framing(const httplib::Request& request, httplib::Response& response) {
  if (request.get_header_value_u64("Content-Length", 0) > kMaxBodyBytes) {
    send(response, body_too_large());  // before the body is read; what follows on the connection is no request
    return true;
  }
  if (const std::string coding = foreign_coding(request); !coding.empty()) {
    send(response, http_error(501, "not_supported_error",
                              "bodies are taken apart from chunks only, not from 'Transfer-Encoding: " +
                                  coding.substr(0, kShownBytes) + "': send it plain"));
    return true;
  }
  if (announces_no_body(request) && Connection::current().has_unannounced_body()) {
    send(response, length_required());
    return true;
  }
  return false;
}

/// In single quotes where a shell would take it apart.
std::string shell_word(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("/._-+,@").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Why bind() failed, by its errno (0: it did not come to that).
std::string reason_not_bound(const std::string& host, int error) {
  if (error == EADDRINUSE) return "the port is in use";
  if (error == EADDRNOTAVAIL) return "the address is not of this machine";
  if (error == EACCES || error == EPERM) return "this user may not (ports below 1024 are reserved)";
  if (error != 0) return std::strerror(error);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (failure != 0) return std::string("the name cannot be resolved: ") + gai_strerror(failure);
  freeaddrinfo(found);
  return "the system has no sockets of this kind";
}

/// Whether the connection stays open behind the answer, told in one way: the library adds to what is there already, and
/// keeps connections for HTTP/1.0 without the word that such a client waits for.
void settle_connection(const httplib::Request& request, bool crowded, httplib::Response& response) {
  std::string wish = request.get_header_value("Connection");
  std::transform(wish.begin(), wish.end(), wish.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool old = request.version == "HTTP/1.0";
  // Without a length only the end of the connection ends a body; this version has no chunks.
  const bool endless = old && response.content_provider_ != nullptr && !response.has_header("Content-Length");
  const bool close = response.get_header_value("Connection") == "close" || crowded || endless ||
                     wish.find("close") != std::string::npos ||
                     (old && request.get_header_value("Connection") != "Keep-Alive");
  response.headers.erase("Connection");
  if (close) {
    response.headers.erase("Keep-Alive");
    response.set_header("Connection", "close");
  } else if (old) {
    response.set_header("Connection", "keep-alive");
  }
}

bool list_contains(const std::string& list, const std::string& wanted) {
  std::size_t begin = 0;
  while (begin <= list.size()) {
    std::size_t end = std::min(list.find(',', begin), list.size());
    std::string item = list.substr(begin, end - begin);
    item.erase(0, item.find_first_not_of(' '));
    item.erase(item.find_last_not_of(' ') + 1);
    if (item == wanted) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

HttpServer::HttpServer(const common::Settings& settings)
    : settings_(settings), http_(std::make_unique<ConnectionServer>(open_requests_)), started_unix_s_(unix_seconds()) {
  const common::ServerSettings& server = settings.server;
  const int n_slots = settings.context.n_parallel.value_or(4);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int n_threads = server.threads_http > 0 ? server.threads_http : std::max(n_slots + 4, cores - 1);
  const auto n_max = static_cast<std::size_t>(std::max(n_threads, kMostConnections));
  http_->new_task_queue = [this, n_threads, n_max] {
    // Owned by the library, which keeps it until the last handler has ended.
    auto threads = std::make_unique<ConnectionThreads>(static_cast<std::size_t>(n_threads), n_max);
    connections_ = threads.get();
    return threads.release();
  };
  http_->set_read_timeout(server.timeout_s);
  http_->set_write_timeout(server.timeout_s);
  http_->set_payload_max_length(kMaxBodyBytes);
  http_->set_tcp_nodelay(true);
  // Without --reuse-port a taken port is an error: two servers that share one would each get half of the requests.
  http_->set_socket_options([reuse = server.reuse_port](int socket) {
    const int on = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (reuse) setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
  });
  http_->set_default_headers({{"Server", "llama.cpp"}});
  add_middleware();
  add_routes();

  listen();
  thread_ = std::thread([this] { http_->listen_after_bind(); });
  http_->wait_until_ready();
}

void HttpServer::listen() {
  const common::ServerSettings& server = settings_.server;
  const std::string& host = server.host;
  if (names_socket_file(host)) SocketFile::make_room(host);
  int error = 0;
  http_->set_error_logger([&error](const httplib::Error& what, const httplib::Request*) {
    if (what == httplib::Error::BindIPAddress || what == httplib::Error::Listen) error = errno;
  });
  if (names_socket_file(host)) {
    http_->set_address_family(AF_UNIX);
    if (!http_->bind_to_port(host, 1)) {  // a port that means nothing but must not be 0
      throw Error(ErrorCode::io,
                  strf("cannot listen on %s: %s", host.c_str(), error != 0 ? std::strerror(error) : "no Unix sockets"),
                  "choose another with --host");
    }
    socket_file_ = std::make_shared<SocketFile>(host);
  } else if (server.port == 0) {
    port_ = http_->bind_to_any_port(host);
  } else {
    port_ = http_->bind_to_port(host, server.port) ? server.port : -1;
  }
  http_->set_error_logger(nullptr);
  if (port_ >= 0) return;
  throw Error(ErrorCode::io,
              strf("cannot listen on %s port %d: %s", host.c_str(), server.port, reason_not_bound(host, error).c_str()),
              "choose another with --host and --port");
}

std::string HttpServer::address() const {
  if (socket_file_ != nullptr) return settings_.server.host;
  const bool is_ipv6 = settings_.server.host.find(':') != std::string::npos;
  return strf(is_ipv6 ? "http://[%s]:%d" : "http://%s:%d", settings_.server.host.c_str(), port_);
}

std::string HttpServer::curl_command() const {
  std::string command = "curl ";
  if (!settings_.server.api_keys.empty()) command += "-H 'Authorization: Bearer YOUR_KEY' ";
  if (socket_file_ != nullptr) command += "--unix-socket " + shell_word(address()) + " ";
  return command + (socket_file_ != nullptr ? "http://localhost" : address()) + settings_.server.api_prefix;
}

HttpServer::~HttpServer() {
  stop(std::chrono::milliseconds(0));
}

void HttpServer::stop(std::chrono::milliseconds longest) {
  open_requests_.wait_until_none(longest);
  http_->end();
  if (thread_.joinable()) thread_.join();
  if (socket_file_ != nullptr) socket_file_->remove();
}

void HttpServer::set_service(std::shared_ptr<Service> service) {
  const std::lock_guard lock(mutex_);
  service_ = std::move(service);
}

std::shared_ptr<Service> HttpServer::service() const {
  const std::lock_guard lock(mutex_);
  return service_;
}

bool HttpServer::has_key(const httplib::Request& request) const {
  std::string key = request.get_header_value("X-Api-Key");
  const std::string authorization = request.get_header_value("Authorization");
  constexpr std::string_view kBearer = "Bearer ";
  if (authorization.compare(0, kBearer.size(), kBearer) == 0) key = authorization.substr(kBearer.size());
  bool found = false;
  for (const std::string& known : settings_.server.api_keys) found = equal_keys(key, known) || found;
  return found;
}

void HttpServer::add_cors(const httplib::Request& request, httplib::Response& response) const {
  const common::ServerSettings& server = settings_.server;
  const std::string origin = request.get_header_value("Origin");
  std::string allowed;
  if (server.cors_origins == "*") {
    allowed = server.cors_credentials && !origin.empty() ? origin : "*";
  } else if (server.cors_origins == "localhost") {
    if (is_local_origin(origin)) allowed = origin;
  } else if (list_contains(server.cors_origins, origin)) {
    allowed = origin;
  }
  if (!allowed.empty()) response.set_header("Access-Control-Allow-Origin", allowed);
  if (request.method != "OPTIONS") return;
  response.set_header("Access-Control-Allow-Credentials", server.cors_credentials ? "true" : "false");
  response.set_header("Access-Control-Allow-Methods", server.cors_methods);
  response.set_header("Access-Control-Allow-Headers", server.cors_headers);
}

void HttpServer::add_middleware() {
  http_->set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    add_cors(request, response);
    if (request.method == "OPTIONS" && !refuse_framing(request, response)) response.set_content("", "text/html");
    return request.method == "OPTIONS" || refuse_head(request, response) ? httplib::Server::HandlerResponse::Handled
                                                                         : httplib::Server::HandlerResponse::Unhandled;
  });
  // A client that waits for a word before it sends the body learns here what the head alone is refused for.
  http_->set_expect_100_continue_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (request.method == "OPTIONS" || !refuse_head(request, response))
      return static_cast<int>(httplib::StatusCode::Continue_100);
    add_cors(request, response);
    return response.status;
  });
  http_->set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty()) return;
    switch (response.status) {
      case 404:
        send(response, http_error(404, "not_found_error", "File Not Found"));
        break;
      case 413:
        send(response, body_too_large());
        break;
      case 400:
        if (Connection::current().timed_out()) {
          send(response, http_error(408, "invalid_request_error",
                                    strf("the rest of the request did not come within %d s (--timeout)",
                                         settings_.server.timeout_s)));
          break;
        }
        [[fallthrough]];
      default:
        send(response, http_error(response.status, response.status < 500 ? "invalid_request_error" : "server_error",
                                  transport_message(request, response.status)));
    }
  });
  http_->set_post_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    // The library has announced the end of the connection behind all errors: where a broken request ends is not known.
    settle_connection(request, crowded(), response);
    if (response.get_header_value("Connection") == "close") Connection::current().end_behind_answer();
  });
}

bool HttpServer::refuse_head(const httplib::Request& request, httplib::Response& response) const {
  if (refuse_framing(request, response)) return true;
  std::string path = request.path;
  const std::string& prefix = settings_.server.api_prefix;
  if (!prefix.empty() && path.compare(0, prefix.size(), prefix) == 0) path.erase(0, prefix.size());
  if (!settings_.server.api_keys.empty() && !is_open_path(path) && !has_key(request)) {
    send(response, http_error(401, "authentication_error", "Invalid API Key"));
    return true;
  }
  return refuse_method(request, response);
}

bool HttpServer::crowded() const {
  return connections_->crowded();
}

std::string HttpServer::allowed_methods(std::string_view path) const {
  std::string methods;
  for (const Route& route : routes_) {
    const std::size_t same = std::min(route.path.find(':'), route.path.size());
    const bool matches = same == route.path.size()
                             ? path == route.path
                             : path.substr(0, same) == route.path.substr(0, same) && path.find('/', same) == path.npos;
    if (matches) methods += route.method == "GET" ? "GET, HEAD, " : "POST, ";
  }
  return methods.empty() ? methods : methods + "OPTIONS";
}

bool HttpServer::refuse_method(const httplib::Request& request, httplib::Response& response) const {
  const std::string allowed = allowed_methods(request.path);
  if (allowed.empty() || (", " + allowed + ",").find(", " + request.method + ",") != std::string::npos) return false;
  response.set_header("Allow", allowed);
  send(response, http_error(405, "invalid_request_error",
                            strf("%s is not answered at %s, which takes %s", request.method.c_str(),
                                 request.path.c_str(), allowed.c_str())));
  return true;
}

void HttpServer::route(const char* method, const std::string& path, Handler handler, bool needs_body) {
  const auto run = [this, handler, needs_body](const httplib::Request& request, httplib::Response& response) {
    try {
      const std::shared_ptr<Service> current = service();
      if (current == nullptr) {
        send(response, http_error(503, "unavailable_error", "Loading model"));
        return;
      }
      // It is still under way perhaps, and would be taken for the next request.
      if (needs_body && announces_no_body(request)) {
        send(response, length_required());
        return;
      }
      (this->*handler)(request, response, current);
    } catch (const Error& error) {
      send(response, to_http(error));
    } catch (const std::bad_alloc&) {
      send(response, http_error(500, "server_error", "the server has not enough memory for this request"));
    } catch (const std::exception& error) {
      // A fault of ours, told in the words of some library: for the log.
      ggml::logf(ggml::LogLevel::error, "%s %s: %s", request.method.c_str(), request.path.c_str(), error.what());
      send(response, http_error(500, "server_error", "an internal error; the log of the server says more"));
    }
  };
  const std::string full = settings_.server.api_prefix + path;
  routes_.push_back({full, method});
  if (method[0] == 'G') {
    http_->Get(full, run);
  } else {
    http_->Post(full, run);
  }
}

}  // namespace server
