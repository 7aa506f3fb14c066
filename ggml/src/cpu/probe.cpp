#include "cpu/probe.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <new>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ggml/error.h"

namespace ggml::cpu {
namespace {

constexpr std::size_t kGiB = std::size_t{1} << 30;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kPage = 4096;

using Clock = std::chrono::steady_clock;

[[nodiscard]] double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Runs work(0 .. threads) at the same time, the first on this thread, and returns the seconds from the common start to
/// the last end. One thread more than work for would take a core from one of the others.
template <class Work>
[[nodiscard]] double timed(int threads, Work work) {
  std::atomic<int> ready{1};
  std::atomic<bool> go{false};
  std::vector<std::thread> pool;
  for (int i = 1; i < threads; ++i) {
    pool.emplace_back([&, i] {
      ready.fetch_add(1);
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      work(i);
    });
  }
  while (ready.load() < threads) std::this_thread::yield();
  const auto start = Clock::now();
  go.store(true, std::memory_order_release);
  work(0);
  for (std::thread& thread : pool) thread.join();
  return seconds_since(start);
}

/// Results go here, so that no compiler finds the work useless.
std::atomic<std::int64_t> sink{0};

}  // namespace

std::size_t last_level_cache_bytes() noexcept {
  const long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return l3 > 0 ? static_cast<std::size_t>(l3) : 32 * kMiB;
}

ReadProbe::ReadProbe(const KernelTable& table, int threads) : table_(&table), threads_(std::max(threads, 1)) {
  bytes_ = std::max(kGiB, 8 * last_level_cache_bytes());
  try {
    buffer_ = std::make_unique_for_overwrite<std::byte[]>(bytes_ + kPage);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, "no memory for the bandwidth probe: " + std::to_string(bytes_ >> 20) + " MiB",
                "free memory, or measure without --roofline");
  }
  // Loads across cache lines cost a fifth of the bandwidth, and big allocations begin 16 bytes into a page.
  const std::size_t rest = reinterpret_cast<std::uintptr_t>(buffer_.get()) % kPage;
  data_ = buffer_.get() + (rest == 0 ? 0 : kPage - rest);
  // Pages of zeros may all be one: each gets a value of its own, and is first written by a thread that will read there.
  (void)timed(threads_, [&](int i) {
    const std::size_t slice = bytes_ / static_cast<std::size_t>(threads_);
    const std::size_t begin = slice * static_cast<std::size_t>(i);
    for (std::size_t at = begin; at < begin + slice; at += kPage) data_[at] = static_cast<std::byte>(at / kPage);
  });
  choose_form();
}

/// The forms take turns, so that a moment in which the machine is slow strikes all of them.
void ReadProbe::choose_form() {
  constexpr int kRounds = 3;
  std::array<double, std::tuple_size_v<decltype(KernelTable::stream_read)>> best{};
  for (int round = 0; round < kRounds; ++round) {
    for (form_ = 0; form_ < best.size(); ++form_) best[form_] = std::max(best[form_], run(0.25));
  }
  form_ = static_cast<std::size_t>(std::max_element(best.begin(), best.end()) - best.begin());
}

double ReadProbe::run(double share) {
  const auto wanted = static_cast<std::size_t>(static_cast<double>(bytes_) * share);
  const std::size_t bytes = std::clamp(wanted, std::min(64 * kMiB, bytes_), bytes_);
  if (next_ + bytes > bytes_) next_ = 0;
  const std::byte* begin = data_ + next_;
  next_ += bytes;
  const std::size_t slice = bytes / static_cast<std::size_t>(threads_) / 64 * 64;
  const double seconds = timed(threads_, [&](int i) {
    const std::uint64_t sum = table_->stream_read[form_](begin + slice * static_cast<std::size_t>(i), slice);
    sink.fetch_add(static_cast<std::int64_t>(sum), std::memory_order_relaxed);
  });
  return static_cast<double>(slice * static_cast<std::size_t>(threads_)) / seconds;
}

double int8_peak(const KernelTable& table, int threads, double seconds) {
  // How many rounds fill the time is measured first.
  std::int64_t rounds = 1024;
  double took = 0;
  while (true) {
    const auto start = Clock::now();
    sink.fetch_add(table.int8_peak(rounds), std::memory_order_relaxed);
    took = seconds_since(start);
    if (took > 0.002) break;
    rounds *= 4;
  }
  rounds = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(rounds) * seconds / took));
  const double elapsed =
      timed(std::max(threads, 1), [&](int) { sink.fetch_add(table.int8_peak(rounds), std::memory_order_relaxed); });
  return static_cast<double>(rounds) * static_cast<double>(table.int8_peak_ops) * std::max(threads, 1) / elapsed;
}

double read_bandwidth(const KernelTable& table, int threads, int passes) {
  ReadProbe probe(table, threads);
  double best = 0;
  for (int i = 0; i < passes; ++i) best = std::max(best, probe.run());
  return best;
}

}  // namespace ggml::cpu
