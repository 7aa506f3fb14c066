#include "sim/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "ggml/error.h"
#include "ggml/log.h"

namespace ggml::sim {
namespace {

constexpr std::size_t kGranule = 256;  // allocations on a card are aligned to it, and so they count

}  // namespace

class GuardedMemory::Block final : public Buffer {
 public:
  Block(GuardedMemory& memory, const Region& region, std::size_t bytes, std::uint64_t counted)
      : memory_(memory), region_(region), bytes_(bytes), counted_(counted) {}
  ~Block() override { memory_.release(region_.start, counted_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  [[nodiscard]] std::byte* data() noexcept override { return static_cast<std::byte*>(region_.start); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] BufferKind kind() const noexcept override { return BufferKind::device; }

 private:
  GuardedMemory& memory_;
  const Region region_;
  const std::size_t bytes_;
  const std::uint64_t counted_;
};

std::unique_ptr<Buffer> GuardedMemory::allocate(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  const std::uint64_t counted = (static_cast<std::uint64_t>(bytes) + kGranule - 1) / kGranule * kGranule;
  if (counted > capacity_ - used_) {
    throw DeviceError(
        ErrorCode::out_of_memory,
        strf("%s: cannot allocate %zu bytes, %llu of %llu are free", device_.c_str(), bytes,
             static_cast<unsigned long long>(capacity_ - used_), static_cast<unsigned long long>(capacity_)),
        "place less on this device (-ngl, --n-cpu-moe, -ot), or use a smaller context (-c) or batch "
        "(-ub)");
  }
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t mapped = std::max<std::size_t>((bytes + page - 1) / page * page, page);
  void* start = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) {
    throw DeviceError(ErrorCode::out_of_memory,
                      strf("%s (simulated): the host cannot give %zu bytes", device_.c_str(), bytes),
                      "simulate a smaller model");
  }
  if (bytes <= kLargestPoisoned) std::memset(start, 0xFF, bytes);
  if (open_ == 0) (void)mprotect(start, mapped, PROT_NONE);
  regions_.push_back({start, mapped});
  used_ += counted;
  return std::make_unique<Block>(*this, regions_.back(), bytes, counted);
}

DeviceMemory GuardedMemory::numbers() const {
  const std::scoped_lock lock(mutex_);
  return {capacity_, capacity_ - used_};
}

void GuardedMemory::open() {
  const std::scoped_lock lock(mutex_);
  if (open_++ == 0) protect_all(PROT_READ | PROT_WRITE);
}

void GuardedMemory::close() {
  const std::scoped_lock lock(mutex_);
  if (--open_ == 0) protect_all(PROT_NONE);
}

void GuardedMemory::protect_all(int rights) noexcept {
  for (const Region& region : regions_) {
    TANDEM_ASSERT(mprotect(region.start, region.mapped_bytes, rights) == 0, "the rights of our own pages can be set");
  }
}

void GuardedMemory::release(void* start, std::uint64_t counted) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto it = std::find_if(regions_.begin(), regions_.end(), [&](const Region& r) { return r.start == start; });
  TANDEM_ASSERT(it != regions_.end(), "a buffer is released once");
  munmap(it->start, it->mapped_bytes);
  regions_.erase(it);
  used_ -= counted;
}

}  // namespace ggml::sim
