#include "common/setup/numa.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string_view>

#include "common/args/cpu_list.h"
#include "ggml/log.h"
#include "ggml/threads.h"

namespace common {
namespace {

namespace fs = std::filesystem;
using ggml::logf;
using ggml::LogLevel;
using ggml::strf;

constexpr int kMostNumbers = 1 << 16;  // CPUs or nodes

std::string first_line(const fs::path& path) {
  std::string line;
  std::ifstream in(path);
  std::getline(in, line);
  return line;
}

/// "0-3,8,10-11"; what is no number ends the list.
std::vector<int> parse_kernel_list(std::string_view text) {
  std::vector<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int low = 0;
    auto [after, failure] = std::from_chars(at, end, low);
    if (failure != std::errc() || low < 0) break;
    int high = low;
    if (after < end && *after == '-') {
      const auto range = std::from_chars(after + 1, end, high);
      if (range.ec != std::errc()) break;
      after = range.ptr;
    }
    for (int i = low; i <= std::min(high, kMostNumbers); ++i) numbers.push_back(i);
    if (after < end && *after != ',') break;
    at = after + 1;
  }
  return numbers;
}

/// Whether a CPU is the first of its core that this process may use, as far as the system tells.
bool is_first_of_core(const fs::path& root, int cpu, const std::vector<int>& allowed) {
  const fs::path topology = root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology";
  for (const int sibling : parse_kernel_list(first_line(topology / "thread_siblings_list")))
    if (std::find(allowed.begin(), allowed.end(), sibling) != allowed.end()) return sibling == cpu;
  return true;
}

using Cpus = std::vector<int> MemoryNode::*;

/// CPUs of all nodes, one of each in turn.
void append_in_turn(const std::vector<MemoryNode>& nodes, Cpus which, std::vector<int>& all) {
  std::size_t longest = 0;
  for (const MemoryNode& node : nodes) longest = std::max(longest, (node.*which).size());
  for (std::size_t i = 0; i < longest; ++i)
    for (const MemoryNode& node : nodes)
      if (i < (node.*which).size()) all.push_back((node.*which)[i]);
}

std::string numbers_text(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

const char* name_of(Numa numa) {
  constexpr const char* kNames[] = {"off", "distribute", "isolate", "numactl"};
  return kNames[static_cast<int>(numa)];
}

/// Each thread has a core of its own, of every node in turn; the second threads of cores come last.
void distribute(const MemoryNodes& nodes, NodeUse& use) {
  use.policy = MemoryPolicy::interleave;
  std::size_t n_cores = 0;
  for (const MemoryNode& node : nodes.nodes) {
    use.policy_nodes.push_back(node.id);
    n_cores += node.cores.size();
  }
  use.note = strf("--numa distribute: memory is dealt out over nodes %s", numbers_text(use.policy_nodes).c_str());
  if (!use.threads.cpus.empty()) return;
  append_in_turn(nodes.nodes, &MemoryNode::cores, use.threads.cpus);
  append_in_turn(nodes.nodes, &MemoryNode::others, use.threads.cpus);
  use.threads.strict = true;
  if (use.threads.n_threads <= 0) use.threads.n_threads = static_cast<int>(n_cores);
  use.note += strf(", threads on their %zu cores, of each node in turn", n_cores);
}

void isolate(const MemoryNodes& nodes, NodeUse& use) {
  const MemoryNode& node = nodes.nodes[nodes.current];
  use.policy = MemoryPolicy::prefer;
  use.policy_nodes = {node.id};
  use.note = strf("--numa isolate: memory is that of node %d while it lasts", node.id);
  if (!use.threads.cpus.empty()) return;
  use.threads.cpus = node.cores;
  use.threads.cpus.insert(use.threads.cpus.end(), node.others.begin(), node.others.end());
  if (use.threads.n_threads <= 0) use.threads.n_threads = static_cast<int>(node.cores.size());
  use.note += strf(", threads on its %zu cores", node.cores.size());
}

}  // namespace

MemoryNodes memory_nodes(const fs::path& root, const std::vector<int>& allowed, int current_cpu) {
  MemoryNodes found;
  const auto add = [&](int id, const std::vector<int>& cpus) {
    MemoryNode node{id, {}, {}};
    for (const int cpu : cpus) {
      if (std::find(allowed.begin(), allowed.end(), cpu) == allowed.end()) continue;
      if (cpu == current_cpu) found.current = found.nodes.size();
      (is_first_of_core(root, cpu, allowed) ? node.cores : node.others).push_back(cpu);
    }
    if (node.cores.empty()) node.cores.swap(node.others);
    // A node of memory alone, or of CPUs that are not for this process, runs nothing.
    if (!node.cores.empty()) found.nodes.push_back(std::move(node));
  };
  const fs::path folder = root / "sys/devices/system/node";
  for (const int id : parse_kernel_list(first_line(folder / "online")))
    add(id, parse_kernel_list(first_line(folder / ("node" + std::to_string(id)) / "cpulist")));
  if (found.nodes.empty()) add(0, allowed);
  found.is_balanced = first_line(root / "proc/sys/kernel/numa_balancing") == "1";
  return found;
}

const MemoryNodes& memory_nodes() {
  static const MemoryNodes kFound = [] {
    std::vector<int> allowed = ggml::allowed_cores();
    if (allowed.empty()) {
      allowed.resize(static_cast<std::size_t>(hardware_threads()));
      std::iota(allowed.begin(), allowed.end(), 0);
    }
    return memory_nodes("/", allowed, sched_getcpu());
  }();
  return kFound;
}

NodeUse use_nodes(const ThreadSettings& given, const MemoryNodes& nodes) {
  NodeUse use;
  use.threads = given;
  if (given.numa == Numa::off) return use;
  if (nodes.nodes.size() < 2) {
    use.note = strf("--numa %s changes nothing: there is one memory node", name_of(given.numa));
    return use;
  }
  if (given.numa == Numa::distribute) distribute(nodes, use);
  if (given.numa == Numa::isolate) isolate(nodes, use);
  if (given.numa == Numa::numactl) use.note = "--numa numactl: threads and memory stay where the process was started";
  return use;
}

NodeUse use_nodes(const ThreadSettings& given) {
  if (given.numa == Numa::off) return use_nodes(given, {});
  return use_nodes(given, memory_nodes());
}

std::string apply_memory_policy(MemoryPolicy policy, const std::vector<int>& nodes) {
  if (policy == MemoryPolicy::unchanged || nodes.empty()) return {};
  // Numbers of the kernel's interface (linux/mempolicy.h, which not every system has).
  constexpr int kPrefer = 1, kInterleave = 3;
  constexpr std::size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  const auto most = static_cast<std::size_t>(*std::max_element(nodes.begin(), nodes.end()));
  std::vector<unsigned long> mask(most / kBits + 1, 0);
  for (const int node : nodes) {
    const auto bit = static_cast<std::size_t>(node);
    mask[bit / kBits] |= 1UL << (bit % kBits);
  }
  // The kernel takes the number of bits to be one too high.
  const unsigned long n_bits = mask.size() * kBits + 1;
  const int mode = policy == MemoryPolicy::interleave ? kInterleave : kPrefer;
  if (syscall(SYS_set_mempolicy, mode, mask.data(), n_bits) == 0) return {};
  return std::strerror(errno);
}

void start_on_nodes(const ThreadSettings& given) {
  if (given.numa == Numa::off) return;
  const MemoryNodes& nodes = memory_nodes();
  const NodeUse use = use_nodes(given, nodes);
  logf(LogLevel::info, "%s", use.note.c_str());
  if (const std::string reason = apply_memory_policy(use.policy, use.policy_nodes); !reason.empty())
    logf(LogLevel::warn, "--numa %s: the system does not let memory be placed (%s): only threads are",
         name_of(given.numa), reason.c_str());
  if (nodes.nodes.size() > 1 && nodes.is_balanced)
    logf(LogLevel::warn,
         "the kernel moves pages between memory nodes by itself, which costs page faults: "
         "scripts/disable-numa-balancing.sh COMMAND switches that off for a run");
}

ThreadSettings placed_threads(const ThreadSettings& given) {
  return use_nodes(given).threads;
}

}  // namespace common
