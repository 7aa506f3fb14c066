#include "sched/assignment.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "core/graph_walk.h"
#include "core/join_products.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace ggml::sched {
namespace {

DeviceSet only(int device) {
  return DeviceSet{1} << device;
}

bool contains(DeviceSet set, int device) {
  return (set & only(device)) != 0;
}

bool is_single(DeviceSet set) {
  return set != 0 && (set & (set - 1)) == 0;
}

int lowest(DeviceSet set) {
  int device = 0;
  while (!contains(set, device)) ++device;
  return device;
}

/// Says of single nodes where they can run.
class Possibilities {
 public:
  Possibilities(std::span<const PlacedPort> ports, const Machine& machine) : ports_(ports), machine_(machine) {}

  /// Devices that hold all weights and the state of the node, whether or not they can run it.
  [[nodiscard]] DeviceSet holders(const Graph& graph, const Node& node) const {
    DeviceSet set = machine_.all();
    for_each_read(node, [&](TensorId id) {
      const Tensor& t = graph.at(base_of(graph, id));
      if (t.role == TensorRole::weight) set &= places_of(*t.weight, false);
    });
    return set & state_holders(graph, node);
  }

  /// Those of `set` that can run the node, by itself or decomposed.
  [[nodiscard]] DeviceSet able(const Graph& graph, const Node& node, DeviceSet set) const {
    DeviceSet result = 0;
    for (std::size_t d = 0; d < machine_.devices.size(); ++d) {
      const int device = static_cast<int>(d);
      if (contains(set, device) && runs(graph, node, d)) result |= only(device);
    }
    return result;
  }

  /// The CPU, where it finds all that a primitive needs in host memory, planned there or not.
  [[nodiscard]] DeviceSet fallback(const Graph& graph, const Node& node) const {
    DeviceSet set = only(0);
    for_each_read(node, [&](TensorId id) {
      const Tensor& t = graph.at(base_of(graph, id));
      if (t.role == TensorRole::weight) set &= places_of(*t.weight, true);
    });
    return set & state_holders(graph, node);
  }

 private:
  [[nodiscard]] DeviceSet places_of(const Weight& weight, bool with_unplanned) const {
    DeviceSet set = 0;
    for (const Placement& p : weight.placements) {
      if (p.axis != PlacementAxis::whole || (p.role == PlacementRole::cache && !with_unplanned)) continue;
      if (p.kind != BufferKind::device) {
        set |= only(0);
        continue;
      }
      for (std::size_t d = 0; d < machine_.devices.size(); ++d) {
        // Weights without bytes are those of an outline, whose placements name devices by their place in the list.
        const std::int32_t device = p.data == nullptr ? static_cast<std::int32_t>(d) : machine_.devices[d]->id().v;
        if (device == p.device.v) set |= only(static_cast<int>(d));
      }
    }
    return set;
  }

  [[nodiscard]] DeviceSet state_holders(const Graph& graph, const Node& node) const {
    const TensorId state = state_of(node);
    if (!state.valid()) return machine_.all();
    const Tensor& t = graph.at(base_of(graph, state));
    const DeviceId home = t.port.valid() ? home_of(t.port, ports_) : kEverywhere;
    return home.valid() ? only(home.v) : machine_.all();
  }

  [[nodiscard]] bool runs(const Graph& graph, const Node& node, std::size_t device) const {
    const Executor& executor = *machine_.executors[device];
    if (executor.runs(graph, node)) return true;
    if (is_primitive(node.op)) return false;
    Graph one;
    one.tensors = graph.tensors;
    one.nodes = {node};
    one.token_bucket = graph.token_bucket;
    one.output_bucket = graph.output_bucket;
    const Graph parts = decompose(one);
    return std::all_of(parts.nodes.begin(), parts.nodes.end(), [&](const Node& n) { return executor.runs(parts, n); });
  }

