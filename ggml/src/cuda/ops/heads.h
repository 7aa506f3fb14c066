#pragma once

#include <memory>

#include "cuda/bound_op.h"
#include "cuda/kernels/attention.h"

namespace ggml::cuda {

/// Norms of q and k, rotation and the append to the cache as one node. src: positions, factors if there are any, q, k,
/// v, pool, spans, block table. slots: norms of q and k, or none. dst: q, rotated.
struct HeadsParams {
  RopeParams rope;
  KvLayout kv;
  int n_head = 0;
  float norm_eps = 0.0f;
};
[[nodiscard]] std::unique_ptr<BoundOp> bind_heads(const BindContext& context, const HeadsParams& params,
                                                  const Node& node);
/// The planes of a block as kernels take them.
[[nodiscard]] KvPlanes planes_of(const KvLayout& kv);
/// The planes that attention reads: where values are a part of the keys, the plane of keys is that of values too.
[[nodiscard]] KvPlanes planes_read(const AttentionParams& params);
/// Whether attention of so many rows can leave its result rounded.
[[nodiscard]] bool attention_rounds_result(const AttentionParams& params, int rows);

}  // namespace ggml::cuda
