#include "cuda/kernels/latent_rows.h"

#include "cuda/kernels/kv_access.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/rounding.cuh"

namespace ggml::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;

__device__ __forceinline__ float rounded_float(ActType act, float x) {
  return act == ActType::f16    ? __half2float(__float2half_rn(x))
         : act == ActType::bf16 ? __bfloat162float(__float2bfloat16_rn(x))
                                : x;
}

/// One head of a query: the part that meets a matrix is rounded, the rotated one moves to where products will be added.
__device__ __forceinline__ void split_query(const LatentRowsArgs& a, std::int64_t row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float* q = a.q + row * (a.nope + a.n_rot);
  float* rotated = a.query + row * (a.kv_rank + a.n_rot) + a.kv_rank;
  for (int i = lane; i < a.n_rot; i += kWarp) rotated[i] = q[a.nope + i];
  if (a.floats != nullptr) {
    for (int i = lane; i < a.nope; i += kWarp) a.floats[row * a.nope + i] = rounded_float(a.act, q[i]);
    return;
  }
  for (int run = 0; run < a.nope; run += kWarpValues) {
    float v[kLaneValues];
    load_values(q, run + lane * kLaneValues, a.nope, v);
    write_rounded(a.act, v, run + lane * kLaneValues, a.nope, row, a.codes);
  }
}

/// The new cell of one token: latent and rotated part as one key.
__device__ __forceinline__ void append(const LatentRowsArgs& a, int token, float* key) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const RowPlace place = place_of(a.in, token);
  if (place.span < 0) return;
  std::uint8_t* block = block_of(a.in, a.in.spans[place.span], place.cell / kTokens, a.kv.block_bytes);
  if (block == nullptr) return;
  const float* latent = a.latent + static_cast<std::int64_t>(token) * a.kv_rank;
  const float* k_rot = a.k_rot + static_cast<std::int64_t>(token) * a.n_rot;
  for (int i = lane; i < a.kv_rank; i += kWarp) key[i] = latent[i];
  for (int i = lane; i < a.n_rot; i += kWarp) key[a.kv_rank + i] = k_rot[i];
  __syncwarp();
  store_row(a.kv.k, key, a.kv_rank + a.n_rot, block, block + a.kv.k_scales, place.cell % kTokens);
}

/// A warp per head and token, one more per token for its cell.
__global__ void __launch_bounds__(kThreads) latent_rows(const __grid_constant__ LatentRowsArgs a) {
  extern __shared__ float memory[];
  begin_kernel();
  const int warp = static_cast<int>(threadIdx.x) / kWarp, token = static_cast<int>(blockIdx.y);
  const int item = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (token >= live(a.tokens) || item > a.n_head) return;
  if (item == a.n_head) return append(a, token, memory + warp * (a.kv_rank + a.n_rot));
  split_query(a, static_cast<std::int64_t>(token) * a.n_head + item);
}

}  // namespace

bool latent_rows_fit(int nope, int n_rot) noexcept {
  return nope % kLaneValues == 0 && n_rot % 4 == 0;
}

void launch_latent_rows(const LatentRowsArgs& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.n_head / kWarps + 1), static_cast<unsigned>(args.tokens.capacity));
  const auto bytes = static_cast<std::size_t>(kWarps * (args.kv_rank + args.n_rot)) * sizeof(float);
  launch(latent_rows, grid, kThreads, bytes, stream, args);
}

}  // namespace ggml::cuda
