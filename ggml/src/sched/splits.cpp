#include "sched/splits.h"

#include <algorithm>
#include <utility>

#include "core/graph_walk.h"

namespace ggml::sched {
namespace {

constexpr int kNone = -1;

struct Range {
  int device;
  std::vector<std::size_t> nodes;  // in order
};

/// For each node those before it that must have run: makers of what it reads, and users of the same state.
std::vector<std::vector<std::size_t>> dependencies(const Graph& graph) {
  std::vector<std::vector<std::size_t>> before(graph.nodes.size());
  std::vector<int> writer(graph.tensors.size(), kNone), state_user(graph.tensors.size(), kNone);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    for_each_read(node, [&](TensorId id) {
      const int w = writer[index(base_of(graph, id))];
      if (w != kNone) before[n].push_back(static_cast<std::size_t>(w));
    });
    if (const TensorId state = state_of(node); state.valid()) {
      int& user = state_user[index(base_of(graph, state))];
      if (user != kNone) before[n].push_back(static_cast<std::size_t>(user));
      user = static_cast<int>(n);
    }
    for (const TensorId id : node.dst) writer[index(base_of(graph, id))] = static_cast<int>(n);
  }
  return before;
}

/// Takes from what is ready all that runs on the present device before it goes on to another one.
std::vector<Range> order(const Assigned& assigned, const std::vector<std::vector<std::size_t>>& before) {
  const std::size_t n_nodes = assigned.graph.nodes.size();
  std::vector<bool> taken(n_nodes, false);
  const auto ready = [&](std::size_t n) {
    return std::all_of(before[n].begin(), before[n].end(), [&](std::size_t b) { return taken[b]; });
  };
  std::vector<Range> ranges;
  for (std::size_t first = 0; first < n_nodes;) {
    Range range{assigned.device[first], {}};
    for (std::size_t n = first; n < n_nodes; ++n) {
      if (taken[n] || assigned.device[n] != range.device || !ready(n)) continue;
      taken[n] = true;
      range.nodes.push_back(n);
    }
    ranges.push_back(std::move(range));
    while (first < n_nodes && taken[first]) ++first;
  }
  return ranges;
}

bool multiplies(const Graph& graph, const Node& node) {
  bool result = false;
  for_each_read(node, [&](TensorId id) {
    const Tensor& t = graph.at(base_of(graph, id));
    result |= t.role == TensorRole::weight && t.shape[1] > 1;
  });
  return result;
}

/// Cuts ranges where a part of the work is not waited for by any other device: what others wait for goes first, so that
/// they work beside the rest (shared experts on a card while the CPU does the routed ones).
std::vector<Range> put_awaited_first(const Assigned& assigned, std::vector<Range> ranges,
                                     const std::vector<std::vector<std::size_t>>& before) {
  const Graph& graph = assigned.graph;
  std::vector<int> writer(graph.tensors.size(), kNone);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (const TensorId id : graph.nodes[n].dst) writer[index(base_of(graph, id))] = static_cast<int>(n);
  std::vector<bool> awaited(graph.nodes.size(), false);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for_each_read(graph.nodes[n], [&](TensorId id) {
      const int w = writer[index(base_of(graph, id))];
      if (w != kNone && assigned.device[static_cast<std::size_t>(w)] != assigned.device[n])
        awaited[static_cast<std::size_t>(w)] = true;
    });
  }
  std::vector<Range> result;
  for (Range& range : ranges) {
    // Backwards: what the awaited nodes need, inside the range.
    std::vector<bool> here(graph.nodes.size(), false), early(graph.nodes.size(), false);
    for (const std::size_t n : range.nodes) here[n] = true;
    for (auto it = range.nodes.rbegin(); it != range.nodes.rend(); ++it) {
      early[*it] = early[*it] || awaited[*it];
      if (!early[*it]) continue;
      for (const std::size_t b : before[*it]) early[b] = early[b] || here[b];
    }
    Range first{range.device, {}}, rest{range.device, {}};
    for (const std::size_t n : range.nodes) (early[n] ? first : rest).nodes.push_back(n);
    const bool worth = !first.nodes.empty() && std::any_of(rest.nodes.begin(), rest.nodes.end(), [&](std::size_t n) {
      return multiplies(graph, graph.nodes[n]);
    });
    if (!worth) {
      result.push_back(std::move(range));
      continue;
    }
    result.push_back(std::move(first));
    result.push_back(std::move(rest));
  }
  return result;
}