  std::span<const PlacedPort> ports_;
  const Machine& machine_;
};

struct KeepContext {
  const Possibilities& possible;
  int* n_mixed;
};

/// Coarse nodes stay whole where one device can do them.
bool keep_whole(const Graph& graph, const Node& node, const void* user) {
  const auto& context = *static_cast<const KeepContext*>(user);
  const DeviceSet holders = context.possible.holders(graph, node);
  if (context.possible.able(graph, node, holders) != 0) return true;
  if (holders == 0) ++*context.n_mixed;
  return false;
}

/// Chooses among the devices that could run a node: the fewest bytes cross, as far as is known.
class Chooser {
 public:
  Chooser(const Graph& graph, std::span<const PlacedPort> ports, const std::vector<DeviceSet>& possible)
      : graph_(graph), possible_(possible), present_(graph.tensors.size(), 0), port_home_(graph.tensors.size(), -1) {
    consumers_.resize(graph.tensors.size());
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const TensorId id : graph.nodes[n].src)
        if (id.valid()) consumers_[index(base_of(graph, id))].push_back(n);
    }
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      const Tensor& t = graph.tensors[i];
      if (t.role == TensorRole::view || !t.port.valid()) continue;
      port_home_[i] = home_of(t.port, ports).v;
      if (t.role == TensorRole::port) present_[i] = port_home_[i] < 0 ? ~DeviceSet{0} : only(port_home_[i]);
    }
    pulls_.resize(graph.nodes.size(), 0);
    for (std::size_t n = graph.nodes.size(); n-- > 0;) pulls_[n] = pull_of(n);
  }

  int choose(std::size_t n) {
    const Node& node = graph_.nodes[n];
    const DeviceSet set = possible_[n];
    int best = lowest(set);
    if (!is_single(set)) {
      double least = std::numeric_limits<double>::infinity();
      for (const int device : preferred(node, set, pulls_[n])) {
        const double bytes = crossing(node, n, device);
        if (bytes >= least) continue;
        least = bytes;
        best = device;
      }
    }
    for (const TensorId id : node.src)
      if (id.valid()) present_[index(base_of(graph_, id))] |= only(best);
    for (const TensorId id : node.dst) {
      const std::size_t i = index(base_of(graph_, id));
      // What goes to memory that all reach is there for all.
      present_[i] |= graph_.tensors[i].port.valid() && port_home_[i] < 0 ? ~DeviceSet{0} : only(best);
    }
    return best;
  }

 private:
  /// Where a node will be, as far as the nodes behind it tell: its own device, or that of the first reader of its
  /// result that has one.
  [[nodiscard]] DeviceSet pull_of(std::size_t n) const {
    if (is_single(possible_[n])) return possible_[n];
    for (const TensorId id : graph_.nodes[n].dst) {
      const std::size_t i = index(base_of(graph_, id));
      if (graph_.tensors[i].port.valid() && port_home_[i] >= 0) return only(port_home_[i]) & possible_[n];
      for (const std::size_t consumer : consumers_[i])
        if (consumer > n && (pulls_[consumer] & possible_[n]) != 0) return pulls_[consumer];
    }
    return 0;
  }

  /// Candidates; where bytes are equal the first wins: the device of the first source, of the next, then the others.
  [[nodiscard]] std::vector<int> preferred(const Node& node, DeviceSet set, DeviceSet pull) const {
    std::vector<int> order;
    const auto add = [&](int device) {
      if (contains(set, device) && std::find(order.begin(), order.end(), device) == order.end())
        order.push_back(device);
    };
    // Rounding belongs to the product behind it.
    if (node.op == Op::quantise_act && pull != 0) add(lowest(pull));
    for (const TensorId id : node.src) {
      const DeviceSet present = id.valid() ? present_[index(base_of(graph_, id))] : 0;
      if (is_single(present)) add(lowest(present));
    }
    for (int device = 0; device < kMaxDevices; ++device) add(device);
    return order;
  }

  [[nodiscard]] double bytes_of(std::size_t i) const {
    const Tensor& t = graph_.tensors[i];
    return t.role == TensorRole::weight ? 0.0 : static_cast<double>(tensor_bytes(t.type, t.shape));
  }

  [[nodiscard]] double crossing(const Node& node, std::size_t n, int device) const {
    double bytes = 0;
    for (const TensorId id : node.src) {
      if (!id.valid()) continue;
      const std::size_t i = index(base_of(graph_, id));
      if (!contains(present_[i], device)) bytes += bytes_of(i);
    }
    for (const TensorId id : node.dst) {
      const std::size_t i = index(base_of(graph_, id));
      DeviceSet wanted = 0;
      for (const std::size_t consumer : consumers_[i])
        if (consumer != n) wanted |= pulls_[consumer];
      if (graph_.tensors[i].port.valid()) {
        if (port_home_[i] < 0) continue;
        wanted |= only(port_home_[i]);
      }
      wanted &= ~only(device);
      for (; wanted != 0; wanted &= wanted - 1) bytes += bytes_of(i);
    }
    return bytes;
  }

  const Graph& graph_;
  const std::vector<DeviceSet>& possible_;
  std::vector<DeviceSet> present_;  // per tensor: devices where its bytes are, or will be copied to
  std::vector<std::int32_t> port_home_;
  std::vector<std::vector<std::size_t>> consumers_;
  std::vector<DeviceSet> pulls_;
};

std::string names_of(DeviceSet set, const Machine& machine) {
  std::string names;
  for (std::size_t d = 0; d < machine.devices.size(); ++d)
    if (contains(set, static_cast<int>(d))) names += (names.empty() ? "" : ", ") + machine.devices[d]->name();
  return names.empty() ? "none" : names;
}

}  // namespace

