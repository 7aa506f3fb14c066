#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "cpu/ops/registry.h"

namespace ggml::cpu {
namespace {

/// Angle per position and pair, before the frequency factors: every scaling of the angle is linear in the position.
std::vector<double> angle_rates(const RopeParams& p) {
  const int half = p.n_rot / 2;
  std::vector<double> rates(static_cast<std::size_t>(half));
  const auto dim = [&](double beta) {
    return p.n_rot * std::log(p.n_ctx_orig / (beta * 2.0 * std::numbers::pi)) / (2.0 * std::log(p.base));
  };
  double low = 0.0, high = 0.0;
  if (p.ext_factor != 0.0f) {
    low = std::max(0.0, std::floor(dim(p.beta_fast)));
    high = std::min(p.n_rot - 1.0, std::ceil(dim(p.beta_slow)));
  }
  for (int j = 0; j < half; ++j) {
    const double theta = std::pow(static_cast<double>(p.base), -2.0 * j / p.n_rot);
    const double interp = p.freq_scale * theta;
    double angle = interp;
    if (p.ext_factor != 0.0f) {
      const double ramp = 1.0 - std::clamp((j - low) / std::max(0.001, high - low), 0.0, 1.0);
      const double mix = ramp * p.ext_factor;
      angle = interp * (1.0 - mix) + theta * mix;
    }
    rates[static_cast<std::size_t>(j)] = angle;
  }
  return rates;
}

float magnitude(const RopeParams& p) {
  if (p.ext_factor == 0.0f) return p.attn_factor;
  return static_cast<float>(p.attn_factor * (1.0 + 0.1 * std::log(1.0 / p.freq_scale)));
}

/// Rotates any number of tensors of the same positions. Items are (row, head); the angles of a row are computed once
/// per worker and row.
class Rope final : public BoundOp {
 public:
  Rope(const BindContext& c, const Node& node, Carver& carver)
      : p_(std::get<RopeParams>(node.params)),
        rotate_(p_.layout == RopeLayout::neox ? c.kernels().vec.rope_neox : c.kernels().vec.rope_norm),
        positions_(c.data<const std::int32_t>(node.src[0])),
        factors_(p_.has_factors ? c.data<const float>(node.src[1]) : nullptr),
        rows_(c.live_rows(node.src[0], 1)),
        rates_(p_.layout == RopeLayout::none ? std::vector<double>{} : angle_rates(p_)),
        magnitude_(magnitude(p_)),
        angles_(carver, c.n_workers(), std::max(p_.n_rot, 1)) {
    const std::size_t first = p_.has_factors ? 2 : 1;
    for (std::size_t i = first; i < node.src.size(); ++i) {
      const Shape& shape = c.tensor(node.src[i]).shape;
      parts_.push_back(
          {c.data<const float>(node.src[i]), c.data<float>(node.dst[i - first]), shape[0], static_cast<int>(shape[1])});
      heads_ += static_cast<int>(shape[1]);
    }
  }

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const std::int64_t rows = rows_.of(counts);
    const std::int64_t n = rows * heads_;
    // Whole rows where there are enough of them: their angles are then computed once in all.
    const std::int64_t granule = rows >= 2 * team.size() ? heads_ : kHeadsPerItem;
    float* angles = angles_.of(team);
    std::int64_t row_of_angles = -1;
    team.for_chunks(n, chunk_for(n, team.size(), granule), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = i / heads_;
        if (row != row_of_angles && p_.layout != RopeLayout::none) fill_angles(positions_[row], angles);
        row_of_angles = row;
        rotate_head(row, static_cast<int>(i % heads_), angles);
      }
    });
  }

 private:
  static constexpr std::int64_t kHeadsPerItem = 8;
  struct Part {
    const float* src;
    float* dst;
    std::int64_t dim;
    int heads;
  };

  void fill_angles(std::int32_t position, float* cos_sin) const noexcept {
    constexpr double kTurn = 2.0 * std::numbers::pi;
    const int half = p_.n_rot / 2;
    for (int j = 0; j < half; ++j) {
      double angle = position * rates_[static_cast<std::size_t>(j)];
      if (factors_ != nullptr) angle /= factors_[j];
      // The multiple of a turn is taken off in double: the functions of float then keep their precision far out.
      const auto rest = static_cast<float>(angle - kTurn * std::round(angle / kTurn));
      cos_sin[j] = magnitude_ * std::cos(rest);
      cos_sin[half + j] = magnitude_ * std::sin(rest);
    }
  }

  void rotate_head(std::int64_t row, int head, float* angles) const noexcept {
    for (const Part& part : parts_) {
      if (head >= part.heads) {
        head -= part.heads;
        continue;
      }
      const std::int64_t offset = (row * part.heads + head) * part.dim;
      float* x = part.dst + offset;
      std::memcpy(x, part.src + offset, sizeof(float) * static_cast<std::size_t>(part.dim));
      if (p_.layout != RopeLayout::none) rotate_({x + p_.first, angles, angles + p_.n_rot / 2, p_.n_rot});
      return;
    }
  }

  const RopeParams p_;
  void (*const rotate_)(const RopeArgs&) noexcept;
  const std::int32_t* positions_;
  const float* factors_;
  LiveRows rows_;
  const std::vector<double> rates_;
  const float magnitude_;
  PerWorker<float> angles_;
  std::vector<Part> parts_;
  int heads_ = 0;
};

}  // namespace

const OpImpl kRope{"rope", accepts_always, bind_as<Rope>};
const OpImpl kRotate{"rotate", accepts_always, bind_as<Rope>};

}  // namespace ggml::cpu