/// The stream of each tensor that is one's weight.
std::vector<int> streams_by_tensor(const Graph& graph, const Streams& streams) {
  std::vector<int> of(graph.tensors.size(), kNone);
  for (std::size_t i = 0; i < graph.tensors.size(); ++i)
    for (std::size_t s = 0; s < streams.all.size(); ++s)
      if (graph.tensors[i].role == TensorRole::weight && graph.tensors[i].weight == &streams.all[s]->there)
        of[i] = static_cast<int>(s);
  return of;
}

/// Cuts ranges in front of nodes that read experts of which the range itself first says which ones.
std::vector<Range> cut_behind_routers(const Graph& graph, std::vector<Range> ranges, const Streams& streams) {
  const std::vector<int> stream_of = streams_by_tensor(graph, streams);
  std::vector<Range> result;
  for (Range& range : ranges) {
    Range piece{range.device, {}};
    std::vector<bool> made(graph.tensors.size(), false);
    for (const std::size_t n : range.nodes) {
      bool waits = false;
      for_each_read(graph.nodes[n], [&](TensorId id) {
        const int s = stream_of[index(base_of(graph, id))];
        if (s == kNone) return;
        const Stream& stream = *streams.all[static_cast<std::size_t>(s)];
        waits |= range.device != 0 && stream.n_experts > 0 && made[index(stream.ids)];
      });
      if (waits) {
        result.push_back(std::exchange(piece, {range.device, {}}));
        made.assign(graph.tensors.size(), false);
      }
      piece.nodes.push_back(n);
      for (const TensorId id : graph.nodes[n].dst) made[index(base_of(graph, id))] = true;
    }
    result.push_back(std::move(piece));
  }
  return result;
}

std::vector<Range> ranges_of(const Assigned& assigned, const Streams& streams, bool late) {
  const std::vector<std::vector<std::size_t>> before = dependencies(assigned.graph);
  std::vector<Range> ranges = put_awaited_first(assigned, order(assigned, before), before);
  return late ? cut_behind_routers(assigned.graph, std::move(ranges), streams) : ranges;
}

/// Builds the list of exchanges and the graphs of splits from the ranges.
class Cutter {
 public:
  Cutter(const Assigned& assigned, std::span<const PlacedPort> ports, const Streams& streams, bool late)
      : graph_(assigned.graph),
        ports_(ports),
        streams_(streams),
        late_(late),
        ranges_(ranges_of(assigned, streams, late)),
        stream_of_(streams_by_tensor(graph_, streams)),
        producer_(graph_.tensors.size(), kNone),
        exchange_(graph_.tensors.size(), kNone) {}

  Splits run() {
    for (std::size_t s = 0; s < ranges_.size(); ++s)
      for (const std::size_t n : ranges_[s].nodes)
        for (const TensorId id : graph_.nodes[n].dst) producer_[index(base_of(graph_, id))] = static_cast<int>(s);
    for (std::size_t s = 0; s < ranges_.size(); ++s) note_uses(static_cast<int>(s));
    for (std::size_t s = 0; s < ranges_.size(); ++s) result_.all.push_back(make_split(static_cast<int>(s)));
    return std::move(result_);
  }

 private:
  [[nodiscard]] int home_of_port(const Tensor& t) const { return t.port.valid() ? home_of(t.port, ports_).v : kNone; }
  [[nodiscard]] bool is_shared(const Tensor& t) const { return t.port.valid() && home_of_port(t) < 0; }

  Exchange& exchange_for(TensorId base, int home) {
    int& e = exchange_[index(base)];
    if (e == kNone) {
      e = static_cast<int>(result_.exchanges.size());
      Exchange made;
      made.tensor = base;
      made.producer = producer_[index(base)];
      made.home = home;
      made.port = graph_.at(base).port;
      made.port_home = home_of_port(graph_.at(base));
      made.devices = DeviceSet{1} << home;
      result_.exchanges.push_back(std::move(made));
    }
    return result_.exchanges[static_cast<std::size_t>(e)];
  }

  void note_uses(int split) {
    const int device = ranges_[static_cast<std::size_t>(split)].device;
    for (const std::size_t n : ranges_[static_cast<std::size_t>(split)].nodes) {
      const Node& node = graph_.nodes[n];
      for_each_read(node, [&](TensorId id) { note_read(base_of(graph_, id), split, device); });
      for (const TensorId id : node.dst) {
        const TensorId base = base_of(graph_, id);
        const int home = home_of_port(graph_.at(base));
        // The caller's memory lies on another device.
        if (home >= 0 && home != device) exchange_for(base, device).devices |= DeviceSet{1} << home;
      }
    }
  }

