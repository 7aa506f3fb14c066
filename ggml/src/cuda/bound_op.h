#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "cuda/kernels/weights.h"
#include "cuda/resources.h"
#include "ggml/device.h"
#include "ggml/graph.h"

/// What an op's implementation on a card consists of: a check whether it can do a node, and a bound form that launches
/// it.
namespace ggml::cuda {

/// Hands out the pieces of a node's workspace in order; with a null base it only measures.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  [[nodiscard]] std::size_t used() const { return used_; }
  template <class T>
  [[nodiscard]] T* array(std::int64_t n) {
    T* p = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (static_cast<std::size_t>(n) * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    return p;
  }

 private:
  static constexpr std::size_t kAlign = 256;
  std::byte* base_;
  std::size_t used_ = 0;
};

/// An activation that its producer leaves rounded to 8 bits as well; `rounded` holds that form of it.
struct RoundedTensor {
  TensorId values;
  ActType act = ActType::f32;
  TensorId rounded;
};

/// Integers of the card that are zero whenever no kernel is at work: kernels count arrivals with them and put them
/// back.
class Counters {
 public:
  explicit Counters(int device) : device_(device) {}
  [[nodiscard]] int* take(std::size_t n);

 private:
  int device_;
  std::vector<std::unique_ptr<CudaBuffer>> buffers_;
  std::size_t used_ = 0;  // bytes of the last one
};

/// Everything a node's implementation may ask for while it is bound.
class BindContext {
 public:
  struct Inputs {
    int device = 0;
    int multiprocessors = 0;
    const DeviceCounts* counts = nullptr;                           // on the card; null while sizes are measured
    std::span<std::byte* const> addresses;                          // per TensorId; empty while sizes are measured
    std::vector<std::unique_ptr<CudaBuffer>>* constants = nullptr;  // of the program; null while sizes are measured
    Counters* counters = nullptr;                                   // likewise
    std::span<const RoundedTensor> rounded;
  };
  BindContext(const Graph& graph, const Inputs& inputs) : graph_(graph), in_(inputs) {}

  [[nodiscard]] const Tensor& tensor(TensorId id) const { return graph_.at(id); }
  [[nodiscard]] int multiprocessors() const { return in_.multiprocessors; }

  /// Address on the card of a tensor's first byte; null while sizes are measured and for an absent tensor.
  template <class T>
  [[nodiscard]] T* data(TensorId id) const {
    return reinterpret_cast<T*>(id.valid() && !in_.addresses.empty() ? in_.addresses[static_cast<std::size_t>(id.v)]
                                                                     : nullptr);
  }
  /// A weight's planes (float types: its values in `codes`), or those of the rows that a view of it shows.
  [[nodiscard]] PlanarWeight weight(TensorId id) const;
  /// Which count limits a tensor's last axis.
  [[nodiscard]] Rows rows_of(TensorId id) const;
  /// Pinned host memory that lives as long as the program.
  [[nodiscard]] std::byte* pinned(std::size_t bytes) const;
  /// Vectors of `width` elements that a tensor holds in a step.
  [[nodiscard]] RowCount rows(TensorId id, std::int64_t width) const;
  [[nodiscard]] const int* n_spans() const { return in_.counts == nullptr ? nullptr : &in_.counts->n_spans; }
  /// Zeros for kernels that count; null while sizes are measured.
  [[nodiscard]] int* counters(int n) const {
    return in_.counters == nullptr ? nullptr : in_.counters->take(static_cast<std::size_t>(n));
  }
  /// The forms in which the producer of `values` leaves it as well.
  [[nodiscard]] std::vector<RoundedTensor> rounded_forms(TensorId values) const;
  /// Copies constants to the card; they live as long as the program.
  template <class T>
  [[nodiscard]] const T* constants(std::span<const T> values) const {
    return static_cast<const T*>(upload(values.data(), values.size_bytes()));
  }

 private:
  [[nodiscard]] const void* upload(const void* data, std::size_t bytes) const;

  const Graph& graph_;
  Inputs in_;
};

/// A node with its arguments bound. launch() puts kernels into the stream; it is called once, while the program's graph
/// is captured. Ops that the card leaves to the host run between graphs instead.
class BoundOp {
 public:
  virtual ~BoundOp() = default;
  virtual void launch(cudaStream_t stream) const = 0;
  [[nodiscard]] virtual bool runs_on_host() const { return false; }
  /// Everything before is done and visible; port memory is host memory that the card reads in place.
  virtual void run_on_host(const StepCounts& counts) const {}
};

/// One way to do an op on a card.
struct OpImpl {
  const char* name;
  const char* (*declines)(const Graph& graph, const Node& node);  // why it cannot do this node; null: it can
  std::unique_ptr<BoundOp> (*bind)(const BindContext& context, const Node& node, Carver& carver);
};

/// The implementation of an op; null: only its decomposition can be run.
[[nodiscard]] const OpImpl* implementation(Op op) noexcept;
/// Whether there are kernels that append to and read a KV cache of this type.
[[nodiscard]] bool has_cache_kernels(DType type) noexcept;

inline const char* accepts_always(const Graph&, const Node&) {
  return nullptr;
}

template <class T>
std::unique_ptr<BoundOp> bind_as(const BindContext& context, const Node& node, Carver& carver) {
  return std::make_unique<T>(context, node, carver);
}

}  // namespace ggml::cuda
