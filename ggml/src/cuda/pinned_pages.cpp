#include "cuda/pinned_pages.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "cuda/resources.h"
#include "ggml/log.h"

namespace ggml::cuda {
namespace {

constexpr std::uintptr_t kPage = 4096;

using Pages = std::pair<std::uintptr_t, std::uintptr_t>;  // begin, end

/// What is registered: CUDA refuses to register a page twice.
struct Registry {
  std::mutex mutex;
  std::map<Pages, std::weak_ptr<void>> known;
  bool refused = false;  // and said so
};
Registry& registry() {
  static Registry all;
  return all;
}

class Registration final : public PinnedMemory {
 public:
  explicit Registration(std::shared_ptr<void> pages) : pages_(std::move(pages)) {}

 private:
  std::shared_ptr<void> pages_;
};

void unregister(void* begin) {
  (void)cudaHostUnregister(begin);
}

bool is_pinned(const std::byte* at) {
  cudaPointerAttributes attributes{};
  const cudaError_t status = cudaPointerGetAttributes(&attributes, at);
  if (status != cudaSuccess) (void)cudaGetLastError();
  return status == cudaSuccess && attributes.type == cudaMemoryTypeHost;
}

/// A file that is mapped for reading takes a flag that not every system knows, and memory that may be written does not
/// need it.
cudaError_t register_pages(void* begin, std::size_t bytes) {
  cudaError_t status = cudaSuccess;
  for (const unsigned flags : {cudaHostRegisterPortable | cudaHostRegisterReadOnly, cudaHostRegisterPortable}) {
    status = cudaHostRegister(begin, bytes, flags);
    if (status == cudaSuccess) break;
    (void)cudaGetLastError();
  }
  return status;
}

}  // namespace

std::span<const std::byte> whole_pages(std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::size_t skip = (kPage - begin % kPage) % kPage;
  if (skip >= memory.size()) return memory.first(0);
  return memory.subspan(skip, (memory.size() - skip) / kPage * kPage);
}

std::unique_ptr<PinnedMemory> pin_pages(int device, std::span<const std::byte> memory) {
  const DeviceScope scope(device);
  const std::span<const std::byte> whole = whole_pages(memory);
  if (whole.empty()) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(whole.data());
  const Pages pages{address, address + whole.size()};
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  std::weak_ptr<void>& known = all.known[pages];
  if (std::shared_ptr<void> held = known.lock()) return std::make_unique<Registration>(std::move(held));
  if (all.refused || is_pinned(whole.data())) return nullptr;
  void* begin = reinterpret_cast<void*>(pages.first);  // NOLINT(performance-no-int-to-ptr): a page's start
  const std::size_t bytes = pages.second - pages.first;
  if (const cudaError_t status = register_pages(begin, bytes); status != cudaSuccess) {
    all.refused = true;
    logf(LogLevel::warn,
         "CUDA%d: the system does not let the card read %zu bytes of host memory in place (%s): weights are sent from "
         "pageable memory, which is several times slower",
         device, bytes, cudaGetErrorString(status));
    return nullptr;
  }
  std::shared_ptr<void> held(begin, unregister);
  known = held;
  return std::make_unique<Registration>(std::move(held));
}

}  // namespace ggml::cuda
