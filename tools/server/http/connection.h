#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace server {

/// A client's connection, as the stream that the HTTP library reads requests from and writes answers to. Unlike the
/// library's own it lives for all requests of the connection, so that what was read beyond one is there for the next,
/// and it tells a client that has only finished sending (it still reads) from one that has left. One thread's.
class Connection final : public httplib::Stream {
 public:
  using Clock = std::chrono::steady_clock;

  /// The socket, `handle`, stays the caller's. `read_timeout`, `write_timeout`: without a byte. Waits fail once
  /// `ending` is set.
  Connection(int handle, std::chrono::seconds read_timeout, std::chrono::seconds write_timeout,
             const std::atomic<bool>& ending);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() override;

  /// The calling thread's; a handler's is that of its request. Pre: there is one.
  [[nodiscard]] static Connection& current();

  /// Waits for the first byte of a request, no longer than `longest`. False: none came, or the client has left.
  [[nodiscard]] bool await_request(std::chrono::seconds longest);
  /// Bytes of a body stand behind the head of a request that announced none. Those that look like the next request
  /// are no body.
  [[nodiscard]] bool has_unannounced_body() const;

  /// The other side has reset or closed both directions.
  [[nodiscard]] bool hung_up() const;
  /// Whether a read has waited in vain for the whole of the read timeout.
  [[nodiscard]] bool timed_out() const { return error_ == httplib::Error::Timeout; }
  /// The same of a write, whose client does not read.
  [[nodiscard]] bool write_timed_out() const { return write_timed_out_; }
  /// The client has closed its direction, which may mean that it has left or only that it has nothing more to send.
  /// Who writes something learns which: the system of one that has left answers with a reset. True at the first call
  /// and then every few seconds.
  [[nodiscard]] bool wants_probe();

  /// No further request is read from this connection.
  void end_behind_answer() { ends_ = true; }
  [[nodiscard]] bool ends() const { return ends_; }

  // httplib::Stream
  [[nodiscard]] bool is_readable() const override { return begin_ < end_; }
  [[nodiscard]] bool wait_readable() const override;
  [[nodiscard]] bool wait_writable() const override;
  [[nodiscard]] bool is_peer_alive() const override { return !hung_up(); }
  ssize_t read(char* to, std::size_t size) override;
  ssize_t write(const char* from, std::size_t size) override;
  using httplib::Stream::write;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  [[nodiscard]] socket_t socket() const override { return handle_; }
  [[nodiscard]] time_t duration() const override;
  void set_read_timeout(time_t seconds, time_t microseconds) override;
  const char* buffered_data(std::size_t& size) const override;
  void consume_buffered(std::size_t size) override { begin_ += size; }

 private:
  [[nodiscard]] bool wait(short events, std::chrono::milliseconds longest) const;
  ssize_t receive(char* to, std::size_t size);

  const int handle_;
  std::chrono::milliseconds read_timeout_;
  const std::chrono::milliseconds write_timeout_;
  const std::atomic<bool>& ending_;
  const Clock::time_point start_ = Clock::now();
  Connection* const outer_;  // the thread's before this one
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // of what has been received and not read, in buffer_
  bool ends_ = false;
  mutable bool write_timed_out_ = false;
  bool probed_ = false;
  Clock::time_point last_probe_{};
};

/// Says that nothing more is sent and closes, but first takes what the client is still sending: unread bytes would make
/// the system reset the connection, and the client might lose the answer.
void close_gently(int handle) noexcept;

}  // namespace server
