#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ggml/device.h"

namespace ggml::sim {

/// Reading what nobody wrote gives NaN, up to this size: filling takes time and real memory.
inline constexpr std::size_t kLargestPoisoned = std::size_t{64} << 20;

/// The memory of a simulated device: counted, and without any access rights while the device does nothing, so that
/// whoever takes one of its addresses for a host address gets a fault. Thread-safe; outlives its buffers.
class GuardedMemory {
 public:
  GuardedMemory(std::string device, std::uint64_t capacity) : device_(std::move(device)), capacity_(capacity) {}

  /// Throws DeviceError naming wanted and free bytes. Small buffers are filled with NaN patterns.
  [[nodiscard]] std::unique_ptr<Buffer> allocate(std::size_t bytes);
  [[nodiscard]] DeviceMemory numbers() const;

  /// Access for the scope; scopes may nest or overlap.
  class Access {
   public:
    explicit Access(GuardedMemory& memory) : memory_(memory) { memory_.open(); }
    ~Access() { memory_.close(); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    GuardedMemory& memory_;
  };

 private:
  class Block;
  struct Region {
    void* start;
    std::size_t mapped_bytes;
  };

  void open();
  void close();
  void protect_all(int rights) noexcept;
  void release(void* start, std::uint64_t counted) noexcept;

  const std::string device_;
  const std::uint64_t capacity_;
  mutable std::mutex mutex_;
  std::uint64_t used_ = 0;
  int open_ = 0;  // scopes that have access
  std::vector<Region> regions_;
};

}  // namespace ggml::sim
