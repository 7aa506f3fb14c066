#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>

namespace server {

/// A --host that is a Unix socket's file.
[[nodiscard]] bool names_socket_file(const std::string& host);

/// The file of a Unix socket that somebody listens on. Removed at the end, unless another has taken its place. All
/// methods are thread-safe.
class SocketFile {
 public:
  /// Makes room: removes the socket file of a server that is gone. Throws Error(io) when a server listens there, when
  /// something else has that name, or when the name is too long.
  static void make_room(const std::string& path);

  /// Pre: the socket is bound.
  explicit SocketFile(std::string path);
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;
  ~SocketFile() { remove(); }

  /// Idempotent.
  void remove() noexcept;

 private:
  const std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::atomic<bool> there_{false};
};

}  // namespace server
