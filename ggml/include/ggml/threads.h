#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ggml {

/// Bytes that no two threads may share when both write: two lines of 64, because the processor fetches them in pairs.
inline constexpr std::size_t kNoSharing = 128;

/// How the system schedules the threads of a pool. What it does not allow is left, with a warning.
enum class ThreadPriority : std::int8_t { low = -1, normal, medium, high, realtime };

struct ThreadPoolOptions {
  int n_threads = 1;               // largest team that run() is asked for, the calling thread included
  std::vector<int> affinity = {};  // cores that the threads may use; empty: they are not moved
  bool pin_each = false;           // each worker has one core of `affinity`, in turn; else all of them
  ThreadPriority priority = ThreadPriority::normal;
  int poll = 50;  // 0..100: how long idle workers spin for work before they sleep
};

class ThreadPool;

/// One worker's view of a parallel region. All workers of a region make the same sequence of calls.
class Team {
 public:
  [[nodiscard]] int worker() const noexcept { return worker_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// Waits until every worker of the region has come here; what they wrote before is visible after.
  void barrier() noexcept;

  /// Calls body(begin, end) for pieces of [0, n) of `chunk` items each; pieces go to whichever worker is free, its
  /// first piece is the one with its own number. At most kLoopsPerPhase loops between two barriers. There is no barrier
  /// at the end.
  template <class Body>
  void for_chunks(std::int64_t n, std::int64_t chunk, const Body& body) noexcept {
    std::atomic<std::int64_t>& next = next_loop();
    for (std::int64_t i = worker_; i * chunk < n; i = size_ + next.fetch_add(1, std::memory_order_relaxed)) {
      const std::int64_t begin = i * chunk;
      body(begin, begin + chunk < n ? begin + chunk : n);
    }
  }

  /// The part of [0, n) that is this worker's own in an even split.
  struct Range {
    std::int64_t begin, end;
  };
  [[nodiscard]] Range part(std::int64_t n) const noexcept { return {n * worker_ / size_, n * (worker_ + 1) / size_}; }

  static constexpr int kLoopsPerPhase = 4;

 private:
  friend class ThreadPool;
  Team(ThreadPool& pool, int worker, int size) noexcept : pool_(pool), worker_(worker), size_(size) {}
  std::atomic<std::int64_t>& next_loop() noexcept;

  ThreadPool& pool_;
  int worker_;
  int size_;
  int loop_ = 0;
};

/// Persistent workers for parallel regions. The thread that calls run() is worker 0, so a pool of n has n - 1 threads.
/// The caller gets the cores and the priority of worker 0 in its first region, and keeps them until
/// another pool gives it others, or until it destroys the pool.
/// run() takes no lock and allocates nothing; workers spin for a while after a region (`poll`), then sleep. Barriers
/// spin, then yield, then sleep, so that a machine with more threads than cores still makes progress.
/// Thread-compatible: one thread at a time may be inside run().
class ThreadPool {
 public:
  /// Throws Error(invalid_argument) for sizes out of range or a core that does not exist.
  explicit ThreadPool(const ThreadPoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  static constexpr int kMaxThreads = 1024;

  [[nodiscard]] int size() const noexcept { return n_threads_; }

  /// What every worker of a region executes. Must not throw.
  using Task = void (*)(void* user, Team& team) noexcept;
  /// Runs `task` on `team_size` workers and returns when all have finished. Pre: 1 <= team_size <= size().
  void run(int team_size, Task task, void* user) noexcept;

  /// The same for a callable `void(Team&) noexcept`.
  template <class Body>
  void parallel(int team_size, Body& body) noexcept {
    run(
        team_size, [](void* user, Team& team) noexcept { (*static_cast<Body*>(user))(team); }, &body);
  }

 private:
  friend class Team;
  struct Workers;  // the threads

  void start_workers();
  void stop() noexcept;
  void place(int worker) const noexcept;
  void worker_main(int worker) noexcept;
  [[nodiscard]] std::uint32_t await_region(std::uint32_t seen) noexcept;
  void barrier(int team_size) noexcept;

  const int n_threads_;
  const int spin_rounds_;  // polls of an idle worker before it sleeps
  const std::vector<int> affinity_;
  const bool pin_each_;
  const std::uint64_t placing_;  // its number among the pools that place their threads; 0: it places none
  ThreadPriority priority_;

  // The region: written by run() before `region_` is published. The word holds the region's number and its team size,
  // so that a worker that is not in the team needs nothing else.
  alignas(kNoSharing) std::atomic<std::uint32_t> region_{0};
  Task task_ = nullptr;
  void* user_ = nullptr;
  std::atomic<bool> quit_{false};

  alignas(kNoSharing) std::atomic<int> arrived_{0};
  alignas(kNoSharing) std::atomic<std::uint32_t> phase_{0};
  struct alignas(kNoSharing) Loop {
    std::atomic<std::int64_t> next{0};
  };
  Loop loops_[Team::kLoopsPerPhase];

  std::unique_ptr<Workers> workers_;
};

/// Hardware threads that the calling thread may run on (its affinity mask, before a pool gave it some of them),
/// ascending; empty when the system does not tell.
[[nodiscard]] std::vector<int> allowed_cores();

/// Cores that this process may run on, counting one hardware thread per physical core where the
/// system tells; at least 1.
[[nodiscard]] int physical_cores();

}  // namespace ggml
