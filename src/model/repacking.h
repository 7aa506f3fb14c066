#pragma once

#include <cstddef>
#include <span>
#include <unordered_map>

#include "ggml/device.h"
#include "model/weight_places.h"
#include "model/weights.h"

namespace llama {

/// Which weights -rtr rewrites to rows that lie together in groups, and as which types: matrices that the CPU alone
/// multiplies with, whose type has such a form of the same size and whose rows make whole groups. What is looked up row
/// by row (the embedding) or read for derived weights (of latent attention) stays.
class Repacking {
 public:
  Repacking(const WeightPlaces& places, const ModelWeights& weights);

  [[nodiscard]] bool wants(const ggml::Weight& weight) const { return types_.contains(&weight); }
  /// Rewrites the weight's bytes at `data`, and gives the weight its new type.
  void apply(ggml::Weight& weight, std::byte* data);
  /// Only says what apply() would: for an outline of the model.
  void declare(ggml::Weight& weight);
  /// Logs how many weights there are, and how many of them some card would have multiplied prompts with if they had
  /// stayed as they are in the file.
  void report(std::span<ggml::Device* const> devices, const ModelWeights& weights) const;

 private:
  struct Change {
    ggml::DType from, to;
  };
  void note(const WeightPlaces& places, const ggml::Weight* weight);

  std::unordered_map<const ggml::Weight*, Change> types_;
};

}  // namespace llama
