#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "os.h"

namespace ggml::gguf {
namespace {

// Every file system that offers O_DIRECT accepts this alignment of offset, length and memory.
constexpr std::uint64_t kDirectAlignment = 4096;
constexpr std::size_t kBounceBytes = std::size_t{4} << 20;

bool is_aligned(const std::byte* at) {
  return reinterpret_cast<std::uintptr_t>(at) % kDirectAlignment == 0;
}

/// Memory for direct reads: `kBounceBytes` at an aligned address.
class BounceBuffer {
 public:
  BounceBuffer() : storage_(std::make_unique_for_overwrite<std::byte[]>(kBounceBytes + kDirectAlignment)) {
    void* at = storage_.get();
    std::size_t space = kBounceBytes + kDirectAlignment;
    aligned_ = static_cast<std::byte*>(std::align(kDirectAlignment, kBounceBytes, at, space));
  }
  [[nodiscard]] std::byte* data() const { return aligned_; }

 private:
  std::unique_ptr<std::byte[]> storage_;
  std::byte* aligned_ = nullptr;
};

/// One pread, repeated when a signal interrupts it; a negative result leaves errno.
ssize_t pread_once(int fd, std::span<std::byte> dst, std::uint64_t offset) {
  ssize_t got = 0;
  do {
    got = ::pread(fd, dst.data(), dst.size(), static_cast<off_t>(offset));
  } while (got < 0 && errno == EINTR);
  return got;
}

/// Whether a first read through O_DIRECT works: some file systems accept the flag and refuse the reads.
bool direct_reads_work(int fd) {
  const BounceBuffer buffer;
  return pread_once(fd, {buffer.data(), kDirectAlignment}, 0) >= 0;
}

[[noreturn]] void fail_read(const std::string& path, std::uint64_t offset, std::size_t wanted, ssize_t got) {
  const std::string cause = got < 0 ? system_text(errno) : std::string("the file ends before; it was cut off");
  throw Error(ErrorCode::io, strf("%s: byte %llu: cannot read %zu bytes: %s", path.c_str(),
                                  static_cast<unsigned long long>(offset), wanted, cause.c_str()));
}

}  // namespace

Reader::Reader(const std::string& path, ReadMode mode) : path_(path), mode_(mode) {
  OpenedFile file = open_for_reading(path);
  file_bytes_ = file.bytes;
  if (mode == ReadMode::direct) {
    Descriptor direct(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
    if (direct.get() >= 0 && direct_reads_work(direct.get())) {
      file.fd = std::move(direct);
    } else {
      mode_ = ReadMode::buffered;
      logf(LogLevel::warn, "%s: the file system refuses direct I/O, reading through the page cache", path.c_str());
    }
  }
  fd_ = file.fd.release();
}

Reader::~Reader() {
  if (fd_ >= 0) ::close(fd_);
}

Reader::Reader(Reader&& other) noexcept
    : path_(std::move(other.path_)),
      file_bytes_(other.file_bytes_),
      mode_(other.mode_),
      fd_(std::exchange(other.fd_, -1)) {}

Reader& Reader::operator=(Reader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_bytes_, other.file_bytes_);
  std::swap(mode_, other.mode_);
  std::swap(fd_, other.fd_);
  return *this;
}

void Reader::read(std::uint64_t offset, std::span<std::byte> dst) const {
  // Beyond off_t the system would see a negative offset.
  constexpr std::uint64_t kMaxOffset = std::uint64_t{1} << 62;
  if (offset > kMaxOffset || dst.size() > kMaxOffset) fail_read(path_, offset, dst.size(), 0);
  if (mode_ == ReadMode::direct) return read_direct(offset, dst);
  while (!dst.empty()) {
    const ssize_t got = pread_once(fd_, dst, offset);
    if (got <= 0) fail_read(path_, offset, dst.size(), got);
    dst = dst.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

void Reader::read_direct(std::uint64_t offset, std::span<std::byte> dst) const {
  std::optional<BounceBuffer> bounce;  // made when the first unaligned piece needs it
  while (!dst.empty()) {
    const std::uint64_t skip = offset % kDirectAlignment;
    const std::size_t whole = dst.size() - dst.size() % kDirectAlignment;
    if (skip == 0 && whole > 0 && is_aligned(dst.data())) {
      const ssize_t got = pread_once(fd_, dst.first(whole), offset);
      if (got <= 0) fail_read(path_, offset, dst.size(), got);
      dst = dst.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
      continue;
    }
    if (!bounce) bounce.emplace();
    const std::size_t wanted = static_cast<std::size_t>(skip) + std::min(dst.size(), kBounceBytes - kDirectAlignment);
    const std::size_t rounded = (wanted + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
    const ssize_t got = pread_once(fd_, {bounce->data(), rounded}, offset - skip);
    if (got <= static_cast<ssize_t>(skip)) fail_read(path_, offset, dst.size(), std::min<ssize_t>(got, 0));
    const std::size_t useful = std::min(static_cast<std::size_t>(got) - static_cast<std::size_t>(skip), dst.size());
    std::memcpy(dst.data(), bounce->data() + skip, useful);
    dst = dst.subspan(useful);
    offset += useful;
  }
}

}  // namespace ggml::gguf
