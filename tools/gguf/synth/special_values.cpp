#include "special_values.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "ggml/error.h"
#include "random_blocks.h"

namespace gguf_tool {
namespace {

/// What Llama 3.1 divides the rotation frequencies by: 1 for pairs that turn often within the old context, the factor
/// for those that do not turn once, a ramp between.
std::vector<float> rope_divisors(std::size_t n, double base) {
  constexpr double kFactor = 8;
  constexpr double kLow = 1;
  constexpr double kHigh = 4;
  constexpr double kOldContext = 8192;
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double exponent = static_cast<double>(i) / static_cast<double>(n);
    const double turns = kOldContext / (2 * std::numbers::pi * std::pow(base, exponent));
    const double share = std::clamp((turns - kLow) / (kHigh - kLow), 0.0, 1.0);
    values[i] = static_cast<float>(1 / ((1 - share) / kFactor + share));
  }
  return values;
}

/// Normal rows, the one of the expert of rank r scaled by (r + 1)^-skew, ranks in random order: some experts are chosen
/// far more often, and the same ones from token to token.
std::vector<float> skewed_router(const PlannedTensor& tensor, const SpecialValues& how, RandomWords& random) {
  const auto n_experts = static_cast<std::size_t>(tensor.shape[1]);
  const auto width = static_cast<std::size_t>(tensor.shape[0]);
  std::vector<std::size_t> rank(n_experts);
  std::iota(rank.begin(), rank.end(), std::size_t{0});
  for (std::size_t i = n_experts; i > 1; --i) std::swap(rank[i - 1], rank[random.next() % i]);
  std::vector<float> values;
  values.reserve(n_experts * width);
  for (std::size_t expert = 0; expert < n_experts; ++expert) {
    const double scale = tensor.spread * std::pow(static_cast<double>(rank[expert] + 1), -how.router_skew);
    for (std::size_t i = 0; i < width; ++i) values.push_back(static_cast<float>(random.normal() * scale));
  }
  return values;
}

}  // namespace

bool is_special(const PlannedTensor& tensor, double router_skew) {
  switch (tensor.fill) {
    case Fill::fixed:
    case Fill::by_row:
    case Fill::unit_by_row:
    case Fill::embedding:
      return false;
    case Fill::router:
      return router_skew != 0;
    case Fill::ones:
    case Fill::rope_divisors:
    case Fill::time_step:
    case Fill::decay:
      break;
  }
  return true;
}

std::vector<float> special_values(const PlannedTensor& tensor, const Preset& preset, const SpecialValues& how) {
  TANDEM_ASSERT(tensor.type == ggml::DType::f32, "special values are F32");
  const auto n = static_cast<std::size_t>(tensor.shape.elements());
  RandomWords random(how.seed);
  std::vector<float> values(n, 1.0F);
  if (tensor.fill == Fill::router) return skewed_router(tensor, how, random);
  if (tensor.fill == Fill::rope_divisors) return rope_divisors(n, preset.rope_base);
  if (tensor.fill == Fill::time_step) {
    for (float& value : values) value = static_cast<float>(-1 + 0.5 * random.normal());
  } else if (tensor.fill == Fill::decay) {
    for (float& value : values) value = static_cast<float>(-std::exp(-2 + 3 * random.uniform()));
  }
  return values;
}

}  // namespace gguf_tool
