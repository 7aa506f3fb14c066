#include "http/connection.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "ggml/error.h"

namespace server {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kBufferBytes = 16384;
constexpr milliseconds kSlice{100};  // how soon a wait notices that the server ends
constexpr std::chrono::seconds kProbeInterval{5};

thread_local Connection* thread_connection = nullptr;

int poll_one(int handle, short events, milliseconds longest, short& found) {
  pollfd one{handle, events, 0};
  const int n = ::poll(&one, 1, static_cast<int>(longest.count()));
  found = one.revents;
  return n;
}

using NameOf = int (*)(int, sockaddr*, socklen_t*);

void address(int handle, NameOf name_of, std::string& ip, int& port) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  auto* const name = reinterpret_cast<sockaddr*>(&storage);
  char host[NI_MAXHOST] = "", service[NI_MAXSERV] = "";
  if (name_of(handle, name, &length) != 0 || (name->sa_family != AF_INET && name->sa_family != AF_INET6)) return;
  if (getnameinfo(name, length, host, sizeof(host), service, sizeof(service), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return;
  ip = host;
  port = static_cast<int>(std::strtol(service, nullptr, 10));
}

}  // namespace

Connection::Connection(int handle, std::chrono::seconds read_timeout, std::chrono::seconds write_timeout,
                       const std::atomic<bool>& ending)
    : handle_(handle),
      read_timeout_(read_timeout),
      write_timeout_(write_timeout),
      ending_(ending),
      outer_(thread_connection),
      buffer_(kBufferBytes) {
  thread_connection = this;
}

Connection::~Connection() {
  thread_connection = outer_;
}

Connection& Connection::current() {
  TANDEM_ASSERT(thread_connection != nullptr, "only threads that serve a connection ask for it");
  return *thread_connection;
}

bool Connection::wait(short events, milliseconds longest) const {
  const Clock::time_point end = Clock::now() + longest;
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
    short found = 0;
    const int n = poll_one(handle_, events, std::clamp(left, milliseconds(0), kSlice), found);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
    if (ending_.load() || left <= milliseconds(0)) return false;
  }
}

bool Connection::await_request(std::chrono::seconds longest) {
  if (is_readable()) return true;
  if (!wait(POLLIN, longest)) return false;
  begin_ = 0;
  end_ = 0;
  const ssize_t n = receive(buffer_.data(), buffer_.size());
  end_ = n > 0 ? static_cast<std::size_t>(n) : 0;
  return n > 0;
}

bool Connection::has_unannounced_body() const {
  char first = 0;
  if (is_readable()) {
    first = buffer_[begin_];
  } else if (::recv(handle_, &first, 1, MSG_PEEK | MSG_DONTWAIT) != 1) {
    return false;
  }
  return first < 'A' || first > 'Z';
}

bool Connection::hung_up() const {
  short found = 0;
  return poll_one(handle_, 0, milliseconds(0), found) > 0 && (found & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

bool Connection::wants_probe() {
  short found = 0;
  if (poll_one(handle_, POLLRDHUP, milliseconds(0), found) <= 0 || (found & POLLRDHUP) == 0) return false;
  const Clock::time_point now = Clock::now();
  if (probed_ && now - last_probe_ < kProbeInterval) return false;
  probed_ = true;
  last_probe_ = now;
  return true;
}

bool Connection::wait_readable() const {
  return is_readable() || wait(POLLIN, read_timeout_);
}

bool Connection::wait_writable() const {
  if (wait(POLLOUT, write_timeout_)) return true;
  write_timed_out_ = !ending_.load();
  return false;
}

ssize_t Connection::receive(char* to, std::size_t size) {
  while (true) {
    const ssize_t n = ::recv(handle_, to, size, MSG_DONTWAIT);
    if (n == 0) error_ = httplib::Error::ConnectionClosed;
    if (n >= 0) return n;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      error_ = httplib::Error::Read;
      return -1;
    }
    if (!wait(POLLIN, read_timeout_)) {
      error_ = httplib::Error::Timeout;
      return -1;
    }
  }
}

ssize_t Connection::read(char* to, std::size_t size) {
  if (!is_readable()) {
    if (size >= buffer_.size()) return receive(to, size);
    begin_ = 0;
    end_ = 0;
    const ssize_t n = receive(buffer_.data(), buffer_.size());
    if (n <= 0) return n;
    end_ = static_cast<std::size_t>(n);
  }
  const std::size_t n = std::min(size, end_ - begin_);
  std::memcpy(to, buffer_.data() + begin_, n);
  begin_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t Connection::write(const char* from, std::size_t size) {
  while (true) {
    const ssize_t n = ::send(handle_, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) return n;
    if (errno == EINTR) continue;
    if ((errno != EAGAIN && errno != EWOULDBLOCK) || !wait_writable()) return -1;
  }
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  address(handle_, ::getpeername, ip, port);
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  address(handle_, ::getsockname, ip, port);
}

time_t Connection::duration() const {
  return static_cast<time_t>(std::chrono::duration_cast<milliseconds>(Clock::now() - start_).count());
}

void Connection::set_read_timeout(time_t seconds, time_t microseconds) {
  read_timeout_ = std::chrono::seconds(seconds) + milliseconds(microseconds / 1000);
}

const char* Connection::buffered_data(std::size_t& size) const {
  size = end_ - begin_;
  return size > 0 ? buffer_.data() + begin_ : nullptr;
}

void close_gently(int handle) noexcept {
  constexpr milliseconds kSilence{100}, kLongest{1000};
  ::shutdown(handle, SHUT_WR);
  const auto end = Connection::Clock::now() + kLongest;
  char dropped[kBufferBytes];
  short found = 0;
  while (Connection::Clock::now() < end && poll_one(handle, POLLIN, kSilence, found) > 0) {
    if (::recv(handle, dropped, sizeof(dropped), MSG_DONTWAIT) <= 0) break;
  }
  ::close(handle);
}

}  // namespace server
