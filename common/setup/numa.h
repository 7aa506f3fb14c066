#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/args/settings.h"

namespace common {

/// A memory node that has CPUs on which this process may run.
struct MemoryNode {
  int id = 0;               // the kernel's number
  std::vector<int> cores;   // one hardware thread of each core
  std::vector<int> others;  // the other hardware threads
};

/// What --numa needs to know of the machine.
struct MemoryNodes {
  std::vector<MemoryNode> nodes;  // at least one
  std::size_t current = 0;        // index of the node that the calling thread runs on
  bool is_balanced = false;       // the kernel moves pages between nodes by itself
};

/// Reads /sys and /proc below `root` ("/"; another one in tests). `allowed`: the CPUs that count; `current_cpu`: the
/// one of the calling thread. Where the system does not tell, all CPUs are of one node.
[[nodiscard]] MemoryNodes memory_nodes(const std::filesystem::path& root, const std::vector<int>& allowed,
                                       int current_cpu);
/// Those of this machine. They are read once: the node of the start stays what it was, wherever threads go later.
[[nodiscard]] const MemoryNodes& memory_nodes();

enum class MemoryPolicy : std::uint8_t { unchanged, interleave, prefer };

/// What --numa does on a machine.
struct NodeUse {
  ThreadSettings threads;  // with the CPUs, and where there was no number the threads, that it asks for
  MemoryPolicy policy = MemoryPolicy::unchanged;
  std::vector<int> policy_nodes;  // the kernel's numbers
  std::string note;               // a line for the log; empty: nothing was asked for
};

/// distribute: each thread has a core of its own, of every node in turn, and memory is dealt out over the nodes.
/// isolate: all threads are on the current node, and so is memory while it lasts. CPUs that the user named are kept;
/// with one node nothing changes.
[[nodiscard]] NodeUse use_nodes(const ThreadSettings& given, const MemoryNodes& nodes);
/// use_nodes() of this machine.
[[nodiscard]] NodeUse use_nodes(const ThreadSettings& given);

/// Makes the policy that of the calling thread and of the threads that it starts from now on. Gives the system's reason
/// where it does not allow that; empty: done.
[[nodiscard]] std::string apply_memory_policy(MemoryPolicy policy, const std::vector<int>& nodes);

/// Does what --numa says about memory, and logs what it does. The threads are those of placed_threads().
void start_on_nodes(const ThreadSettings& given);

/// `given` with what --numa adds to it.
[[nodiscard]] ThreadSettings placed_threads(const ThreadSettings& given);

}  // namespace common
