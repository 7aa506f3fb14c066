#include "sched/exchange_plan.h"

#include <algorithm>

#include "core/block_placement.h"

namespace ggml::sched {
namespace {

constexpr std::size_t kAlign = 256;  // what a card's vector loads and copies like

class Planner {
 public:
  Planner(const Splits& splits, const Graph& graph, std::size_t n_devices)
      : splits_(splits), graph_(graph), n_devices_(n_devices), end_(static_cast<int>(splits.all.size()) + 1) {}

  ExchangePlan run() {
    plan_.at.resize(splits_.all.size());
    plan_.offsets.assign(splits_.exchanges.size(), std::vector<std::size_t>(n_devices_, kNowhere));
    blocks_.resize(n_devices_);
    owners_.resize(n_devices_);
    for (std::size_t e = 0; e < splits_.exchanges.size(); ++e) add(static_cast<int>(e));
    plan_.area_bytes.assign(n_devices_, 0);
    for (std::size_t d = 0; d < n_devices_; ++d) {
      plan_.area_bytes[d] = place_blocks(blocks_[d]);
      for (std::size_t b = 0; b < blocks_[d].size(); ++b)
        plan_.offsets[static_cast<std::size_t>(owners_[d][b])][d] = blocks_[d][b].offset;
    }
    return std::move(plan_);
  }

 private:
  /// Moments: 0 before the first split, s + 1 split s, end_ after the last.
  struct Use {
    int first;
    int last;
  };

  [[nodiscard]] Use readers_on(const Exchange& e, int device) const {
    Use use{end_, -1};
    for (const int split : e.readers) {
      if (splits_.all[static_cast<std::size_t>(split)].device != device) continue;
      use.first = std::min(use.first, split + 1);
      use.last = std::max(use.last, split + 1);
    }
    return use;
  }

  void add(int number) {
    const Exchange& e = splits_.exchanges[static_cast<std::size_t>(number)];
    const int made = e.producer + 1;
    int host_last = std::max(readers_on(e, 0).last, e.host_reader >= 0 ? e.host_reader + 1 : -1);
    for (int d = 1; d < static_cast<int>(n_devices_); ++d) {
      if ((e.devices >> d & 1u) == 0) continue;
      const Use use = readers_on(e, d);
      if (d == e.home) {
        place(number, d, {made, std::max(made, use.last)});
        continue;
      }
      // Copied where it is first read; the caller's port gets it at the end where nobody reads it before.
      host_last = std::max(host_last, use.first);
      place(number, d, {use.first, std::max(use.first, use.last)});
      if (use.last < 0)
        plan_.last_in.push_back({number, d});
      else
        plan_.at[static_cast<std::size_t>(use.first) - 1].in.push_back({number, d});
    }
    if (!e.crosses() && e.home != 0) return;
    place(number, 0, {made, std::max(made, host_last)});
    if (e.home == 0) return;
    if (e.producer < 0)
      plan_.first_out.push_back({number, e.home});
    else
      plan_.at[static_cast<std::size_t>(e.producer)].out.push_back({number, e.home});
  }

  void place(int number, int device, const Use& use) {
    const Exchange& e = splits_.exchanges[static_cast<std::size_t>(number)];
    const auto d = static_cast<std::size_t>(device);
    if (e.port_home == device) {
      plan_.offsets[static_cast<std::size_t>(number)][d] = kCallersPort;
      return;
    }
    const Tensor& t = graph_.at(e.tensor);
    const std::size_t bytes = (tensor_bytes(t.type, t.shape) + kAlign - 1) / kAlign * kAlign;
    blocks_[d].push_back({bytes, use.first, use.last, 0});
    owners_[d].push_back(number);
  }

  const Splits& splits_;
  const Graph& graph_;
  const std::size_t n_devices_;
  const int end_;
  ExchangePlan plan_;
  std::vector<std::vector<MemoryBlock>> blocks_;  // per device
  std::vector<std::vector<int>> owners_;          // exchange of each block
};

}  // namespace

ExchangePlan plan_exchange(const Splits& splits, const Graph& graph, std::size_t n_devices) {
  return Planner(splits, graph, n_devices).run();
}

}  // namespace ggml::sched
