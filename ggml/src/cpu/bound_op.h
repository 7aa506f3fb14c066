#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "ggml/device.h"
#include "ggml/graph.h"
#include "ggml/threads.h"

/// What an op's implementation on the CPU consists of: a check whether it can do a node, and a bound form that runs it.
namespace ggml::cpu {

inline constexpr std::size_t kScratchAlign = 64;

/// Hands out the pieces of a node's workspace in order. With a null base it only measures: it returns null pointers and
/// adds up what is needed, so that sizes and addresses come from the same code.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  [[nodiscard]] std::size_t used() const { return used_; }

  [[nodiscard]] std::byte* bytes(std::size_t n) {
    std::byte* p = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (n + kScratchAlign - 1) / kScratchAlign * kScratchAlign;
    return p;
  }
  template <class T>
  [[nodiscard]] T* array(std::int64_t n) {
    return reinterpret_cast<T*>(bytes(static_cast<std::size_t>(n) * sizeof(T)));
  }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

/// One piece of workspace per worker, on lines of their own.
template <class T>
class PerWorker {
 public:
  PerWorker() = default;
  PerWorker(Carver& carver, int n_workers, std::int64_t n)
      : stride_(round_up(n)), base_(carver.array<T>(stride_ * n_workers)) {}
  [[nodiscard]] T* of(const Team& team) const { return base_ + stride_ * team.worker(); }

 private:
  static std::int64_t round_up(std::int64_t n) {
    const auto per_line = static_cast<std::int64_t>(kNoSharing / sizeof(T));
    return (n + per_line - 1) / per_line * per_line;
  }
  std::int64_t stride_ = 0;
  T* base_ = nullptr;
};

/// How many vectors of some width a tensor holds in a step: a fixed number, or so many per real row.
struct LiveRows {
  Rows rows = Rows::fixed;
  std::int64_t per_count = 0;
  std::int64_t capacity = 0;

  [[nodiscard]] std::int64_t of(const StepCounts& counts) const noexcept {
    switch (rows) {
      case Rows::tokens:
        return per_count * counts.n_tokens;
      case Rows::outputs:
        return per_count * counts.n_outputs;
      case Rows::fixed:
        break;
    }
    return per_count;
  }
};

/// Everything a node's implementation may ask for while it is bound.
class BindContext {
 public:
  BindContext(const Graph& graph, const KernelTable& kernels, int n_workers, std::span<std::byte* const> addresses)
      : graph_(graph), kernels_(kernels), n_workers_(n_workers), addresses_(addresses) {}

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const KernelTable& kernels() const { return kernels_; }
  [[nodiscard]] int n_workers() const { return n_workers_; }  // largest team
  [[nodiscard]] const Tensor& tensor(TensorId id) const { return graph_.at(id); }

  /// Address of a tensor's first byte; null while sizes are measured, and for an absent tensor.
  [[nodiscard]] std::byte* address(TensorId id) const {
    return id.valid() && !addresses_.empty() ? addresses_[static_cast<std::size_t>(id.v)] : nullptr;
  }
  template <class T>
  [[nodiscard]] T* data(TensorId id) const {
    return reinterpret_cast<T*>(address(id));
  }
  /// Vectors of `width` elements in the tensor.
  [[nodiscard]] LiveRows live_rows(TensorId id, std::int64_t width) const;

 private:
  const Graph& graph_;
  const KernelTable& kernels_;
  int n_workers_;
  std::span<std::byte* const> addresses_;  // per TensorId; empty while sizes are measured
};

/// A node with its arguments bound. Every worker of the team calls run(); the executor puts a barrier after it.
/// Immutable but for its workspace, so that one thread at a time may run its program.
class BoundOp {
 public:
  virtual ~BoundOp() = default;
  virtual void run(Team& team, const StepCounts& counts) const noexcept = 0;
  /// Hands the input rows of tapped slots to the observer; called by one worker after run(), before the next node.
  virtual void report_taps(Observer& observer, const StepCounts& counts) const {}
};

/// One way to do an op on the CPU.
struct OpImpl {
  const char* name;
  /// Why it cannot do this node; null: it can.
  const char* (*declines)(const Graph& graph, const KernelTable& kernels, const Node& node);
  /// Binds the node; what it takes from the carver is the node's workspace. Called once to measure, once for good.
  std::unique_ptr<BoundOp> (*bind)(const BindContext& context, const Node& node, Carver& carver);
};

/// The implementations of an op, best first; empty: only its decomposition can be run.
[[nodiscard]] std::span<const OpImpl* const> implementations(Op op) noexcept;

inline const char* accepts_always(const Graph&, const KernelTable&, const Node&) {
  return nullptr;
}

template <class T>
std::unique_ptr<BoundOp> bind_as(const BindContext& context, const Node& node, Carver& carver) {
  return std::make_unique<T>(context, node, carver);
}

/// Items per chunk that give each worker about `per_worker` chunks, rounded up to a multiple of `granule`.
[[nodiscard]] inline std::int64_t chunk_for(std::int64_t n, int team_size, std::int64_t granule,
                                            int per_worker = 8) noexcept {
  const std::int64_t even = n / (static_cast<std::int64_t>(team_size) * per_worker);
  const std::int64_t chunk = even / granule * granule;
  return chunk < granule ? granule : chunk;
}

}  // namespace ggml::cpu
