// Weights from host memory to the card while the CPU reads host memory too: in place from pinned memory, in place from
// a file mapping registered with the card, from plain pageable memory, and through a ring of small pinned buffers that
// the CPU fills.
//
// Reported: GB/s over the link, and GB/s that the reading threads got meanwhile.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include "support.cuh"

namespace tandem::bench {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 30;
constexpr std::size_t kPiece = std::size_t{4} << 20;  // of the ring: fits the cache of a core or two
constexpr int kPieces = 4;

enum class Kind { pinned, registered, pageable, ring };

/// Threads that read memory of their own over and over and count the bytes.
class Readers {
 public:
  explicit Readers(int n) {
    for (int i = 0; i < n; ++i) {
      threads_.emplace_back([this] {
        std::vector<std::uint64_t> data((std::size_t{256} << 20) / 8, 1);
        std::uint64_t sum = 0;
        ready_.fetch_add(1);
        while (!stop_.load(std::memory_order_relaxed)) {
          constexpr std::size_t kStretch = (std::size_t{1} << 20) / 8;
          for (std::size_t begin = 0; begin < data.size() && !stop_.load(std::memory_order_relaxed);
               begin += kStretch) {
            for (std::size_t j = begin; j < begin + kStretch; ++j) sum += data[j];
            bytes_.fetch_add(kStretch * 8, std::memory_order_relaxed);
          }
        }
        benchmark::DoNotOptimize(sum);
      });
    }
    while (ready_.load() < n) std::this_thread::yield();
  }
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;
  ~Readers() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_.load(); }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> ready_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::vector<std::thread> threads_;
};

/// A file of kBytes mapped for reading, its pages touched.
class MappedFile {
 public:
  MappedFile() {
    std::string path = "/tmp/host_link_bench.XXXXXX";
    fd_ = mkstemp(path.data());
    if (fd_ < 0) fail("mkstemp");
    (void)unlink(path.c_str());
    const std::vector<char> piece(kPiece, 3);
    for (std::size_t at = 0; at < kBytes; at += kPiece) {
      if (write(fd_, piece.data(), kPiece) != static_cast<ssize_t>(kPiece)) fail("write");
    }
    data_ = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd_, 0);
    if (data_ == MAP_FAILED) fail("mmap");
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    munmap(data_, kBytes);
    close(fd_);
  }
  [[nodiscard]] void* data() const { return data_; }

 private:
  [[noreturn]] static void fail(const char* what) {
    std::perror(what);
    std::exit(1);
  }
  int fd_ = -1;
  void* data_ = nullptr;
};

void in_place(Timeline& timeline, std::byte* dst, const void* src, benchmark::State& state) {
  const double s = timeline.time(
      [&](cudaStream_t stream) { CUDA_CHECK(cudaMemcpyAsync(dst, src, kBytes, cudaMemcpyHostToDevice, stream)); });
  state.SetIterationTime(s);
}

void through_ring(Timeline& timeline, std::byte* dst, const std::byte* src, std::byte* ring,
                  const std::vector<cudaEvent_t>& free, benchmark::State& state) {
  const double s = timeline.time([&](cudaStream_t stream) {
    for (std::size_t at = 0, piece = 0; at < kBytes; at += kPiece, piece = (piece + 1) % kPieces) {
      CUDA_CHECK(cudaEventSynchronize(free[piece]));
      std::memcpy(ring + piece * kPiece, src + at, kPiece);
      CUDA_CHECK(cudaMemcpyAsync(dst + at, ring + piece * kPiece, kPiece, cudaMemcpyHostToDevice, stream));
      CUDA_CHECK(cudaEventRecord(free[piece], stream));
    }
  });
  state.SetIterationTime(s);
}

template <Kind kKind>
void upload(benchmark::State& state) {
  Timeline timeline;
  DeviceArray<std::byte> dst(kBytes);
  const MappedFile file;
  std::byte* pinned = nullptr;
  std::vector<cudaEvent_t> free(kPieces);
  for (cudaEvent_t& event : free) CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  bool registered = false;
  if constexpr (kKind == Kind::pinned || kKind == Kind::ring) {
    const std::size_t bytes = kKind == Kind::pinned ? kBytes : kPiece * kPieces;
    CUDA_CHECK(cudaHostAlloc(reinterpret_cast<void**>(&pinned), bytes, cudaHostAllocDefault));
    std::memset(pinned, 1, bytes);
  }
  if constexpr (kKind == Kind::registered) {
    registered = cudaHostRegister(file.data(), kBytes, cudaHostRegisterReadOnly) == cudaSuccess;
    if (!registered) {
      (void)cudaGetLastError();
      state.SkipWithError("the system refuses to register a file mapping");
    }
  }
  if (kKind != Kind::registered || registered) {
    const Readers readers(static_cast<int>(state.range(0)));
    const std::uint64_t before = readers.bytes();
    double seconds = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (auto _ : state) {
      if constexpr (kKind == Kind::ring) {
        through_ring(timeline, dst.get(), static_cast<const std::byte*>(file.data()), pinned, free, state);
      } else {
        in_place(timeline, dst.get(), kKind == Kind::pinned ? pinned : file.data(), state);
      }
    }
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    state.counters["link_GB/s"] =
        static_cast<double>(kBytes) * static_cast<double>(state.iterations()) / seconds * 1e-9;
    state.counters["readers_GB/s"] = static_cast<double>(readers.bytes() - before) / seconds * 1e-9;
  }
  if (registered) CUDA_CHECK(cudaHostUnregister(file.data()));
  for (cudaEvent_t event : free) (void)cudaEventDestroy(event);
  (void)cudaFreeHost(pinned);
}

void loads(benchmark::internal::Benchmark* b) {
  b->ArgName("readers")->Arg(0)->Arg(8)->Arg(15)->UseManualTime()->Iterations(8);
}
BENCHMARK(upload<Kind::pinned>)->Name("pinned")->Apply(loads);
BENCHMARK(upload<Kind::registered>)->Name("registered_mapping")->Apply(loads);
BENCHMARK(upload<Kind::pageable>)->Name("pageable")->Apply(loads);
BENCHMARK(upload<Kind::ring>)->Name("ring")->Apply(loads);

}  // namespace
}  // namespace tandem::bench

BENCHMARK_MAIN();
