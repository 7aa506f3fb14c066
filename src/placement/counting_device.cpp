#include "placement/counting_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "ggml/error.h"
#include "ggml/log.h"

namespace llama {

namespace {

class AddressSpace final : public ggml::Buffer {
 public:
  AddressSpace(std::size_t bytes, ggml::BufferKind kind, std::shared_ptr<CountingDevice::Counts> counts)
      : bytes_(bytes), kind_(kind), counts_(std::move(counts)) {
    void* map = mmap(nullptr, std::max<std::size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
      throw ggml::Error(ggml::ErrorCode::out_of_memory,
                        ggml::strf("planning: %zu bytes are more than this process can address", bytes),
                        "use a smaller context (-c)");
    data_ = static_cast<std::byte*>(map);
    count() += bytes;
  }
  ~AddressSpace() override {
    munmap(data_, std::max<std::size_t>(bytes_, 1));
    count() -= bytes_;
  }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  [[nodiscard]] std::byte* data() noexcept override { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] ggml::BufferKind kind() const noexcept override { return kind_; }

 private:
  [[nodiscard]] std::uint64_t& count() { return kind_ == ggml::BufferKind::device ? counts_->device : counts_->host; }

  std::size_t bytes_;
  ggml::BufferKind kind_;
  std::shared_ptr<CountingDevice::Counts> counts_;
  std::byte* data_ = nullptr;
};

}  // namespace

std::unique_ptr<ggml::Buffer> CountingDevice::allocate(std::size_t bytes, ggml::BufferKind kind) {
  return std::make_unique<AddressSpace>(bytes, kind, counts_);
}

}  // namespace llama
