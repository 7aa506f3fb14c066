#pragma once

#include <cstdint>
#include <string>
#include <utility>

/// The few operating system calls of the readers and the writer, with errors that name the file.
namespace ggml::gguf {

/// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  /// False when the system reports an error of an earlier write only now; errno says which.
  bool close() noexcept;

 private:
  int fd_ = -1;
};

struct OpenedFile {
  Descriptor fd;
  std::uint64_t bytes = 0;
};

/// Opens a regular file for reading; `extra_flags` are added (O_DIRECT). Throws Error(not_found | io) naming it.
[[nodiscard]] OpenedFile open_for_reading(const std::string& path, int extra_flags = 0);

/// "No such file or directory" and so on.
[[nodiscard]] std::string system_text(int error_number);

}  // namespace ggml::gguf
