#pragma once

#include <string>
#include <vector>

#include "ggml/scheduler.h"
#include "sched/exchange_plan.h"
#include "sched/splits.h"

namespace ggml::sched {

/// What cut() found out about a graph.
class CutSchedule final : public Schedule {
 public:
  [[nodiscard]] int n_splits() const noexcept override { return static_cast<int>(splits.all.size()); }
  [[nodiscard]] int n_mixed() const noexcept override { return mixed; }
  [[nodiscard]] int n_streams() const noexcept override { return static_cast<int>(streams.all.size()); }
  [[nodiscard]] std::vector<std::string> describe() const override;

  Splits splits;
  ExchangePlan exchange;
  std::vector<Tensor> exchanged;         // per exchange: what it looks like
  std::vector<std::size_t> arena_bytes;  // per device
  std::vector<std::string> device_names;
  int mixed = 0;
  Streams streams;
  Streaming streaming;  // that they were found with
};

}  // namespace ggml::sched
