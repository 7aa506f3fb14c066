#include "ggml/threads.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "ggml/error.h"

namespace ggml {
namespace {

TEST(ThreadPool, RunsTheTaskOnceOnEveryWorkerOfTheTeam) {
  ThreadPool pool({.n_threads = 4});
  for (int team_size = 1; team_size <= 4; ++team_size) {
    std::vector<int> calls(4, 0);
    auto body = [&](Team& team) noexcept {
      EXPECT_EQ(team.size(), team_size);
      calls[static_cast<std::size_t>(team.worker())] += 1;
    };
    pool.parallel(team_size, body);
    for (int w = 0; w < 4; ++w) EXPECT_EQ(calls[static_cast<std::size_t>(w)], w < team_size ? 1 : 0);
  }
}

TEST(ThreadPool, ChunksCoverTheRangeExactlyOnce) {
  ThreadPool pool({.n_threads = 3});
  for (const std::int64_t n : {0, 1, 7, 64, 1000}) {
    for (const std::int64_t chunk : {1, 3, 64, 2000}) {
      std::vector<int> hits(static_cast<std::size_t>(n), 0);
      auto body = [&](Team& team) noexcept {
        team.for_chunks(n, chunk, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) hits[static_cast<std::size_t>(i)] += 1;
        });
      };
      pool.parallel(3, body);
      EXPECT_TRUE(std::all_of(hits.begin(), hits.end(), [](int h) { return h == 1; })) << n << " by " << chunk;
    }
  }
}

// Each phase sums what all workers wrote in the phase before: a barrier that lets one worker pass early, a counter that
// is not reset or a lost wake-up shows as a wrong sum or a hang. More threads than cores on purpose.
TEST(ThreadPool, BarriersOrderPhasesUnderChangingTeamSizes) {
  constexpr int kThreads = 6;
  constexpr std::int64_t kItems = 97;
  ThreadPool pool({.n_threads = kThreads, .poll = 1});
  std::vector<std::int64_t> a(kItems), b(kItems);
  for (int round = 0; round < 300; ++round) {
    std::fill(a.begin(), a.end(), 1);
    std::int64_t wrong = 0;
    auto body = [&](Team& team) noexcept {
      for (int phase = 0; phase < 5; ++phase) {
        team.for_chunks(kItems, 4, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            b[static_cast<std::size_t>(i)] =
                a[static_cast<std::size_t>(i)] + a[static_cast<std::size_t>(kItems - 1 - i)];
          }
        });
        team.barrier();
        team.for_chunks(kItems, 9, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) a[static_cast<std::size_t>(i)] = b[static_cast<std::size_t>(i)];
        });
        team.for_chunks(kItems, 5, [](std::int64_t, std::int64_t) {});
        team.barrier();
      }
      if (team.worker() == 0) wrong = std::count_if(a.begin(), a.end(), [](std::int64_t v) { return v != 32; });
    };
    pool.parallel(1 + round % kThreads, body);
    ASSERT_EQ(wrong, 0) << "round " << round;
  }
}

TEST(ThreadPool, WakesWorkersThatWentToSleep) {
  ThreadPool pool({.n_threads = 3, .poll = 0});
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> calls{0};
    auto body = [&](Team&) noexcept { calls.fetch_add(1); };
    pool.parallel(round % 2 == 0 ? 3 : 2, body);
    EXPECT_EQ(calls.load(), round % 2 == 0 ? 3 : 2);
  }
}

TEST(ThreadPool, EvenPartsCoverTheRange) {
  ThreadPool pool({.n_threads = 3});
  std::vector<int> hits(10, 0);
  auto body = [&](Team& team) noexcept {
    const Team::Range range = team.part(10);
    for (std::int64_t i = range.begin; i < range.end; ++i) hits[static_cast<std::size_t>(i)] += 1;
  };
  pool.parallel(3, body);
  EXPECT_EQ(std::count(hits.begin(), hits.end(), 1), 10);
}

TEST(ThreadPool, RefusesSizesAndCoresThatDoNotExist) {
  EXPECT_THROW(ThreadPool({.n_threads = 0}), Error);
  EXPECT_THROW(ThreadPool({.n_threads = ThreadPool::kMaxThreads + 1}), Error);
  EXPECT_THROW(ThreadPool({.n_threads = 2, .poll = 101}), Error);
  EXPECT_THROW(ThreadPool({.n_threads = 2, .affinity = {100000}}), Error);
}

TEST(ThreadPool, CountsAtLeastOnePhysicalCore) {
  EXPECT_GE(physical_cores(), 1);
  EXPECT_FALSE(allowed_cores().empty());
}

/// What the system says of each worker of a team.
struct Seen {
  std::vector<int> cores;
  int policy = -1;
};

std::vector<int> cores_now() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<unsigned>(core), &set)) cores.push_back(core);
  return cores;
}

