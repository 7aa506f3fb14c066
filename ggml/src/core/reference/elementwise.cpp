#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "ggml/reference.h"
#include "ops.h"

namespace ggml::reference {

namespace {

constexpr double kSoftplusLinear = 20.0;  // beyond, log(1 + e^x) is x
constexpr double kOaiLimit = 7.0;
constexpr double kOaiSlope = 1.702;

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

double activate(Activation act, double x) {
  switch (act) {
    case Activation::none:
      return x;
    case Activation::silu:
      return x * sigmoid(x);
    case Activation::gelu: {
      const double inner = std::sqrt(2.0 / std::numbers::pi) * x * (1.0 + 0.044715 * x * x);
      return 0.5 * x * (1.0 + std::tanh(inner));
    }
    case Activation::relu2:
      return x > 0 ? x * x : 0.0;
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::softplus:
      return x > kSoftplusLinear ? x : std::log1p(std::exp(x));
    case Activation::swiglu_oai:
      return std::min(x, kOaiLimit) * sigmoid(kOaiSlope * std::min(x, kOaiLimit));
  }
  return x;
}

// Values of each row of a tensor: the real rows along all axes but the first.
template <class F>
void for_rows(Memory& m, const Node& node, F&& f) {
  const std::int64_t n = m.at(node.src[0]).shape[0];
  const std::int64_t rows = m.live(node.src[0]) / n;
  const double* x = m.read(node.src[0]);
  double* y = m.write(node.dst[0]);
  for (std::int64_t row = 0; row < rows; ++row) f(x + row * n, y + row * n, n);
}

template <class F>
void binary(Memory& m, const Node& node, F&& f) {
  const Shape a = m.at(node.src[0]).shape, b = m.at(node.src[1]).shape, d = m.at(node.dst[0]).shape;
  const double* x = m.read(node.src[0]);
  const double* y = m.read(node.src[1]);
  double* z = m.write(node.dst[0]);
  const std::int64_t n = m.live(node.dst[0]);
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t rest = i, at_a = 0, at_b = 0, stride_a = 1, stride_b = 1;
    for (int axis = 0; axis < kMaxDims; ++axis) {
      const std::int64_t k = rest % d[axis];
      rest /= d[axis];
      at_a += a[axis] == 1 ? 0 : k * stride_a;
      at_b += b[axis] == 1 ? 0 : k * stride_b;
      stride_a *= a[axis];
      stride_b *= b[axis];
    }
    z[i] = f(x[at_a], y[at_b]);
  }
}

struct Angle {
  double c, s;
};

Angle angle_of(const RopeParams& p, double position, int pair, double factor) {
  const double theta = position * std::pow(static_cast<double>(p.base), -2.0 * pair / p.n_rot) / factor;
  const double interpolated = p.freq_scale * theta;
  double angle = interpolated, magnitude = p.attn_factor;
  if (p.ext_factor != 0) {
    auto dim = [&](double beta) {
      return p.n_rot * std::log(p.n_ctx_orig / (beta * 2 * std::numbers::pi)) /
             (2 * std::log(static_cast<double>(p.base)));
    };
    const double low = std::max(0.0, std::floor(dim(p.beta_fast)));
    const double high = std::min(p.n_rot - 1.0, std::ceil(dim(p.beta_slow)));
    const double ramp = 1 - std::clamp((pair - low) / std::max(0.001, high - low), 0.0, 1.0);
    const double mix = ramp * p.ext_factor;
    angle = interpolated * (1 - mix) + theta * mix;
    magnitude *= 1 + 0.1 * std::log(1.0 / p.freq_scale);
  }
  return {magnitude * std::cos(angle), magnitude * std::sin(angle)};
}

}  // namespace

void quantise_act(Memory& m, const Node& node) {
  const ActType act = std::get<QuantiseActParams>(node.params).act;
  std::vector<float> row;
  for_rows(m, node, [&](const double* x, double* y, std::int64_t n) {
    row.assign(static_cast<std::size_t>(n), 0.0f);
    std::transform(x, x + n, row.begin(), [](double v) { return static_cast<float>(v); });
    round_activations(act, row);
    std::copy(row.begin(), row.end(), y);
  });
}

void normalise(Memory& m, const Node& node) {
  const auto& p = std::get<NormaliseParams>(node.params);
  for_rows(m, node, [&](const double* x, double* y, std::int64_t n) {
    double mean = 0, squares = 0;
    if (p.kind == NormKind::layer) {
      for (std::int64_t i = 0; i < n; ++i) mean += x[i];
      mean /= static_cast<double>(n);
    }
    for (std::int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double eps = p.eps;
    const double divisor =
        p.kind == NormKind::l2 ? std::max(std::sqrt(squares), eps) : std::sqrt(squares / static_cast<double>(n) + eps);
    for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) / divisor;
  });
}

