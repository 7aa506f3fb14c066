#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ggml/gguf.h"
#include "llama/model.h"
#include "llama/plan.h"
#include "model/schema.h"
#include "model/weights.h"

namespace llama {

/// Tensors of a file that become one when they are loaded (-mqkv, -muge).
struct MergedTensor {
  std::string name;  // as files call it that have it so
  Role role = Role::count;
  int layer = 0;
  TensorMatch::Part part = TensorMatch::Part::weight;
  ggml::DType type = ggml::DType::f32;
  ggml::Shape shape;
  std::vector<const ggml::gguf::TensorInfo*> parts;  // their rows follow each other in this order,
  std::int64_t n_stacks = 1;                         // for each expert anew
};

/// Whether tensors may be merged at all: LoRA adapters need the file's own tensors.
[[nodiscard]] inline bool may_merge(const ModelParams& params) {
  return (params.merge_qkv || params.merge_up_gate) && params.adapters.empty();
}

/// The tensors, by name, that become one each where a plan puts them on the same devices: those of one type for which
/// the family knows the merged form.
[[nodiscard]] std::vector<std::vector<std::string>> merge_groups(const ModelParams& params,
                                                                 std::span<const TensorRow> rows,
                                                                 std::span<const TensorMatch> matches);

/// Takes out of `matches` what is merged with this plan, and gives the plan an entry for each merged tensor. A line of
/// the log tells what stays as it is, and why.
[[nodiscard]] std::vector<MergedTensor> merge_tensors(const ModelParams& params, std::span<const TensorRow> rows,
                                                      std::vector<TensorMatch>& matches, Plan& plan);

}  // namespace llama
