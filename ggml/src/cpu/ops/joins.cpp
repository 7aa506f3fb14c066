#include <cstring>

#include "core/heads_tap.h"
#include "cpu/ops/registry.h"
#include "ggml/quant.h"

// Primitives that cut and join heads, and the product with one matrix per head.

namespace ggml::cpu {
namespace {

class Slice final : public BoundOp {
 public:
  Slice(const BindContext& c, const Node& node, Carver&)
      : p_(std::get<SliceParams>(node.params)),
        n_(c.tensor(node.src[0]).shape[0]),
        rows_(c.live_rows(node.src[0], n_)),
        x_(c.data<const float>(node.src[0])),
        dst_(c.data<float>(node.dst[0])) {}
  void run(Team& team, const StepCounts& counts) const noexcept override {
    const Team::Range own = team.part(rows_.of(counts));
    for (std::int64_t row = own.begin; row < own.end; ++row)
      std::memcpy(dst_ + row * p_.count, x_ + row * n_ + p_.begin, sizeof(float) * static_cast<std::size_t>(p_.count));
  }

 private:
  const SliceParams p_;
  const std::int64_t n_;
  const LiveRows rows_;
  const float* x_;
  float* dst_;
};

class Concat final : public BoundOp {
 public:
  Concat(const BindContext& c, const Node& node, Carver&)
      : a_(c.data<const float>(node.src[0])),
        b_(c.data<const float>(node.src[1])),
        dst_(c.data<float>(node.dst[0])),
        na_(c.tensor(node.src[0]).shape[0]),
        nb_(c.tensor(node.src[1]).shape[0]),
        rows_per_b_(c.tensor(node.src[1]).shape[1] == 1 ? c.tensor(node.src[0]).shape[1] : 1),
        rows_(c.live_rows(node.src[0], na_)) {}
  void run(Team& team, const StepCounts& counts) const noexcept override {
    const Team::Range own = team.part(rows_.of(counts));
    for (std::int64_t row = own.begin; row < own.end; ++row) {
      float* y = dst_ + row * (na_ + nb_);
      std::memcpy(y, a_ + row * na_, sizeof(float) * static_cast<std::size_t>(na_));
      std::memcpy(y + na_, b_ + row / rows_per_b_ * nb_, sizeof(float) * static_cast<std::size_t>(nb_));
    }
  }

 private:
  const float* a_;
  const float* b_;
  float* dst_;
  const std::int64_t na_, nb_, rows_per_b_;
  const LiveRows rows_;
};

/// Weights decoded to f32, plain dot products, as mul_mat.
class MulMatHeads final : public BoundOp {
 public:
  MulMatHeads(const BindContext& c, const Node& node, Carver& carver)
      : p_(std::get<MulMatHeadsParams>(node.params)),
        dequantise_(c.kernels().of(c.tensor(node.src[0]).type).dequantise_row),
        dot_(c.kernels().vec.dot),
        type_(c.tensor(node.src[0]).type),
        w_(c.address(node.src[0])),
        x_(c.data<const float>(node.src[1])),
        tap_(node.src.size() > 2 ? c.data<const float>(node.src[2]) : nullptr),
        tapped_(c.tensor(node.src[0]).weight),
        dst_(c.data<float>(node.dst[0])),
        k_(c.tensor(node.src[1]).shape[0]),
        shared_(c.tensor(node.src[1]).shape[1] == 1),
        row_bytes_(row_bytes(c.tensor(node.src[0]).type, k_)),
        rows_(c.live_rows(node.dst[0], std::int64_t{p_.count} * p_.n_head)),
        row_(carver, c.n_workers(), k_) {}

  void run(Team& team, const StepCounts& counts) const noexcept override {
    constexpr std::int64_t kRowsPerItem = 16;
    const std::int64_t rows = rows_.of(counts);
    float* weights = row_.of(team);
    team.for_chunks(std::int64_t{p_.count} * p_.n_head, kRowsPerItem, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t head = i / p_.count, row = head * p_.rows_per_head + p_.begin + i % p_.count;
        if (dequantise_ != nullptr) {
          dequantise_(w_ + static_cast<std::size_t>(row) * row_bytes_, k_, weights);
        } else {
          dequantise_row_of(type_, w_, row, k_, weights);
        }
        for (std::int64_t t = 0; t < rows; ++t)
          dst_[t * p_.count * p_.n_head + i] = dot_(weights, x_ + (shared_ ? t : t * p_.n_head + head) * k_, k_);
      }
    });
  }
  void report_taps(Observer& observer, const StepCounts& counts) const override {
    const std::int64_t rows = rows_.of(counts) * (shared_ ? 1 : p_.n_head);
    show_heads_tap(observer, *tapped_, {tap_, static_cast<std::size_t>(rows * k_)}, p_.n_head, shared_);
  }

 private:
  const MulMatHeadsParams p_;
  void (*const dequantise_)(const std::byte*, std::int64_t, float*) noexcept;
  float (*const dot_)(const float*, const float*, std::int64_t) noexcept;
  const DType type_;
  const std::byte* w_;
  const float* x_;
  const float* tap_;
  const Weight* tapped_;
  float* dst_;
  const std::int64_t k_;
  const bool shared_;
  const std::size_t row_bytes_;
  const LiveRows rows_;
  PerWorker<float> row_;
};

const char* heads_decline(const Graph& graph, const KernelTable& kernels, const Node& node) {
  return kernels.of(graph.at(node.src[0]).type).mul_mat == nullptr ? "no decoder for the weight's type" : nullptr;
}

}  // namespace

const OpImpl kSlice{"slice", accepts_always, bind_as<Slice>};
const OpImpl kConcat{"concat", accepts_always, bind_as<Concat>};
const OpImpl kMulMatHeads{"mul_mat_heads", heads_decline, bind_as<MulMatHeads>};

}  // namespace ggml::cpu