void add(Memory& m, const Node& node) {
  binary(m, node, [](double a, double b) { return a + b; });
}

void mul(Memory& m, const Node& node) {
  binary(m, node, [](double a, double b) { return a * b; });
}

void unary(Memory& m, const Node& node) {
  const auto& p = std::get<UnaryParams>(node.params);
  const double a = p.a;
  for_rows(m, node, [&](const double* x, double* y, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) switch (p.kind) {
        case UnaryKind::scale:
          y[i] = a * x[i];
          break;
        case UnaryKind::softcap:
          y[i] = a * std::tanh(x[i] / a);
          break;
        case UnaryKind::clamp:
          y[i] = std::clamp(x[i], -a, a);
          break;
        case UnaryKind::activation:
          y[i] = activate(p.act, x[i]);
          break;
        case UnaryKind::sqrt:
          y[i] = std::sqrt(x[i]);
          break;
      }
  });
}

void gated(Memory& m, const Node& node) {
  const auto& p = std::get<GatedParams>(node.params);
  const std::int64_t n = m.at(node.dst[0]).shape[0];
  const std::int64_t rows = m.live(node.dst[0]) / n;
  const bool halves = node.src.size() == 1;
  const double* gates = m.read(node.src[0]);
  const double* ups = halves ? gates + n : m.read(node.src[1]);
  const std::int64_t stride = halves ? 2 * n : n;
  double* y = m.write(node.dst[0]);
  const double limit = p.limit;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = 0; i < n; ++i) {
      double g = activate(p.act, gates[row * stride + i]);
      double u = ups[row * stride + i];
      if (p.act == Activation::swiglu_oai) {
        u = std::clamp(u, -kOaiLimit, kOaiLimit) + 1.0;
      } else if (limit > 0) {
        g = std::min(g, limit);
        u = std::clamp(u, -limit, limit);
      }
      y[row * n + i] = g * u;
    }
}

void rotate(Memory& m, const Node& node) {
  const auto& p = std::get<RopeParams>(node.params);
  const TensorId src = node.src.back();
  const std::int64_t d = m.at(src).shape[0], heads = m.at(src).shape[1];
  const std::int64_t tokens = m.live(src) / (d * heads);
  const double* positions = m.read(node.src[0]);
  const double* factors = p.has_factors ? m.read(node.src[1]) : nullptr;
  const double* x = m.read(src);
  double* y = m.write(node.dst[0]);
  std::copy(x, x + tokens * d * heads, y);
  if (p.layout == RopeLayout::none) return;
  const bool adjacent = p.layout == RopeLayout::norm;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (int pair = 0; pair < p.n_rot / 2; ++pair) {
      const Angle angle = angle_of(p, positions[t], pair, factors == nullptr ? 1.0 : factors[pair]);
      const std::int64_t first = p.first + (adjacent ? 2 * pair : pair);
      const std::int64_t second = p.first + (adjacent ? 2 * pair + 1 : pair + p.n_rot / 2);
      for (std::int64_t head = 0; head < heads; ++head) {
        const double* in = x + (t * heads + head) * d;
        double* out = y + (t * heads + head) * d;
        const double a = in[first], b = in[second];
        out[first] = a * angle.c - b * angle.s;
        out[second] = a * angle.s + b * angle.c;
      }
    }
}

void softmax(Memory& m, const Node& node) {
  for_rows(m, node, [](const double* x, double* y, std::int64_t n) {
    const double max = *std::max_element(x, x + n);
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += y[i] = std::exp(x[i] - max);
    for (std::int64_t i = 0; i < n; ++i) y[i] /= sum;
  });
}

void slice(Memory& m, const Node& node) {
  const auto& p = std::get<SliceParams>(node.params);
  const std::int64_t n = m.at(node.src[0]).shape[0];
  const double* x = m.read(node.src[0]);
  double* y = m.write(node.dst[0]);
  for (std::int64_t row = 0; row < m.live(node.src[0]) / n; ++row)
    std::copy(x + row * n + p.begin, x + row * n + p.begin + p.count, y + row * p.count);
}

void concat(Memory& m, const Node& node) {
  const Shape a = m.at(node.src[0]).shape, b = m.at(node.src[1]).shape;
  const double* x = m.read(node.src[0]);
  const double* more = m.read(node.src[1]);
  double* y = m.write(node.dst[0]);
  for (std::int64_t row = 0; row < m.live(node.src[0]) / a[0]; ++row) {
    const std::int64_t other = b[1] == 1 ? row / a[1] : row;
    y = std::copy(x + row * a[0], x + (row + 1) * a[0], y);
    y = std::copy(more + other * b[0], more + (other + 1) * b[0], y);
  }
}

void copy(Memory& m, const Node& node) {
  const double* x = m.read(node.src[0]);
  std::copy(x, x + m.live(node.src[0]), m.write(node.dst[0]));
}

}  // namespace ggml::reference
