#include "cuda/kernels/kv_access.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/turn.cuh"

// What lies between the projections and attention, for few rows: a warp per head of q, k and v.
namespace ggml::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;

constexpr int kMostValues = kMostHeadValues / kWarp;     // of a head, per lane
constexpr int kMostTurns = kMostHeadValues / 2 / kWarp;  // likewise

/// What a warp works on.
struct Item {
  int row, head, d;
  bool is_q, is_v;
  const float* from;
};

__device__ __forceinline__ Item item_of(const HeadsArgs& a, int item, int row) {
  const int n_kv = a.kv.n_head_kv;
  const bool is_q = item < a.n_head, is_v = item >= a.n_head + n_kv;
  const int head = is_q ? item : is_v ? item - a.n_head - n_kv : item - a.n_head;
  const int d = is_v ? a.kv.dv : a.kv.dk;
  const float* from = is_q ? a.q + (static_cast<std::int64_t>(row) * a.n_head + head) * d
                           : (is_v ? a.v : a.k) + (static_cast<std::int64_t>(row) * n_kv + head) * d;
  return {row, head, d, is_q, is_v, from};
}

/// Where the cache has the values and scales of the new cell's head; null: nowhere.
struct Cell {
  std::uint8_t* values = nullptr;
  std::uint8_t* scales = nullptr;
  int token = 0;
};

__device__ __forceinline__ Cell cell_of(const HeadsArgs& a, const Item& item) {
  if (item.is_q) return {};
  const RowPlace place = place_of(a.in, item.row);
  if (place.span < 0) return {};
  std::uint8_t* block = block_of(a.in, a.in.spans[place.span], place.cell / kTokens, a.kv.block_bytes);
  if (block == nullptr) return {};
  const KvPlanes& kv = a.kv;
  const int head = item.head;
  std::uint8_t* values = block + (item.is_v ? kv.v_values + head * kv.v_head : head * kv.k_head);
  std::uint8_t* scales =
      block + (item.is_v ? kv.v_scales + head * kv.v_head_scales : kv.k_scales + head * kv.k_head_scales);
  return {values, scales, place.cell % kTokens};
}

/// Everything that does not depend on the projections is worked out before the wait for them.
__global__ void __launch_bounds__(kThreads) prepare_heads(const __grid_constant__ HeadsArgs a, int stride) {
  extern __shared__ float memory[];
  allow_next();
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int number = static_cast<int>(blockIdx.x) * kWarps + warp, row = static_cast<int>(blockIdx.y);
  if (row >= live(a.tokens) || number >= a.n_head + 2 * a.kv.n_head_kv) return wait_for_previous();
  const Item item = item_of(a, number, row);
  const Cell cell = cell_of(a, item);
  const NormArgs& norm = item.is_q ? a.q_norm : a.k_norm;
  const bool normed = !item.is_v && norm.weight != nullptr;
  const std::int64_t first_weight = norm.heads > 1 ? static_cast<std::int64_t>(item.head) * item.d : 0;
  float weight[kMostValues], bias[kMostValues];
#pragma unroll
  for (int j = 0; j < kMostValues; ++j) {
    const int i = lane + j * kWarp;
    weight[j] = normed && i < item.d ? norm.weight[first_weight + i] : 1.0f;
    bias[j] = normed && i < item.d && norm.bias != nullptr ? norm.bias[first_weight + i] : 0.0f;
  }
  const RotateArgs& r = a.rotate;
  const int pairs = item.is_v ? 0 : r.n_rot / 2;
  float2 turn[kMostTurns];
#pragma unroll
  for (int t = 0; t < kMostTurns; ++t) {
    if (lane + t * kWarp < pairs) turn[t] = turn_of(r, r.positions[row], lane + t * kWarp);
  }
  wait_for_previous();
  float x[kMostValues], squares = 0;
#pragma unroll
  for (int j = 0; j < kMostValues; ++j) {
    const int i = lane + j * kWarp;
    x[j] = i < item.d ? item.from[i] : 0.0f;
    squares += x[j] * x[j];
  }
  const float divisor = normed ? sqrtf(warp_sum(squares) / static_cast<float>(item.d) + norm.eps) : 1.0f;
  float* head = memory + warp * stride;
#pragma unroll
  for (int j = 0; j < kMostValues; ++j) {
    const int i = lane + j * kWarp;
    if (i < item.d) head[i] = normed ? x[j] / divisor * weight[j] + bias[j] : x[j];
  }
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kMostTurns; ++t) {
    const int p = lane + t * kWarp;
    if (p >= pairs) continue;
    const int first = r.first + (r.adjacent ? 2 * p : p), second = r.first + (r.adjacent ? 2 * p + 1 : p + pairs);
    const float u = head[first], v = head[second];
    head[first] = u * turn[t].x - v * turn[t].y;
    head[second] = u * turn[t].y + v * turn[t].x;
  }
  __syncwarp();
  if (item.is_q) {
    float* y = a.q_rotated + (static_cast<std::int64_t>(row) * a.n_head + item.head) * item.d;
    for (int i = lane; i < item.d; i += kWarp) y[i] = head[i];
  } else if (cell.values != nullptr) {
    store_row(item.is_v ? a.kv.v : a.kv.k, head, item.d, cell.values, cell.scales, cell.token);
  }
}

}  // namespace

void launch_heads(const HeadsArgs& args, cudaStream_t stream) {
  const int stride = args.kv.dk > args.kv.dv ? args.kv.dk : args.kv.dv;
  const int items = args.n_head + 2 * args.kv.n_head_kv;
  const dim3 grid(static_cast<unsigned>((items + kWarps - 1) / kWarps), static_cast<unsigned>(args.tokens.capacity));
  launch(prepare_heads, grid, kThreads, static_cast<std::size_t>(kWarps * stride) * sizeof(float), stream, args,
         stride);
}

}  // namespace ggml::cuda
