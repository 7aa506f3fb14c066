#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "ggml/scheduler.h"

namespace ggml::sched {

/// A weight that a program reads in staging memory, with its addresses.
struct BoundStream {
  const Weight* weight = nullptr;
  const std::byte* src = nullptr;
  std::size_t offset = 0;  // in its half
  std::int64_t n_experts = 0;
  // The experts that rows use, [n_used, tokens] in host memory: with a set of experts that is known when the program
  // runs. Null: it is sent whole.
  const std::int32_t* ids = nullptr;
  std::int64_t n_used = 0;
  Rows rows = Rows::tokens;
};

/// What a program reads, for all of its parts.
struct BoundStreams {
  std::vector<BoundStream> all;
  int half = 0;
  std::size_t bytes = 0;  // of the half
  bool ahead = true;      // sent by a lane of their own; false: by the device's, in turn with its work
  [[nodiscard]] bool empty() const { return all.empty(); }
};

/// Staging memory of the device that computes with weights of host memory, in two halves: while one is read the other
/// is filled. What lies there stays until something else needs the place, so that it is sent once for all that read it
/// one after another.
class Staging {
 public:
  Staging(Device& device, Executor& lane);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Two halves of at least that many bytes. True: they moved. Pre: the device is idle.
  bool reserve(std::size_t half_bytes);
  [[nodiscard]] std::size_t half_bytes() const { return halves_[0] == nullptr ? 0 : halves_[0]->bytes(); }
  /// All that was reserved.
  [[nodiscard]] std::size_t bytes() const {
    return half_bytes() == 0 ? 0 : 2 * half_bytes() + (landing_ == nullptr ? 0 : landing_->bytes());
  }
  [[nodiscard]] std::byte* at(int half, std::size_t offset);

  /// Sends what is not there yet and does not depend on the rows of a run.
  void send_ahead(const BoundStreams& streams, LinkUse& use);
  /// Sends what a run needs beside that, and lets the device wait for it. Pre: the ids can be read.
  void fetch(const BoundStreams& streams, std::span<const std::size_t> wanted, const StepCounts& counts, LinkUse& use);
  /// The device was given the work that reads the half.
  void used(int half);
  void settle() noexcept;

 private:
  struct Half {
    const Weight* first = nullptr;  // of what lies there, as its name
    std::size_t n = 0, bytes = 0;
    std::unordered_map<const Weight*, std::vector<bool>> present;  // per expert; one entry for a whole weight
    bool is_read = false;                                          // since its last filling
  };

  Half& prepare(const BoundStreams& streams);
  void send(const BoundStreams& streams, const BoundStream& stream, const WeightRows& rows, LinkUse& use);
  void send_missing(const BoundStreams& streams, const BoundStream& stream, const std::vector<bool>& wanted,
                    LinkUse& use);

  Device& device_;
  Executor& lane_;
  std::unique_ptr<Executor> copier_;
  std::array<std::unique_ptr<Buffer>, 2> halves_;
  std::unique_ptr<Buffer> landing_;  // null: weights need none
  std::array<Half, 2> held_;
  std::array<std::unique_ptr<Event>, 2> arrived_, read_;
  std::vector<bool> wanted_;
};

}  // namespace ggml::sched
