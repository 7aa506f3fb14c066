#include <algorithm>
#include <cstring>

#include "cpu/ops/registry.h"
#include "ggml/quant.h"

// The products as primitives: weights decoded to f32, plain dot products, no rounding of x. They are what
// decompositions mean, so they share no matrix kernel with the coarse ops that are checked against them.

namespace ggml::cpu {
namespace {

constexpr std::int64_t kRowsPerItem = 16;

using DequantiseFn = void (*)(const std::byte*, std::int64_t, float*) noexcept;

const Weight& tapped_weight(const BindContext& c, const Node& node) {
  const Tensor& t = c.tensor(node.slots[0].weight);
  return *(t.role == TensorRole::view ? c.tensor(t.base) : t).weight;
}

/// Matrix of the graph as the products read it.
struct Matrix {
  DequantiseFn dequantise = nullptr;
  DType type = DType::f32;
  const std::byte* data = nullptr;
  std::int64_t k = 0, n = 0, n_stack = 0;
  std::size_t row_bytes = 0;

  Matrix(const BindContext& c, TensorId id)
      : dequantise(c.kernels().of(c.tensor(id).type).dequantise_row),
        type(c.tensor(id).type),
        data(c.address(id)),
        k(c.tensor(id).shape[0]),
        n(c.tensor(id).shape[1]),
        n_stack(c.tensor(id).shape[2]),
        row_bytes(ggml::row_bytes(c.tensor(id).type, k)) {}
  void decode(std::int64_t row, float* dst) const noexcept {
    if (dequantise != nullptr) return dequantise(data + static_cast<std::size_t>(row) * row_bytes, k, dst);
    dequantise_row_of(type, data, row, k,
                      dst);  // interleaved: groups never cross from one matrix of a stack to another
  }
};

class MulMat final : public BoundOp {
 public:
  MulMat(const BindContext& c, const Node& node, Carver& carver)
      : w_(c, node.src[0]),
        dot_(c.kernels().vec.dot),
        x_(c.data<const float>(node.src[1])),
        tap_(node.src.size() > 2 ? c.data<const float>(node.src[2]) : nullptr),
        tapped_(node.src.size() > 2 ? &tapped_weight(c, node) : nullptr),
        dst_(c.data<float>(node.dst[0])),
        rows_(c.live_rows(node.src[1], w_.k)),
        row_(carver, c.n_workers(), w_.k) {}

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const std::int64_t rows = rows_.of(counts);
    float* weights = row_.of(team);
    team.for_chunks(w_.n, kRowsPerItem, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        w_.decode(n, weights);
        for (std::int64_t m = 0; m < rows; ++m) dst_[m * w_.n + n] = dot_(weights, x_ + m * w_.k, w_.k);
      }
    });
  }
  void report_taps(Observer& observer, const StepCounts& counts) const override {
    observer.on_slot(*tapped_, {tap_, static_cast<std::size_t>(w_.k * rows_.of(counts))}, {});
  }

 private:
  const Matrix w_;
  float (*const dot_)(const float*, const float*, std::int64_t) noexcept;
  const float* x_;
  const float* tap_;
  const Weight* tapped_;
  float* dst_;
  const LiveRows rows_;
  PerWorker<float> row_;
};