std::vector<Seen> look(ThreadPool& pool) {
  std::vector<Seen> seen(static_cast<std::size_t>(pool.size()));
  auto body = [&](Team& team) noexcept {
    Seen& mine = seen[static_cast<std::size_t>(team.worker())];
    mine.cores = cores_now();
    sched_param param{};
    pthread_getschedparam(pthread_self(), &mine.policy, &param);
  };
  pool.parallel(pool.size(), body);
  return seen;
}

/// Runs `body` on a thread of its own, whose cores and priority the test may change.
template <class Body>
void aside(const Body& body) {
  std::thread(body).join();
}

TEST(ThreadPool, AllThreadsHaveAllCoresThatWereGiven) {
  aside([] {
    const std::vector<int> all = allowed_cores();
    ThreadPool pool({.n_threads = 3, .affinity = {all.back()}, .poll = 0});
    for (const Seen& worker : look(pool)) EXPECT_EQ(worker.cores, std::vector<int>{all.back()});
    ThreadPool free({.n_threads = 2, .affinity = all, .poll = 0});
    EXPECT_THROW(ThreadPool({.n_threads = 1, .affinity = {all.back() + 1}}), Error);
  });
}

TEST(ThreadPool, PinnedThreadsHaveOneCoreEachInTurn) {
  aside([] {
    const std::vector<int> all = allowed_cores();
    ThreadPool pool({.n_threads = 3, .affinity = all, .pin_each = true, .poll = 0});
    const std::vector<Seen> seen = look(pool);
    for (std::size_t w = 0; w < seen.size(); ++w) EXPECT_EQ(seen[w].cores, std::vector<int>{all[w % all.size()]}) << w;
  });
}

TEST(ThreadPool, ACallerThatChangesPoolsChangesCores) {
  aside([] {
    const std::vector<int> all = allowed_cores();
    ThreadPool one({.n_threads = 1, .affinity = {all.front()}});
    ThreadPool other({.n_threads = 2, .affinity = all, .priority = ThreadPriority::low, .poll = 0});
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(look(one)[0].cores, std::vector<int>{all.front()});
      EXPECT_EQ(look(one)[0].policy, SCHED_OTHER);
      EXPECT_EQ(look(other)[0].cores, all);
      EXPECT_EQ(look(other)[0].policy, SCHED_BATCH);
      EXPECT_EQ(look(other)[1].policy, SCHED_BATCH);
    }
  });
}

TEST(ThreadPool, AThreadOfAPoolThatPlacesNothingStaysWhereItIs) {
  const std::vector<int> before = allowed_cores();
  ThreadPool pool({.n_threads = 2, .poll = 0});
  for (const Seen& worker : look(pool)) EXPECT_EQ(worker.cores, before);
  EXPECT_EQ(cores_now(), before);
}

TEST(ThreadPool, ACallerIsBackInItsPlaceWhenItDestroysThePool) {
  aside([] {
    const std::vector<int> all = allowed_cores();
    for (int round = 0; round < 2; ++round) {
      {
        ThreadPool pool({.n_threads = 1, .affinity = {all.front()}, .priority = ThreadPriority::low});
        EXPECT_EQ(look(pool)[0].cores, std::vector<int>{all.front()});
        EXPECT_EQ(allowed_cores(), all);  // what pools may be given does not shrink
      }
      int policy = -1;
      sched_param param{};
      pthread_getschedparam(pthread_self(), &policy, &param);
      EXPECT_EQ(policy, SCHED_OTHER);
      EXPECT_EQ(cores_now(), all);
    }
  });
}

TEST(ThreadPool, APriorityThatTheSystemRefusesIsTheNormalOne) {
  aside([] {
    ThreadPool pool({.n_threads = 2, .priority = ThreadPriority::high, .poll = 0});
    const std::vector<Seen> seen = look(pool);
    for (const Seen& worker : seen) EXPECT_EQ(worker.policy, seen.front().policy);
    EXPECT_TRUE(seen.front().policy == SCHED_RR || seen.front().policy == SCHED_OTHER);
  });
}

/// Processor time of the pool's second worker.
double worker_seconds(ThreadPool& pool) {
  clockid_t clock{};
  auto body = [&](Team& team) noexcept {
    if (team.worker() == 1) pthread_getcpuclockid(pthread_self(), &clock);
  };
  pool.parallel(2, body);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  timespec used{};
  clock_gettime(clock, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

TEST(ThreadPool, ThePollLevelSaysHowLongIdleWorkersSpin) {
  ThreadPool sleeps({.n_threads = 2, .poll = 0});
  ThreadPool spins({.n_threads = 2, .poll = 100});
  // 200,000 pauses take milliseconds on any machine, on a busy one too.
  EXPECT_GT(worker_seconds(spins), 3 * worker_seconds(sleeps));
}

}  // namespace
}  // namespace ggml
