#include "http/socket_file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "ggml/error.h"
#include "ggml/log.h"

namespace server {
namespace {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

/// The errno of an attempt to connect; 0: somebody listens.
int try_to_connect(const std::string& path) {
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return errno;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int result = ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = result == 0 ? 0 : errno;
  ::close(probe);
  return error;
}

}  // namespace

bool names_socket_file(const std::string& host) {
  constexpr std::string_view kEnd = ".sock";
  return host.size() > kEnd.size() && std::string_view(host).ends_with(kEnd);
}

void SocketFile::make_room(const std::string& path) {
  constexpr std::size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() > kLongest) {
    throw Error(ErrorCode::io,
                strf("cannot listen on %s: the name of a Unix socket has at most %zu bytes, this one %zu", path.c_str(),
                     kLongest, path.size()),
                "choose a shorter one with --host");
  }
  struct stat there {};
  if (::lstat(path.c_str(), &there) != 0) return;  // bind() says what is wrong, if anything is
  if (!S_ISSOCK(there.st_mode)) {
    throw Error(ErrorCode::io, "cannot listen on " + path + ": a file of that name exists and is no socket",
                "remove it, or choose another with --host");
  }
  // Only a refused connection means that nobody listens: a full queue or missing rights do not.
  const int error = try_to_connect(path);
  if (error != ECONNREFUSED) {
    throw Error(ErrorCode::io,
                "cannot listen on " + path +
                    (error == 0 || error == EAGAIN ? ": another server listens there"
                                                   : strf(": its socket is there already: %s", std::strerror(error))),
                "stop that server, or choose another name with --host");
  }
  ::unlink(path.c_str());
}

SocketFile::SocketFile(std::string path) : path_(std::move(path)) {
  struct stat mine {};
  if (::lstat(path_.c_str(), &mine) != 0) return;
  device_ = mine.st_dev;
  inode_ = mine.st_ino;
  there_ = true;
}

void SocketFile::remove() noexcept {
  struct stat now {};
  if (!there_.exchange(false) || ::lstat(path_.c_str(), &now) != 0) return;
  if (now.st_dev == device_ && now.st_ino == inode_) ::unlink(path_.c_str());
}

}  // namespace server
