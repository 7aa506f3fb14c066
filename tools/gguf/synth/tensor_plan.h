#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ggml/tensor.h"
#include "mix.h"
#include "preset.h"

namespace gguf_tool {

/// What a tensor is filled with. `spread` is the standard deviation where values are random.
enum class Fill : std::uint8_t {
  fixed,          // the spread of the row
  by_row,         // 0.7 / sqrt(row length): products of normalised inputs stay near one
  unit_by_row,    // 1 / sqrt(row length)
  embedding,      // wide, so that tokens and hence their experts differ; small when it is the head too
  ones,           // norms
  router,         // 1.5 / sqrt(row length); may be skewed
  rope_divisors,  // of the Llama 3 scaling
  time_step,      // gated delta net: normal about -1
  decay,          // gated delta net: -exp(uniform)
};

struct PlannedTensor {
  std::string name;
  ggml::Shape shape;
  ggml::DType type = ggml::DType::f32;
  Fill fill = Fill::by_row;
  double spread = 0;  // 0 for fills that are not random blocks
};

/// All tensors of a model in file order. Throws ggml::Error(unsupported) when one needs a type that cannot be written.
[[nodiscard]] std::vector<PlannedTensor> plan_tensors(const Preset& preset, const Mix& mix);

/// Sum of the tensors' bytes, and of their elements.
struct PlanTotals {
  std::uint64_t bytes = 0;
  std::uint64_t elements = 0;
};
[[nodiscard]] PlanTotals totals_of(const std::vector<PlannedTensor>& plan);

}  // namespace gguf_tool
