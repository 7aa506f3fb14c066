#include <cstring>

#include "cpu/ops/registry.h"

namespace ggml::cpu {
namespace {

/// One row per span: its mean, its first or its last row.
class Pool final : public BoundOp {
 public:
  Pool(const BindContext& c, const Node& node, Carver&)
      : kind_(std::get<PoolParams>(node.params).kind),
        vec_(c.kernels().vec),
        n_(c.tensor(node.src[0]).shape[0]),
        x_(c.data<const float>(node.src[0])),
        spans_(c.data<const AttnSpan>(node.src[1])),
        dst_(c.data<float>(node.dst[0])) {}
  void run(Team& team, const StepCounts& counts) const noexcept override {
    const Team::Range own = team.part(counts.n_spans);
    for (std::int64_t s = own.begin; s < own.end; ++s) pool(spans_[s], dst_ + s * n_);
  }

 private:
  void pool(const AttnSpan& span, float* y) const noexcept {
    const float* first = x_ + std::int64_t{span.first_row} * n_;
    if (kind_ != PoolKind::mean) {
      const std::int64_t row = kind_ == PoolKind::first ? 0 : span.n_rows - 1;
      std::memcpy(y, first + row * n_, sizeof(float) * static_cast<std::size_t>(n_));
      return;
    }
    std::memset(y, 0, sizeof(float) * static_cast<std::size_t>(n_));
    for (std::int64_t row = 0; row < span.n_rows; ++row) vec_.add(y, first + row * n_, n_, y);
    vec_.scale(y, 1.0f / static_cast<float>(span.n_rows), n_, y);
  }

  const PoolKind kind_;
  const VecKernels& vec_;
  const std::int64_t n_;
  const float* x_;
  const AttnSpan* spans_;
  float* dst_;
};

}  // namespace

const OpImpl kPool{"pool", accepts_always, bind_as<Pool>};

}  // namespace ggml::cpu
