#include "ggml/hadamard.h"

#include <cstring>

#include "cpu/ops/registry.h"

namespace ggml::cpu {
namespace {

class Hadamard final : public BoundOp {
 public:
  Hadamard(const BindContext& c, const Node& node, Carver&)
      : n_(c.tensor(node.src[0]).shape[0]),
        rows_(c.live_rows(node.src[0], n_)),
        x_(c.data<const float>(node.src[0])),
        dst_(c.data<float>(node.dst[0])) {}

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const Team::Range own = team.part(rows_.of(counts));
    for (std::int64_t row = own.begin; row < own.end; ++row) {
      std::memcpy(dst_ + row * n_, x_ + row * n_, sizeof(float) * static_cast<std::size_t>(n_));
      hadamard(dst_ + row * n_, n_);
    }
  }

 private:
  const std::int64_t n_;
  const LiveRows rows_;
  const float* x_;
  float* dst_;
};

}  // namespace

const OpImpl kHadamard{"hadamard", accepts_always, bind_as<Hadamard>};

}  // namespace ggml::cpu
