#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ggml/device.h"
#include "ggml/host_results.h"
#include "sched/staging.h"
#include "sched/streams.h"

namespace ggml::sched {

/// A copy between host memory and a device, with its addresses.
struct BoundCopy {
  int device = 0;
  bool to_device = false;
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;
  Rows rows = Rows::fixed;
  std::size_t bytes = 0;  // in all, or for each real row

  [[nodiscard]] std::size_t bytes_of(const StepCounts& counts) const {
    return rows == Rows::tokens    ? bytes * static_cast<std::size_t>(counts.n_tokens)
           : rows == Rows::outputs ? bytes * static_cast<std::size_t>(counts.n_outputs)
                                   : bytes;
  }
};

/// The programs of a schedule's splits and the copies around them.
class ScheduledProgram final : public Program, public HostResults {
 public:
  struct Part {
    int device = 0;
    std::unique_ptr<Program> program;
    std::string label;
    std::uint64_t n_nodes = 0;
    std::vector<BoundCopy> in, out;
    bool writes_shared = false, reads_shared = false;
    std::vector<std::size_t> streams;  // that it reads
    bool looks_at_ids = false;         // some of them are sent as rows use them
  };

  [[nodiscard]] const MemoryPlan& memory() const noexcept override { return plan_; }
  [[nodiscard]] std::vector<std::string> describe() const override {
    std::vector<std::string> lines;
    for (const Part& part : parts)
      for (std::string& line : part.program->describe()) lines.push_back(std::move(line));
    return lines;
  }
  [[nodiscard]] bool send_result(PortId port, std::byte* to) override {
    HostResults* results = host_results();
    return results != nullptr && results->send_result(port, to);
  }
  [[nodiscard]] std::optional<bool> gave_nan() const override {
    const HostResults* results = host_results();
    return results == nullptr ? std::nullopt : results->gave_nan();
  }
  /// The parts' arenas added up; offsets only where there is one part.
  void sum_memory() {
    if (parts.size() == 1) {
      plan_ = parts.front().program->memory();
      return;
    }
    for (const Part& part : parts) {
      plan_.arena_bytes += part.program->memory().arena_bytes;
      plan_.max_live_bytes += part.program->memory().max_live_bytes;
    }
  }

  int token_bucket = 0, output_bucket = 0;
  std::vector<BoundCopy> first_out, last_in;
  BoundStreams streams;
  Streams streamed;  // the weights that the parts' programs point to
  std::vector<Part> parts;
  int handed_with = 0;  // the device with which the CPU hands over; 0: none

 private:
  /// Of the only part: what several leave, some of them may not have looked at.
  [[nodiscard]] HostResults* host_results() const {
    return parts.size() == 1 ? dynamic_cast<HostResults*>(parts.front().program.get()) : nullptr;
  }

  MemoryPlan plan_;
};

}  // namespace ggml::sched
