#pragma once

#include "cuda/lowered_graph.h"

/// What saves launches in steps of few rows, where a launch costs more than its work. Results stay within the bounds of
/// the single nodes; nothing that is an output or observed is left out.
namespace ggml::cuda {

/// Norms of q and k, rotation and the append to the cache become one node between the projections and attention.
void join_heads(LoweredGraph& lowered);

/// Where there is one row: products add the residual to their result and normalise their input, and experts choose for
/// themselves.
void fuse_single_rows(LoweredGraph& lowered);

/// Activations that products round are left rounded by the norm or the attention that makes them.
void share_rounding(LoweredGraph& lowered);

}  // namespace ggml::cuda
