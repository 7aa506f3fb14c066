#include "cuda/kernels/prompt_attention.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/check.h"

namespace ggml::cuda {
namespace {

constexpr int kMaxHead = 256;
constexpr int kMaxSplits = 16;

/// Two halves hold what F16, BF16 and quantised caches hold, but less than F32.
bool fits(DType type, int dim) {
  return type != DType::f32 && dim > 0 && dim <= kMaxHead && dim % 8 == 0;
}

int tiles_of(int tokens, int n_head, int n_head_kv) {
  return (tokens * (n_head / n_head_kv) + kPromptRows - 1) / kPromptRows;
}

int shared_limit() {
  int device = 0, bytes = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

}  // namespace

bool has_prompt_attention(const KvPlanes& kv) noexcept {
  return fits(kv.k.type, kv.dk) && fits(kv.v.type, kv.dv);
}

int prompt_attention_splits(int tokens, int n_head, int n_head_kv, int multiprocessors) noexcept {
  const int blocks = tiles_of(tokens, n_head, n_head_kv) * n_head_kv;
  int splits = 1;
  while (splits < kMaxSplits && 4 * blocks * splits <= 5 * multiprocessors) splits *= 2;
  return splits;
}

void launch_prompt_attention(const AttentionArgs& args, int max_spans, cudaStream_t stream) {
  // Each span may end with a tile that is not full.
  const PromptGrid grid{tiles_of(args.tokens.capacity, args.n_head, args.kv.n_head_kv) + max_spans, shared_limit()};
  const int head = std::max(args.kv.dk, args.kv.dv);
  const bool launched = head <= 64    ? launch_prompt_attention<64>(args, grid, stream)
                        : head <= 128 ? launch_prompt_attention<128>(args, grid, stream)
                                      : launch_prompt_attention<256>(args, grid, stream);
  if (!launched) return launch_attention(args, stream);
  if (args.n_splits > 1) launch_join_splits(args, stream);
}

}  // namespace ggml::cuda