/// One matrix of a stack per (token, used expert).
class MulMatId final : public BoundOp {
 public:
  MulMatId(const BindContext& c, const Node& node, Carver& carver)
      : w_(c, node.src[0]),
        dot_(c.kernels().vec.dot),
        x_(c.data<const float>(node.src[1])),
        ids_(c.data<const std::int32_t>(node.src[2])),
        tap_(node.src.size() > 3 ? c.data<const float>(node.src[3]) : nullptr),
        tapped_(node.src.size() > 3 ? &tapped_weight(c, node) : nullptr),
        dst_(c.data<float>(node.dst[0])),
        n_used_(c.tensor(node.src[2]).shape[0]),
        per_token_(c.tensor(node.src[1]).shape[1] == 1 ? n_used_ : 1),
        pairs_(c.live_rows(node.src[2], 1)),
        row_(carver, c.n_workers(), w_.k) {
    const auto& p = std::get<MulMatIdParams>(node.params);
    begin_ = p.expert_begin;
    end_ = p.expert_end == 0 ? static_cast<int>(w_.n_stack) : p.expert_end;
  }

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const std::int64_t blocks = (w_.n + kRowsPerItem - 1) / kRowsPerItem;
    float* weights = row_.of(team);
    team.for_chunks(blocks * pairs_.of(counts), 1, [&](std::int64_t item, std::int64_t) {
      const std::int64_t pair = item / blocks;
      const std::int64_t n0 = item % blocks * kRowsPerItem;
      const std::int64_t n1 = std::min(n0 + kRowsPerItem, w_.n);
      float* y = dst_ + pair * w_.n;
      if (!is_used(pair)) {
        std::fill(y + n0, y + n1, 0.0f);
        return;
      }
      for (std::int64_t n = n0; n < n1; ++n) {
        w_.decode(ids_[pair] * w_.n + n, weights);
        y[n] = dot_(weights, x_ + pair / per_token_ * w_.k, w_.k);
      }
    });
  }

  void report_taps(Observer& observer, const StepCounts& counts) const override {
    std::vector<float> rows;
    std::vector<std::int32_t> experts;
    for (std::int64_t pair = 0; pair < pairs_.of(counts); ++pair) {
      if (!is_used(pair)) continue;
      const float* row = tap_ + pair / per_token_ * w_.k;
      rows.insert(rows.end(), row, row + w_.k);
      experts.push_back(ids_[pair]);
    }
    observer.on_slot(*tapped_, rows, experts);
  }

 private:
  [[nodiscard]] bool is_used(std::int64_t pair) const noexcept { return ids_[pair] >= begin_ && ids_[pair] < end_; }

  const Matrix w_;
  float (*const dot_)(const float*, const float*, std::int64_t) noexcept;
  const float* x_;
  const std::int32_t* ids_;
  const float* tap_;
  const Weight* tapped_;
  float* dst_;
  const std::int64_t n_used_;
  const std::int64_t per_token_;  // pairs that share a row of x
  const LiveRows pairs_;
  int begin_ = 0, end_ = 0;
  PerWorker<float> row_;
};

class WeightedSum final : public BoundOp {
 public:
  WeightedSum(const BindContext& c, const Node& node, Carver&)
      : p_(std::get<WeightedSumParams>(node.params)),
        vec_(c.kernels().vec),
        y_(c.data<const float>(node.src[0])),
        ids_(c.data<const std::int32_t>(node.src[1])),
        weights_(node.src.size() > 2 ? c.data<const float>(node.src[2]) : nullptr),
        dst_(c.data<float>(node.dst[0])),
        n_(c.tensor(node.dst[0]).shape[0]),
        n_used_(c.tensor(node.src[1]).shape[0]),
        rows_(c.live_rows(node.dst[0], n_)) {}

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const Team::Range own = team.part(rows_.of(counts));
    for (std::int64_t row = own.begin; row < own.end; ++row) {
      float* out = dst_ + row * n_;
      std::memset(out, 0, sizeof(float) * static_cast<std::size_t>(n_));
      for (std::int64_t pair = row * n_used_; pair < (row + 1) * n_used_; ++pair) {
        const std::int32_t id = ids_[pair];
        if (id < p_.expert_begin || (p_.expert_end > 0 && id >= p_.expert_end)) continue;
        vec_.axpy(weights_ == nullptr ? 1.0f : weights_[pair], y_ + pair * n_, n_, out);
      }
    }
  }

 private:
  const WeightedSumParams p_;
  const VecKernels& vec_;
  const float* y_;
  const std::int32_t* ids_;
  const float* weights_;
  float* dst_;
  const std::int64_t n_, n_used_;
  const LiveRows rows_;
};

const char* declines(const Graph& graph, const KernelTable& kernels, const Node& node) {
  return kernels.of(graph.at(node.src[0]).type).mul_mat == nullptr ? "no decoder for the weight's type" : nullptr;
}

}  // namespace

const OpImpl kMulMat{"mul_mat", declines, bind_as<MulMat>};
const OpImpl kMulMatId{"mul_mat_id", declines, bind_as<MulMatId>};
const OpImpl kWeightedSum{"weighted_sum", accepts_always, bind_as<WeightedSum>};

}  // namespace ggml::cpu
