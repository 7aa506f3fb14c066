#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include "decode/offload_rules.h"
#include "decode/segments.h"
#include "ggml/device.h"
#include "ggml/host_results.h"
#include "ggml/scheduler.h"
#include "llama/context.h"

namespace llama {

/// The compiled step graphs of a context. get() of a key that was seen before looks up a number and builds nothing.
/// Thread-compatible.
class ProgramCache {
 public:
  /// Allocates the arenas for the largest buckets. `builder`, `ports` and `offload` are borrowed.
  ProgramCache(const SegmentBuilder& builder, const PortSets& ports, const ContextParams& params,
               const OffloadRules& offload, std::span<ggml::Device* const> devices);

  [[nodiscard]] ggml::Program& get(const SegmentKey& key);
  void run(const SegmentKey& key, const ggml::StepCounts& counts, const ggml::StopToken& stop);
  /// Of the program of a key; null: it leaves its results to the host.
  [[nodiscard]] ggml::HostResults* host_results(const SegmentKey& key) {
    return dynamic_cast<ggml::HostResults*>(&get(key));
  }
  /// Begins to send the weights that a program will need.
  void send_ahead(const SegmentKey& key) { scheduler_.send_ahead(get(key)); }
  /// Puts rows of the stream between layers aside, and back.
  void move(ggml::DeviceId device, std::byte* dst, const std::byte* src, std::size_t bytes) {
    scheduler_.move(device, dst, src, bytes);
  }
  /// Waits for all that was run: then ports may be read and filled anew.
  void synchronise() { scheduler_.synchronise(); }
  /// Remembers what was run with a set of ports, and waits for it: then that set may be filled anew.
  void mark(int set) { scheduler_.mark(set); }
  void wait_for(int set) { scheduler_.wait_for(set); }
  /// The same after an error, whatever else failed.
  void settle() noexcept { scheduler_.settle(); }
  /// Forgets all programs: ports moved, or graphs must not be reused.
  void clear() { programs_.clear(); }

  [[nodiscard]] std::uint64_t builds() const { return builds_; }
  [[nodiscard]] std::size_t arena_bytes() const { return scheduler_.arena_bytes(); }
  [[nodiscard]] std::size_t staging_bytes() const { return scheduler_.staging_bytes(); }
  [[nodiscard]] const ggml::SchedulerStats& scheduler_stats() const { return scheduler_.stats(); }
  void reset_scheduler_stats() { scheduler_.reset_stats(); }
  [[nodiscard]] std::uint64_t scratch_bytes() const { return scratch_bytes_; }
  [[nodiscard]] std::uint64_t scratch_live_bytes() const { return scratch_live_bytes_; }

 private:
  void reserve_largest();
  void reserve_layers();
  [[nodiscard]] ggml::Streaming streaming(const SegmentKey& key) const;
  /// Returns the number of ops whose tensors lie on several devices.
  int reserve(const SegmentKey& key);
  void note_memory(const ggml::MemoryPlan& plan);

  const SegmentBuilder& builder_;
  const PortSets& ports_;
  const ContextParams& params_;
  const OffloadRules& offload_;
  ggml::CompileOptions options_;
  ggml::Scheduler scheduler_;
  std::unordered_map<SegmentKey, std::unique_ptr<ggml::Program>, SegmentKeyHash> programs_;
  std::uint64_t builds_ = 0;
  std::uint64_t scratch_bytes_ = 0;
  std::uint64_t scratch_live_bytes_ = 0;
};

}  // namespace llama
