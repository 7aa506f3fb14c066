#include "http/connection_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <semaphore>
#include <thread>
#include <vector>

namespace server {
namespace {

using std::chrono::milliseconds;

void wait_until(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(condition());
}

TEST(ConnectionThreads, EveryConnectionOfABurstGetsAThreadWhileOthersStayOpen) {
  constexpr int kConnections = 64;
  std::atomic<int> n_served{0};
  std::latch all(1);
  ConnectionThreads threads(4, 1024);
  for (int i = 0; i < kConnections; ++i) {
    ASSERT_TRUE(threads.enqueue([&] {
      ++n_served;
      all.wait();  // as a stream that lasts
    }));
  }
  wait_until([&] { return n_served == kConnections; });
  EXPECT_FALSE(threads.crowded());
  all.count_down();
}

TEST(ConnectionThreads, BeyondTheMostConnectionsWaitInTheOrderTheyCame) {
  std::counting_semaphore<> leave(0);
  std::mutex mutex;
  std::vector<int> order;
  ConnectionThreads threads(1, 2);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(threads.enqueue([&] { leave.acquire(); }));
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(threads.enqueue([&, i] {
      const std::lock_guard lock(mutex);
      order.push_back(i);
    }));
  }
  EXPECT_TRUE(threads.crowded());
  leave.release();  // one thread for all eight
  wait_until([&] {
    const std::lock_guard lock(mutex);
    return order.size() == 8;
  });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  wait_until([&] { return !threads.crowded(); });
  leave.release();
}

TEST(ConnectionThreads, ServeBurstsAgainAfterTheirSpareThreadsHaveEnded) {
  std::atomic<int> n_served{0}, n_left{0};
  ConnectionThreads threads(1, 32, milliseconds(1));
  for (int burst = 0; burst < 5; ++burst) {
    const int before = n_served;
    std::latch all(1);
    for (int i = 0; i < 32; ++i) {
      ASSERT_TRUE(threads.enqueue([&] {
        ++n_served;
        all.wait();
        ++n_left;
      }));
    }
    wait_until([&] { return n_served == before + 32; });
    all.count_down();
    wait_until([&] { return n_left == before + 32; });  // none of them may look at the latch when it is gone
    std::this_thread::sleep_for(milliseconds(20));
  }
}

TEST(ConnectionThreads, ShutdownServesWhatWaitsAndRefusesMore) {
  std::atomic<int> n_served{0};
  ConnectionThreads threads(1, 1);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(threads.enqueue([&] { ++n_served; }));
  threads.shutdown();
  EXPECT_EQ(n_served, 10);
  EXPECT_FALSE(threads.enqueue([] {}));
}

}  // namespace
}  // namespace server
