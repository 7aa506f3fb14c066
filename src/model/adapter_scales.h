#pragma once

#include <vector>

#include "ggml/graph.h"
#include "model/weights.h"

namespace llama {

/// The adapters that a step graph applies, and the factor of each row for each of them. Every projection of a model
/// gets its adapters here, so that no family knows of them. Without adapters in use it does nothing.
class AdapterScales {
 public:
  explicit AdapterScales(ggml::GraphBuilder& graph) : graph_(graph) {}

  /// The graph applies `adapter`; `scales` [1, rows] f32 are its rows' factors as requests give them.
  void use(int adapter, ggml::TensorId scales) { rows_.push_back({adapter, scales, {}}); }
  /// From here on rows are those with these numbers ([outputs] i32).
  void select(ggml::TensorId row_ids);
  /// Adds the pairs of adapters in use to a slot.
  void attach(const std::vector<AdapterPair>& pairs, ggml::Slot& slot);

 private:
  /// The factors times what an adapter's rank and alpha ask for; adapters with one rank have one.
  struct Scaled {
    float factor = 1.0f;
    ggml::TensorId tensor;
  };
  struct Rows {
    int adapter = 0;
    ggml::TensorId scales;
    std::vector<Scaled> scaled;
  };
  [[nodiscard]] ggml::TensorId times(Rows& rows, float factor);

  ggml::GraphBuilder& graph_;
  std::vector<Rows> rows_;
};

/// The slot of a tensor with its companions but adapters: norms and filters have none.
[[nodiscard]] ggml::Slot make_slot(ggml::GraphBuilder& graph, const TensorWithParts& tensor);
/// The same with those of its adapters that are in use.
[[nodiscard]] ggml::Slot make_slot(ggml::GraphBuilder& graph, const TensorWithParts& tensor, AdapterScales& adapters);

}  // namespace llama
