#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "os.h"

namespace ggml::gguf {
namespace {

/// The whole pages that cover [offset, offset + bytes), cut to the mapping.
std::span<const std::byte> pages(std::span<const std::byte> all, std::uint64_t offset, std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (offset >= all.size()) return {};
  const std::uint64_t end = offset + std::min<std::uint64_t>(bytes, all.size() - offset);
  const std::uint64_t begin = offset - offset % page;
  return all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

void* address(std::span<const std::byte> range) {
  return const_cast<std::byte*>(range.data());  // NOLINT: the system calls take void* for read-only ranges too
}

}  // namespace

Mapping::Mapping(const std::string& path) {
  const OpenedFile file = open_for_reading(path);
  if (file.bytes == 0) return;
  void* at = ::mmap(nullptr, static_cast<std::size_t>(file.bytes), PROT_READ, MAP_SHARED, file.fd.get(), 0);
  if (at == MAP_FAILED) {
    throw Error(ErrorCode::io,
                strf("%s: cannot map %llu bytes: %s", path.c_str(), static_cast<unsigned long long>(file.bytes),
                     system_text(errno).c_str()),
                "use --no-mmap");
  }
  bytes_ = {static_cast<const std::byte*>(at), static_cast<std::size_t>(file.bytes)};
}

Mapping::~Mapping() {
  if (!bytes_.empty()) ::munmap(address(bytes_), bytes_.size());
}

Mapping::Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

void Mapping::will_need(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  const std::span<const std::byte> range = pages(bytes_, offset, bytes);
  if (!range.empty()) ::madvise(address(range), range.size(), MADV_WILLNEED);  // advice: failing changes nothing
}

void Mapping::lock(std::uint64_t offset, std::uint64_t bytes) const {
  const std::span<const std::byte> range = pages(bytes_, offset, bytes);
  if (range.empty() || ::mlock(address(range), range.size()) == 0) return;
  const int reason = errno;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string allowed = limit.rlim_cur == RLIM_INFINITY
                                  ? std::string("unlimited")
                                  : strf("%llu bytes", static_cast<unsigned long long>(limit.rlim_cur));
  throw Error(ErrorCode::out_of_memory,
              strf("cannot lock %zu bytes of the model in memory: %s (limit: %s)", range.size(),
                   system_text(reason).c_str(), allowed.c_str()),
              "raise the limit with `ulimit -l unlimited`, or leave --mlock out");
}

}  // namespace ggml::gguf