  void note_read(TensorId base, int split, int device) {
    const Tensor& t = graph_.at(base);
    // What the device cannot compute runs on the CPU, with the weight where it lies.
    if (late_ && device != 0 && stream_of_[index(base)] != kNone) note_host_read(stream_of_[index(base)], split);
    if (t.role == TensorRole::weight || is_shared(t)) return;
    int home = kNone;
    if (t.role == TensorRole::port) {
      home = home_of_port(t);
      if (home == device) return;
    } else {
      if (producer_[index(base)] == split) return;
      home = ranges_[static_cast<std::size_t>(producer_[index(base)])].device;
    }
    Exchange& e = exchange_for(base, home);
    e.devices |= DeviceSet{1} << device;
    if (e.readers.empty() || e.readers.back() != split) e.readers.push_back(split);
  }

  /// The host will look at the experts that rows use before it runs the split.
  void note_host_read(int stream, int split) {
    const Stream& s = *streams_.all[static_cast<std::size_t>(stream)];
    if (s.n_experts == 0 || producer_[index(s.ids)] == kNone) return;
    Exchange& e = exchange_for(s.ids, ranges_[static_cast<std::size_t>(producer_[index(s.ids)])].device);
    e.devices |= DeviceSet{1};
    e.host_reader = std::max(e.host_reader, split);
  }

  Split make_split(int number) {
    const Range& range = ranges_[static_cast<std::size_t>(number)];
    Split split;
    split.device = range.device;
    split.graph.token_bucket = graph_.token_bucket;
    split.graph.output_bucket = graph_.output_bucket;
    number_of_.assign(graph_.tensors.size(), kNone);
    for (const std::size_t n : range.nodes) {
      Node node = graph_.nodes[n];
      for (TensorId& id : node.src) id = take(id, number, split);
      for (Slot& slot : node.slots) for_each_of_slot(slot, [&](TensorId& id) { id = take(id, number, split); });
      for (TensorId& id : node.dst) id = take(id, number, split);
      split.graph.nodes.push_back(std::move(node));
    }
    return split;
  }

  /// The tensor's number in the split's graph; it is added there when it is new.
  TensorId take(TensorId id, int number, Split& split) {
    if (!id.valid()) return id;
    if (number_of_[index(id)] != kNone) return TensorId(number_of_[index(id)]);
    Tensor tensor = graph_.at(id);
    if (const int s = stream_of_[index(id)]; s != kNone && split.device != 0)
      split.streams.push_back(static_cast<std::size_t>(s));
    if (tensor.role == TensorRole::view)
      tensor.base = take(tensor.base, number, split);
    else
      connect(id, number, split, tensor);
    split.graph.tensors.push_back(std::move(tensor));
    number_of_[index(id)] = static_cast<int>(split.graph.tensors.size()) - 1;
    return TensorId(number_of_[index(id)]);
  }

  /// Makes a tensor that comes from elsewhere, or goes there, a port.
  void connect(TensorId id, int number, Split& split, Tensor& tensor) {
    const bool made_here = producer_[index(id)] == number;
    const bool made_before = tensor.role == TensorRole::activation && !made_here;
    if (is_shared(tensor)) {
      split.writes_shared |= made_here;
      split.reads_shared |= made_before;
    }
    if (const int e = exchange_[index(id)]; e != kNone) {
      // In the memory of the caller's port's own device the tensor lies in that port.
      if (home_of_port(tensor) != split.device) tensor.port = PortId(kFirstExchangePort + e);
      if (made_here) split.made.push_back(e);
    }
    if (!made_before) return;
    tensor.role = TensorRole::port;
    tensor.observed = false;
  }

  const Graph& graph_;
  std::span<const PlacedPort> ports_;
  const Streams& streams_;
  bool late_;
  std::vector<Range> ranges_;
  std::vector<int> stream_of_;  // per tensor
  std::vector<int> producer_;   // per tensor: the split that makes it
  std::vector<int> exchange_;   // per tensor
  std::vector<int> number_of_;  // per tensor: its number in the split at hand
  Splits result_;
};

}  // namespace

Splits cut(const Assigned& assigned, std::span<const PlacedPort> ports, const Streams& streams, bool late) {
  return Cutter(assigned, ports, streams, late).run();
}

}  // namespace ggml::sched
