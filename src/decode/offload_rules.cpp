#include "decode/offload_rules.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "model/hparams.h"

namespace llama {

namespace {

constexpr int kFewestTokens = 2;
constexpr double kNearlyAll = 0.95;  // of a layer's experts

bool lies_on_host_alone(const ggml::Weight& weight) {
  return std::ranges::none_of(weight.placements,
                              [](const ggml::Placement& p) { return p.kind == ggml::BufferKind::device; });
}

/// What ik_llama.cpp's list of operations tells apart.
enum class Product : std::uint8_t { dense, dense_up_gate, experts, experts_up_gate };

Product product_of(Role role, const ContextParams& params) {
  switch (role) {
    case Role::ffn_gate_exps:
    case Role::ffn_up_exps:
    case Role::ffn_gate_up_exps:
      return params.fused_experts ? Product::experts_up_gate : Product::experts;
    case Role::ffn_down_exps:
      return Product::experts;
    case Role::ffn_gate:
    case Role::ffn_up:
    case Role::ffn_gate_shexp:
    case Role::ffn_up_shexp:
      return params.fused_up_gate ? Product::dense_up_gate : Product::dense;
    default:
      return Product::dense;
  }
}

bool is_of_feed_forward(Role role) {
  switch (role) {
    case Role::ffn_gate:
    case Role::ffn_up:
    case Role::ffn_down:
    case Role::ffn_gate_inp:
    case Role::ffn_gate_exps:
    case Role::ffn_up_exps:
    case Role::ffn_gate_up_exps:
    case Role::ffn_down_exps:
    case Role::ffn_gate_inp_shexp:
    case Role::ffn_gate_shexp:
    case Role::ffn_up_shexp:
    case Role::ffn_down_shexp:
      return true;
    default:
      return false;
  }
}

bool is_of_experts(Product product) {
  return product == Product::experts || product == Product::experts_up_gate;
}

bool is_on(const OpOffload& offload, Product product) {
  switch (product) {
    case Product::dense:
      return offload.dense;
    case Product::dense_up_gate:
      return offload.dense_up_gate;
    case Product::experts:
      return offload.experts;
    case Product::experts_up_gate:
      break;
  }
  return offload.experts_up_gate;
}

}  // namespace

OffloadRules::OffloadRules(const Model& model, const ContextParams& params, std::span<ggml::Device* const> devices)
    : model_(model), params_(params) {
  const auto d = static_cast<std::size_t>(std::max(params.offload.device.v, 0));
  if (d == 0 || d >= devices.size() || model.hparams().is_encoder) return;
  const auto& layers = model.weights().layers;
  for (const TensorSet& layer : layers) note(layer, *devices[d], &layer == &layers.back());
  const int most = params.offload.by_ubatch ? std::min(params.n_ubatch, params.n_batch) : params.n_batch;
  for (const auto& [weight, entry] : entries_)
    if (entry.tokens <= most) from_.push_back(entry.tokens);
  std::ranges::sort(from_);
  from_.erase(std::unique(from_.begin(), from_.end()), from_.end());
}

void OffloadRules::note(const TensorSet& layer, const ggml::Device& device, bool is_last) {
  for (std::size_t i = 0; i < kRoleCount; ++i) {
    const ggml::Weight* weight = layer.parts[i].weight;
    if (weight == nullptr || weight->shape[1] < 2 || !lies_on_host_alone(*weight) ||
        !device.streams_weights(weight->type))
      continue;
    const auto role = static_cast<Role>(i);
    if (const int tokens = tokens_for(*weight, role); tokens > 0)
      entries_[weight] = {tokens, is_last && is_of_feed_forward(role)};
  }
}

/// 0: never.
int OffloadRules::tokens_for(const ggml::Weight& weight, Role role) const {
  const OpOffload& offload = params_.offload;
  const Product product = product_of(role, params_);
  if (!is_on(offload, product)) return 0;
  int tokens = is_of_experts(product) ? offload.experts_from : offload.dense_from;
  if (offload.tokens_per_byte) {
    const double bytes = static_cast<double>(ggml::tensor_bytes(weight.type, weight.shape));
    tokens = static_cast<int>(*offload.tokens_per_byte * bytes / static_cast<double>(weight.shape.elements()));
    const ExpertHparams& experts = model_.hparams().experts;
    if (is_of_experts(product))
      tokens = static_cast<int>(std::ceil(static_cast<double>(tokens) * experts.count / experts.used));
    tokens = std::max(tokens, kFewestTokens);
  }
  return tokens <= 0 ? 0 : std::max(tokens, kFewestTokens);
}

int OffloadRules::level(int step_tokens, int ubatch_tokens) const {
  const int tokens = params_.offload.by_ubatch ? ubatch_tokens : step_tokens;
  return static_cast<int>(std::ranges::upper_bound(from_, tokens) - from_.begin());
}

bool OffloadRules::wanted(const ggml::Weight& weight, int level, bool keeps_ffn) const {
  const auto found = entries_.find(&weight);
  if (found == entries_.end() || level <= 0 || (keeps_ffn && found->second.of_last_ffn)) return false;
  return found->second.tokens <= from_[static_cast<std::size_t>(level) - 1];
}

bool OffloadRules::sends_whole(int step_tokens) const {
  const ExpertHparams& experts = model_.hparams().experts;
  if (experts.count == 0 || !params_.offload.only_used_experts) return true;
  const double share = static_cast<double>(experts.used) / experts.count;
  return 1.0 - std::pow(1.0 - share, step_tokens) >= kNearlyAll;
}

}  // namespace llama
