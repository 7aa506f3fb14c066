#include "ggml/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "ggml/error.h"
#include "ggml/log.h"

namespace ggml {
namespace {

constexpr int kTeamBits = 11;  // team sizes up to kMaxThreads fit
static_assert(ThreadPool::kMaxThreads < (1 << kTeamBits));
constexpr std::uint32_t kTeamMask = (1u << kTeamBits) - 1;

// A barrier is short when every worker has a core, so it spins first; the yields serve the case that a worker has lost
// its core, and the sleep the case that it has lost it for long.
constexpr int kBarrierSpins = 2000;
constexpr int kBarrierYields = 200;

inline void pause_briefly() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits until `word` differs from `old`.
void wait_for_change(const std::atomic<std::uint32_t>& word, std::uint32_t old, int spins, int yields) noexcept {
  for (int i = 0; i < spins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    pause_briefly();
  }
  for (int i = 0; i < yields; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    sched_yield();
  }
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

void check_cores(const std::vector<int>& cores) {
  if (cores.empty()) return;
  const std::vector<int> allowed = allowed_cores();
  for (const int core : cores) {
    if (allowed.empty() || std::binary_search(allowed.begin(), allowed.end(), core)) continue;
    throw Error(ErrorCode::invalid_argument, strf("thread affinity: this process may not run on core %d", core),
                "choose cores from the process's own mask (taskset -p shows it)");
  }
}

/// A pool that places its threads has a number of its own, so that a thread which enters regions of several pools knows
/// whose cores it has. Addresses would not do: a new pool may have the address of an old one.
std::uint64_t next_placing() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// Where a thread that pools have placed was before, and the pool that did so last; of the threads that call run().
struct Placed {
  std::uint64_t by = 0;  // 0: none did
  cpu_set_t cores;
  int policy;
  sched_param param;
};
thread_local Placed t_placed;

void remember_place() noexcept {
  if (t_placed.by != 0) return;
  CPU_ZERO(&t_placed.cores);
  sched_getaffinity(0, sizeof t_placed.cores, &t_placed.cores);
  pthread_getschedparam(pthread_self(), &t_placed.policy, &t_placed.param);
}

void return_to_place() noexcept {
  pthread_setaffinity_np(pthread_self(), sizeof t_placed.cores, &t_placed.cores);
  pthread_setschedparam(pthread_self(), t_placed.policy, &t_placed.param);
  t_placed.by = 0;
}

/// Gives the calling thread its priority; the error's number when the system refuses, else 0.
int set_priority(ThreadPriority priority) noexcept {
  constexpr int kMedium = 10, kHigh = 40, kRealtime = 80;  // of the real-time range 1..99
  sched_param param{};
  int policy = SCHED_RR;
  switch (priority) {
    case ThreadPriority::low:
      policy = SCHED_BATCH;
      break;
    case ThreadPriority::normal:
      policy = SCHED_OTHER;
      break;
    case ThreadPriority::medium:
      param.sched_priority = kMedium;
      break;
    case ThreadPriority::high:
      param.sched_priority = kHigh;
      break;
    case ThreadPriority::realtime:
      param.sched_priority = kRealtime;
      break;
  }
  return pthread_setschedparam(pthread_self(), policy, &param);
}

/// The priority that the system grants: asked by a thread that does nothing else, since a thread that has a real-time
/// priority may not be able to go back.
ThreadPriority granted(ThreadPriority wanted) {
  if (wanted == ThreadPriority::normal || wanted == ThreadPriority::low) return wanted;
  int refusal = 0;
  std::thread([&] { refusal = set_priority(wanted); }).join();
  if (refusal == 0) return wanted;
  logf(LogLevel::warn,
       "thread priority %d: the system refuses it (%s); the threads have the normal one. ulimit -r 80, or the "
       "capability "
       "CAP_SYS_NICE, allows it",
       static_cast<int>(wanted), std::generic_category().message(refusal).c_str());
  return ThreadPriority::normal;
}

}  // namespace

struct ThreadPool::Workers {
  std::vector<std::thread> threads;
};

ThreadPool::ThreadPool(const ThreadPoolOptions& options)
    // About 100 us of spinning at poll 1 (a pause is 40-140 cycles), 10 ms at 100: longer than the gap between two
    // tokens.
    : n_threads_(options.n_threads),
      spin_rounds_(options.poll * 2000),
      affinity_(options.affinity),
      pin_each_(options.pin_each),
      placing_(options.affinity.empty() && options.priority == ThreadPriority::normal ? 0 : next_placing()),
      priority_(options.priority),
      workers_(std::make_unique<Workers>()) {
  if (options.n_threads < 1 || options.n_threads > kMaxThreads) {
    throw Error(ErrorCode::invalid_argument,
                strf("%d threads asked for; 1 to %d are possible", options.n_threads, kMaxThreads));
  }
  if (options.poll < 0 || options.poll > 100) {
    throw Error(ErrorCode::invalid_argument, strf("poll level %d is outside 0..100", options.poll));
  }
  check_cores(options.affinity);
  priority_ = granted(options.priority);
  start_workers();
}

void ThreadPool::start_workers() {
  workers_->threads.reserve(static_cast<std::size_t>(n_threads_ - 1));
  try {
    for (int worker = 1; worker < n_threads_; ++worker)
      workers_->threads.emplace_back([this, worker] { worker_main(worker); });
  } catch (const std::system_error& e) {
    const std::size_t started = workers_->threads.size();
    stop();
    throw Error(ErrorCode::unavailable,
                strf("only %zu of %d worker threads could be started: %s", started, n_threads_ - 1, e.what()),
                "use fewer threads (-t) or raise the limit on processes (ulimit -u)");
  }
}

ThreadPool::~ThreadPool() {
  if (placing_ != 0 && t_placed.by == placing_) return_to_place();
  stop();
}

void ThreadPool::stop() noexcept {
  quit_.store(true, std::memory_order_relaxed);
  region_.store(region_.load(std::memory_order_relaxed) + (1u << kTeamBits), std::memory_order_release);
  region_.notify_all();
  for (std::thread& thread : workers_->threads) thread.join();
  workers_->threads.clear();
}

std::uint32_t ThreadPool::await_region(std::uint32_t seen) noexcept {
  wait_for_change(region_, seen, spin_rounds_, 0);
  return region_.load(std::memory_order_acquire);
}

/// Gives the calling thread, which is `worker`, its cores and its priority.
void ThreadPool::place(int worker) const noexcept {
  remember_place();
  t_placed.by = placing_;
  if (!affinity_.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (pin_each_) {
      CPU_SET(static_cast<unsigned>(affinity_[static_cast<std::size_t>(worker) % affinity_.size()]), &set);
    } else {
      for (const int core : affinity_) CPU_SET(static_cast<unsigned>(core), &set);
    }
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0)
      logf(LogLevel::warn, "thread affinity: the system refused the cores of worker %d; it stays where it was", worker);
  }
  (void)set_priority(priority_);
}

void ThreadPool::worker_main(int worker) noexcept {
  char name[16];  // the system's limit, with the final zero
  std::snprintf(name, sizeof name, "ggml-cpu-%d", worker);
  pthread_setname_np(pthread_self(), name);
  if (placing_ != 0) place(worker);
  std::uint32_t seen = 0;
  while (true) {
    seen = await_region(seen);
    if (quit_.load(std::memory_order_relaxed)) return;
    const int team_size = static_cast<int>(seen & kTeamMask);
    if (worker >= team_size) continue;
    Team team(*this, worker, team_size);
    task_(user_, team);
    barrier(team_size);
  }
}

void ThreadPool::run(int team_size, Task task, void* user) noexcept {
  TANDEM_DASSERT(team_size >= 1 && team_size <= n_threads_, "a team has at most as many workers as the pool");
  for (Loop& loop : loops_) loop.next.store(0, std::memory_order_relaxed);
  if (placing_ != 0 && t_placed.by != placing_) place(0);
  if (team_size > 1) {
    task_ = task;
    user_ = user;
    const std::uint32_t number = (region_.load(std::memory_order_relaxed) >> kTeamBits) + 1;
    region_.store((number << kTeamBits) | static_cast<std::uint32_t>(team_size), std::memory_order_release);
    region_.notify_all();
  }
  Team team(*this, 0, team_size);
  task(user, team);
  // The last barrier keeps run() from returning, and from writing the next region, while a worker is still inside.
  barrier(team_size);
}

void ThreadPool::barrier(int team_size) noexcept {
  if (team_size == 1) {
    for (Loop& loop : loops_) loop.next.store(0, std::memory_order_relaxed);
    return;
  }
  const std::uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == team_size - 1) {
    // Everybody is here, so nobody uses the counters: the last one makes them ready for the next phase.
    for (Loop& loop : loops_) loop.next.store(0, std::memory_order_relaxed);
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
  } else {
    wait_for_change(phase_, phase, kBarrierSpins, kBarrierYields);
  }
}

void Team::barrier() noexcept {
  loop_ = 0;
  pool_.barrier(size_);
}

std::atomic<std::int64_t>& Team::next_loop() noexcept {
  TANDEM_DASSERT(loop_ < kLoopsPerPhase, "a barrier resets the loop counters");
  return pool_.loops_[loop_++].next;
}

std::vector<int> allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cores;
  if (t_placed.by != 0) {
    allowed = t_placed.cores;
  } else if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return cores;
  }
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<unsigned>(core), &allowed)) cores.push_back(core);
  return cores;
}

int physical_cores() {
  const std::vector<int> allowed = allowed_cores();
  if (allowed.empty()) {
    const unsigned n = std::thread::hardware_concurrency();
    return n == 0 ? 1 : static_cast<int>(n);
  }
  std::set<std::string> cores;  // siblings of one core show the same list
  for (const int cpu : allowed) {
    std::ifstream in(strf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu));
    std::string siblings;
    if (!std::getline(in, siblings)) siblings = strf("cpu%d", cpu);
    cores.insert(siblings);
  }
  return static_cast<int>(cores.size());
}

}  // namespace ggml
