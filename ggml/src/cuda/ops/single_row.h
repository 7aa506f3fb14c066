#pragma once

#include <memory>
#include <vector>

#include "cuda/bound_op.h"
#include "cuda/ops/heads.h"

/// Nodes that work on a single row of activations and do more in their launches than their op says: the norm of their
/// input, the addition of the residual stream to their result, the choice of experts.
namespace ggml::cuda {

/// A norm that a node computes for itself. src[0] of the node is then what the norm read.
struct OwnNorm {
  TensorId weight;
  float eps = 0.0f;
};
/// Whether a norm is of the kind that others can do: of one row, root mean square, with an F32 weight only.
[[nodiscard]] bool norm_can_move(const Graph& graph, const Node& norm);

/// linear. dst[0] = residual + what the op gives.
[[nodiscard]] bool linear_adds_residual(const Graph& graph, const Node& linear);
[[nodiscard]] std::unique_ptr<BoundOp> bind_linear_with_residual(const BindContext& context, const Node& node,
                                                                 TensorId residual, Carver& carver);

/// qkv without norms of q and k.
[[nodiscard]] bool qkv_takes_norm(const Graph& graph, const Node& qkv);
[[nodiscard]] std::unique_ptr<BoundOp> bind_normed_qkv(const BindContext& context, const Node& node,
                                                       const OwnNorm& norm);

/// Norms of q and k, rotation, the append to the cache and attention. src: q, pool, spans, block table, k, v,
/// positions, factors if there are any.
struct HeadsOfRow {
  HeadsParams heads;
  std::vector<Slot> norms;  // of q and k, or none
};
[[nodiscard]] bool attention_takes_heads(const Graph& graph, const Node& attention);
[[nodiscard]] std::unique_ptr<BoundOp> bind_single_attention(const BindContext& context, const Node& node,
                                                             const HeadsOfRow& heads);

/// moe_route and the moe_ffn that follows it. The route's dst[0] becomes the logits [n_expert], and src of the experts
/// {what the norm read, logits, ...}.
[[nodiscard]] bool experts_take_norm(const Graph& graph, const Node& route, const Node& experts);
[[nodiscard]] std::unique_ptr<BoundOp> bind_normed_router(const BindContext& context, const Node& node,
                                                          const OwnNorm& norm);
struct OwnChoice {
  MoeRouteParams params;
  OwnNorm norm;
  TensorId residual;  // added to the sum, if valid
};
[[nodiscard]] std::unique_ptr<BoundOp> bind_choosing_experts(const BindContext& context, const Node& node,
                                                             const OwnChoice& choice, Carver& carver);

}  // namespace ggml::cuda
