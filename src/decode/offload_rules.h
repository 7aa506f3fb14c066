#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "ggml/device.h"
#include "llama/context.h"
#include "llama/model.h"
#include "model/weights.h"

namespace llama {

/// Which weights of host memory a step sends to a device (op offload). They fall into levels: those of level n are sent
/// by steps of level n and higher, and more tokens make a higher level; level 0 sends nothing. Immutable.
class OffloadRules {
 public:
  /// Looks at where the model's weights lie. `devices`: those of the plan.
  OffloadRules(const Model& model, const ContextParams& params, std::span<ggml::Device* const> devices);

  /// The highest level that steps of the context can have.
  [[nodiscard]] int top() const { return static_cast<int>(from_.size()); }
  [[nodiscard]] ggml::DeviceId device() const { return params_.offload.device; }
  /// The level of a micro-batch, and of the step that it is a part of. One token is always left where its weights are.
  [[nodiscard]] int level(int step_tokens, int ubatch_tokens) const;
  /// `keeps_ffn`: those of the last layer's feed-forward stay.
  [[nodiscard]] bool wanted(const ggml::Weight& weight, int level, bool keeps_ffn) const;
  /// All that some step sends, in no order.
  template <class F>
  void for_each_weight(F&& f) const {
    for (const auto& [weight, entry] : entries_) f(*weight);
  }
  /// Whether nearly all experts of a layer will be used by a step: then they are sent before it is known which.
  [[nodiscard]] bool sends_whole(int step_tokens) const;

 private:
  struct Entry {
    int tokens = 0;  // from which on the weight is sent
    bool of_last_ffn = false;
  };

  void note(const TensorSet& layer, const ggml::Device& device, bool is_last);
  [[nodiscard]] int tokens_for(const ggml::Weight& weight, Role role) const;

  const Model& model_;
  const ContextParams& params_;
  std::unordered_map<const ggml::Weight*, Entry> entries_;
  std::vector<int> from_;  // per level, rising
};

}  // namespace llama
