#include "sched/cut_schedule.h"

#include "ggml/log.h"

namespace ggml::sched {

std::vector<std::string> CutSchedule::describe() const {
  std::vector<std::string> lines;
  const auto names = [&](const std::vector<Transfer>& transfers) {
    std::string list;
    for (const Transfer& t : transfers)
      list += (list.empty() ? "" : " ") + exchanged[static_cast<std::size_t>(t.exchange)].name;
    return list;
  };
  for (std::size_t s = 0; s < splits.all.size(); ++s) {
    const Split& split = splits.all[s];
    lines.push_back(strf("%s: %zu nodes, %s .. %s; in: %s; out: %s",
                         device_names[static_cast<std::size_t>(split.device)].c_str(), split.graph.nodes.size(),
                         split.graph.nodes.front().name.c_str(), split.graph.nodes.back().name.c_str(),
                         names(exchange.at[s].in).c_str(), names(exchange.at[s].out).c_str()));
  }
  return lines;
}

}  // namespace ggml::sched
