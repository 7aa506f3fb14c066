#include "common/setup/numa.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <numeric>

namespace common {
namespace {

namespace fs = std::filesystem;
using List = std::vector<int>;

/// A machine's /sys and /proc, as far as --numa reads them.
class FakeMachine {
 public:
  FakeMachine() : root_(fs::path(::testing::TempDir()) / ("numa-" + std::to_string(::getpid()))) {
    fs::remove_all(root_);
  }
  ~FakeMachine() { fs::remove_all(root_); }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  [[nodiscard]] const fs::path& root() const { return root_; }

  void file(const std::string& name, const std::string& line) const {
    const fs::path path = root_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << line << '\n';
  }
  /// Two sockets of four cores with two hardware threads each, as the nodes 0 and 2, and node 1, of memory alone.
  void two_sockets() const {
    file("sys/devices/system/node/online", "0-2");
    file("sys/devices/system/node/node0/cpulist", "0-3,8-11");
    file("sys/devices/system/node/node1/cpulist", "");
    file("sys/devices/system/node/node2/cpulist", "4-7,12-15");
    for (int cpu = 0; cpu < 16; ++cpu)
      file("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
           std::to_string(cpu % 8) + "," + std::to_string(cpu % 8 + 8));
    file("proc/sys/kernel/numa_balancing", "1");
  }

