#include "os.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "ggml/error.h"

namespace ggml::gguf {

bool Descriptor::close() noexcept {
  const int fd = release();
  return fd < 0 || ::close(fd) == 0;
}

std::string system_text(int error_number) {
  return std::generic_category().message(error_number);
}

OpenedFile open_for_reading(const std::string& path, int extra_flags) {
  // O_NONBLOCK: a named pipe must give the error below, not wait for a writer.
  OpenedFile file{Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | extra_flags)), 0};
  if (file.fd.get() < 0) {
    const int reason = errno;
    throw Error(reason == ENOENT || reason == ENOTDIR ? ErrorCode::not_found : ErrorCode::io,
                path + ": cannot open: " + system_text(reason));
  }
  struct stat facts {};
  if (::fstat(file.fd.get(), &facts) != 0) {
    throw Error(ErrorCode::io, path + ": cannot read the size: " + system_text(errno));
  }
  if (!S_ISREG(facts.st_mode)) {
    throw Error(ErrorCode::io, path + ": is a " + (S_ISDIR(facts.st_mode) ? "folder" : "device or pipe") +
                                   ", a regular file was expected");
  }
  file.bytes = static_cast<std::uint64_t>(facts.st_size);
  return file;
}

}  // namespace ggml::gguf
