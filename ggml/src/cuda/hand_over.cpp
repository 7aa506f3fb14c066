#include "cuda/hand_over.h"

#include <atomic>
#include <thread>

#include "ggml/error.h"
#include "ggml/log.h"

namespace ggml::cuda {
namespace {

constexpr std::uint64_t kPatienceNs = 120'000'000'000;  // longer than any step of few tokens takes the CPU
constexpr std::uint64_t kTrialNs = 20'000'000;

HandOverCopies some(std::span<const HostCopy> copies) {
  HandOverCopies list;
  for (const HostCopy& copy : copies)
    list.copy[list.n++] = {reinterpret_cast<std::uint8_t*>(copy.dst), reinterpret_cast<const std::uint8_t*>(copy.src),
                           static_cast<std::uint32_t>(copy.bytes)};
  return list;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

CudaHandOver::CudaHandOver(int device, cudaStream_t stream)
    : device_(device),
      stream_(stream),
      memory_(device, sizeof(HandOverWords), BufferKind::host_pinned),
      words_(reinterpret_cast<HandOverWords*>(memory_.data())) {
  words_->given = 0;
  words_->opened = 0;
  words_->late = 0;
}

CudaHandOver::~CudaHandOver() {
  open();
  (void)cudaStreamSynchronize(stream_);
}

bool CudaHandOver::works() {
  const DeviceScope scope(device_);
  int limited = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&limited, cudaDevAttrKernelExecTimeout, device_));
  if (limited != 0) return false;
  await(give({}));
  launch_take({}, words_, ++taken_, kTrialNs, stream_);
  open();
  CUDA_CHECK(cudaStreamSynchronize(stream_));
  const bool in_time = words_->late == 0;
  words_->late = 0;
  return in_time;
}

HandOver::Ticket CudaHandOver::give(std::span<const HostCopy> copies) {
  const DeviceScope scope(device_);
  for (; copies.size() > kMostHandOverCopies; copies = copies.subspan(kMostHandOverCopies))
    launch_give(some(copies.first(kMostHandOverCopies)), words_, 0, stream_);
  if (++given_ == 0) ++given_;
  launch_give(some(copies), words_, given_, stream_);
  return given_;
}

void CudaHandOver::await(Ticket ticket) {
  constexpr unsigned kSpinsPerLook = 1 << 14;
  for (unsigned spins = 1; static_cast<std::int32_t>(words_->given - ticket) < 0; ++spins) {
    relax();
    if (spins % kSpinsPerLook != 0) continue;
    // A card that has failed never answers.
    const DeviceScope scope(device_);
    const cudaError_t status = cudaStreamQuery(stream_);
    if (status != cudaErrorNotReady) check(status, "work on the card");
    std::this_thread::yield();
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  if (words_->late != 0) {
    words_->late = 0;
    throw DeviceError(ErrorCode::device,
                      strf("CUDA%d: the CPU's part of a step took longer than the card waits", device_), "");
  }
}

void CudaHandOver::take(std::span<const HostCopy> copies) {
  const DeviceScope scope(device_);
  ++taken_;
  for (; copies.size() > kMostHandOverCopies; copies = copies.subspan(kMostHandOverCopies))
    launch_take(some(copies.first(kMostHandOverCopies)), words_, taken_, kPatienceNs, stream_);
  launch_take(some(copies), words_, taken_, kPatienceNs, stream_);
}

void CudaHandOver::open() noexcept {
  std::atomic_thread_fence(std::memory_order_release);
  words_->opened = taken_;
}

}  // namespace ggml::cuda