 private:
  fs::path root_;
};

List first_cpus(int n) {
  List list(static_cast<std::size_t>(n));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

ThreadSettings asked(Numa numa) {
  ThreadSettings settings;
  settings.numa = numa;
  return settings;
}

TEST(MemoryNodes, AreReadWithTheCoresApartFromTheirSecondThreads) {
  const FakeMachine machine;
  machine.two_sockets();
  const MemoryNodes found = memory_nodes(machine.root(), first_cpus(16), 13);
  ASSERT_EQ(found.nodes.size(), 2u);
  EXPECT_EQ(found.nodes[0].id, 0);
  EXPECT_EQ(found.nodes[0].cores, (List{0, 1, 2, 3}));
  EXPECT_EQ(found.nodes[0].others, (List{8, 9, 10, 11}));
  EXPECT_EQ(found.nodes[1].id, 2);
  EXPECT_EQ(found.nodes[1].cores, (List{4, 5, 6, 7}));
  EXPECT_EQ(found.nodes[1].others, (List{12, 13, 14, 15}));
  EXPECT_EQ(found.current, 1u);
  EXPECT_TRUE(found.is_balanced);
}

TEST(MemoryNodes, KeepToTheCpusThatTheProcessMayUse) {
  const FakeMachine machine;
  machine.two_sockets();
  // Of the core of 6 and 14 only the second thread.
  const MemoryNodes found = memory_nodes(machine.root(), {1, 2, 10, 14}, 2);
  ASSERT_EQ(found.nodes.size(), 2u);
  EXPECT_EQ(found.nodes[0].cores, (List{1, 2}));
  EXPECT_EQ(found.nodes[0].others, (List{10}));
  EXPECT_EQ(found.nodes[1].cores, (List{14}));
  EXPECT_TRUE(found.nodes[1].others.empty());
  EXPECT_EQ(memory_nodes(machine.root(), {4, 5}, 4).nodes.size(), 1u);
}

TEST(MemoryNodes, AreOneWhereTheSystemDoesNotTell) {
  const FakeMachine machine;
  const auto all_of_one = [&] {
    const MemoryNodes found = memory_nodes(machine.root(), first_cpus(4), 0);
    return found.nodes.size() == 1 && found.nodes[0].cores == first_cpus(4) && !found.is_balanced;
  };
  EXPECT_TRUE(all_of_one());
  for (const char* text : {"", "x", "-1", "9", "0-", "99999999999999999999"}) {
    machine.file("sys/devices/system/node/online", text);
    EXPECT_TRUE(all_of_one()) << text;
  }
  EXPECT_GE(memory_nodes().nodes.size(), 1u);
}

TEST(UseNodes, DistributeGivesEachThreadACoreOfEveryNodeInTurnAndDealsMemoryOut) {
  const FakeMachine machine;
  machine.two_sockets();
  const NodeUse use = use_nodes(asked(Numa::distribute), memory_nodes(machine.root(), first_cpus(16), 0));
  EXPECT_EQ(use.threads.cpus, (List{0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15}));
  EXPECT_TRUE(use.threads.strict);
  EXPECT_EQ(use.threads.n_threads, 8);
  EXPECT_EQ(use.policy, MemoryPolicy::interleave);
  EXPECT_EQ(use.policy_nodes, (List{0, 2}));
  EXPECT_EQ(use.note,
            "--numa distribute: memory is dealt out over nodes 0,2, threads on their 8 cores, of each node in turn");
}

TEST(UseNodes, DistributeTakesCoresBeforeSecondThreadsOnUnequalNodesToo) {
  const FakeMachine machine;
  machine.two_sockets();
  const NodeUse use = use_nodes(asked(Numa::distribute), memory_nodes(machine.root(), {0, 1, 2, 8, 9, 4, 12}, 0));
  EXPECT_EQ(use.threads.cpus, (List{0, 4, 1, 2, 8, 12, 9}));
  EXPECT_EQ(use.threads.n_threads, 4);
}

TEST(UseNodes, IsolateKeepsThreadsAndMemoryOnTheNodeOfTheStart) {
  const FakeMachine machine;
  machine.two_sockets();
  ThreadSettings given = asked(Numa::isolate);
  given.n_threads = 3;
  const NodeUse use = use_nodes(given, memory_nodes(machine.root(), first_cpus(16), 12));
  EXPECT_EQ(use.threads.cpus, (List{4, 5, 6, 7, 12, 13, 14, 15}));
  EXPECT_FALSE(use.threads.strict);
  EXPECT_EQ(use.threads.n_threads, 3);
  EXPECT_EQ(use.policy, MemoryPolicy::prefer);
  EXPECT_EQ(use.policy_nodes, (List{2}));
  EXPECT_EQ(use.note, "--numa isolate: memory is that of node 2 while it lasts, threads on its 4 cores");
}

TEST(UseNodes, CpusThatTheUserNamedAreKept) {
  const FakeMachine machine;
  machine.two_sockets();
  const MemoryNodes nodes = memory_nodes(machine.root(), first_cpus(16), 0);
  for (const Numa numa : {Numa::distribute, Numa::isolate}) {
    ThreadSettings given = asked(numa);
    given.cpus = {5};
    const NodeUse use = use_nodes(given, nodes);
    EXPECT_EQ(use.threads, given);
    EXPECT_NE(use.policy, MemoryPolicy::unchanged);
  }
}

TEST(UseNodes, NothingChangesWithOneNodeOrWithNumactl) {
  const FakeMachine machine;
  const MemoryNodes one = memory_nodes(machine.root(), first_cpus(4), 0);
  machine.two_sockets();
  const MemoryNodes two = memory_nodes(machine.root(), first_cpus(16), 0);
  for (const Numa numa : {Numa::distribute, Numa::isolate, Numa::numactl}) {
    const NodeUse use = use_nodes(asked(numa), one);
    EXPECT_EQ(use.threads, asked(numa));
    EXPECT_EQ(use.policy, MemoryPolicy::unchanged);
    EXPECT_TRUE(use.note.ends_with("changes nothing: there is one memory node")) << use.note;
  }
  EXPECT_EQ(use_nodes(asked(Numa::numactl), two).threads, asked(Numa::numactl));
  EXPECT_EQ(use_nodes(asked(Numa::off), two).note, "");
}

TEST(MemoryPolicy, IsThatOfTheThreadAfterwards) {
  const auto current = [] {
    int mode = -1;
    return syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) == 0 ? mode : -1;
  };
  const int before = current();
  if (before < 0) GTEST_SKIP() << "this system has no memory policies";
  const std::string refused = apply_memory_policy(MemoryPolicy::interleave, {0});
  if (refused == "Operation not permitted") GTEST_SKIP() << refused;
  EXPECT_EQ(refused, "");
  EXPECT_EQ(current(), 3);
  EXPECT_EQ(apply_memory_policy(MemoryPolicy::prefer, {0}), "");
  EXPECT_EQ(current(), 1);
  // A node that is not there: refused with a reason, and the policy stays.
  EXPECT_NE(apply_memory_policy(MemoryPolicy::interleave, {1000}), "");
  EXPECT_EQ(apply_memory_policy(MemoryPolicy::unchanged, {0}), "");
  EXPECT_EQ(current(), 1);
  ASSERT_EQ(syscall(SYS_set_mempolicy, 0, nullptr, 0UL), 0);
}

}  // namespace
}  // namespace common