DeviceId home_of(PortId port, std::span<const PlacedPort> ports) {
  for (const PlacedPort& p : ports)
    if (p.binding.port == port) return p.home;
  return kEverywhere;
}

namespace {

/// Where each node can run. Throws Error(unsupported).
std::vector<DeviceSet> possible_devices(const Graph& graph, const Possibilities& possible, const Machine& machine) {
  std::vector<DeviceSet> sets;
  sets.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    const DeviceSet holders = possible.holders(graph, node);
    DeviceSet set = possible.able(graph, node, holders);
    if (set == 0) set = possible.able(graph, node, possible.fallback(graph, node));
    if (set == 0) {
      throw Error(ErrorCode::unsupported,
                  strf("%s: no device can run op %s: what it needs lies on %s", node.name.c_str(), op_name(node.op),
                       names_of(holders, machine).c_str()),
                  "put its tensors on the CPU (-ot), or its keys and values (-nkvo)");
    }
    sets.push_back(set);
  }
  return sets;
}

std::vector<int> choose_devices(const Graph& graph, std::span<const PlacedPort> ports, const Possibilities& possible,
                                const Machine& machine) {
  const std::vector<DeviceSet> sets = possible_devices(graph, possible, machine);
  Chooser chooser(graph, ports, sets);
  std::vector<int> devices;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) devices.push_back(chooser.choose(n));
  return devices;
}

/// Products that share rounded activations may lie on several devices: each device rounds for itself, so that the
/// rounding stays with its product and what crosses is what crosses anyway.
void separate_roundings(Graph& graph, std::size_t n_before, const Possibilities& possible) {
  for (std::size_t r = 0; r < graph.nodes.size(); ++r) {
    if (graph.nodes[r].op != Op::quantise_act || index(graph.nodes[r].dst[0]) < n_before) continue;
    const TensorId shared = graph.nodes[r].dst[0];
    std::vector<std::pair<DeviceSet, TensorId>> copies;  // the first is the node itself
    std::vector<Node> added;
    for (std::size_t n = r + 1; n < graph.nodes.size(); ++n) {
      Node& reader = graph.nodes[n];
      const auto reads = std::find(reader.src.begin(), reader.src.end(), shared);
      if (reads == reader.src.end()) continue;
      const DeviceSet holders = possible.holders(graph, reader);
      auto copy = std::find_if(copies.begin(), copies.end(), [&](const auto& c) { return c.first == holders; });
      if (copy == copies.end() && copies.empty()) copy = copies.insert(copies.end(), {holders, shared});
      if (copy == copies.end()) {
        Tensor tensor = graph.at(shared);
        graph.tensors.push_back(std::move(tensor));
        const TensorId id(static_cast<std::int32_t>(graph.tensors.size()) - 1);
        copy = copies.insert(copies.end(), {holders, id});
        added.push_back(graph.nodes[r]);
        added.back().dst = {id};
      }
      *reads = copy->second;
    }
    graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(r) + 1, added.begin(), added.end());
    r += added.size();
  }
}

/// A norm adds a residual to a branch. Where both come from another device the sum is made there: one tensor crosses
/// instead of two. Whether anything was changed.
bool add_before_crossing(Graph& graph, const std::vector<int>& devices) {
  std::vector<int> made_on(graph.tensors.size(), -1);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (const TensorId id : graph.nodes[n].dst) made_on[index(base_of(graph, id))] = devices[n];
  std::vector<Node> nodes;
  bool changed = false;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    if (node.op == Op::norm && node.src.size() == 2) {
      const int from = made_on[index(base_of(graph, node.src[0]))];
      if (from >= 0 && from != devices[n] && from == made_on[index(base_of(graph, node.src[1]))]) {
        const TensorId sum = node.dst[1];
        nodes.push_back({Op::add, BinaryParams{}, node.src, {}, {sum}, graph.at(sum).name});
        node.src = {sum};
        node.dst.resize(1);
        changed = true;
      }
    }
    nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
  return changed;
}

}  // namespace

Assigned assign(const Graph& graph, std::span<const PlacedPort> ports, const Machine& machine) {
  const Possibilities possible(ports, machine);
  Assigned result;
  const KeepContext context{possible, &result.n_mixed};
  result.graph = decompose(graph, keep_whole, &context);
  if (result.graph.nodes.size() != graph.nodes.size()) {
    join_products(result.graph, graph, [&](const Graph& g, const Node& node) {
      const bool whole = g.at(node.slots[0].weight).role == TensorRole::weight;  // cards keep whole ones in their form
      return whole && possible.able(g, node, possible.holders(g, node)) != 0;
    });
    separate_roundings(result.graph, graph.tensors.size(), possible);
  }
  result.device = choose_devices(result.graph, ports, possible, machine);
  if (add_before_crossing(result.graph, result.device))
    result.device = choose_devices(result.graph, ports, possible, machine);
  return result;
}

}  // namespace ggml::sched
