#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/route_choice.cuh"
#include "cuda/kernels/staged_experts.h"
#include "cuda/kernels/staged_rows.cuh"
#include "cuda/kernels/vector_product.cuh"

// The experts' second product and its sum over the experts of a token, with the weights copied ahead
// (staged_rows.cuh). A block has some rows of all of the token's experts; it rounds their hidden values for itself.
namespace ggml::cuda {
namespace {

constexpr int kMostRows = 64;
constexpr int kMostUsed = kWarp;
constexpr int kFewLanes = 8, kFewLaneUnits = 3;  // for rows of 768, which experts often have

struct alignas(128) Head {
  Arrival arrival;
  int id[kMostUsed];  // -1: no expert, or one that is not here
  float weight[kMostUsed];
  Ranking ranking;
};

/// The experts of the token and their weights, into head. All of it was there before the kernel before this one began.
__device__ __forceinline__ void find_experts(const StagedDownSumArgs& a, int token, Head& head) {
  const ExpertIds& experts = a.base.down.experts;
  const int thread = static_cast<int>(threadIdx.x);
  const bool chooses = a.choice.logits != nullptr;
  if (chooses) {
    rank_experts<kStagedThreads>(a.choice, head.ranking);
    if (thread < kWarp) weigh_experts(a.choice, head.ranking);
  }
  if (thread < experts.n_used) {
    const int pair = token * experts.n_used + thread;
    const int id = chooses ? head.ranking.id[thread] : __ldcg(experts.ids + pair);
    head.id[thread] = id < experts.begin || id >= experts.end ? -1 : id;
    head.weight[thread] = chooses                     ? head.ranking.weight[thread]
                          : a.base.weights != nullptr ? __ldcg(a.base.weights + pair)
                                                      : 1.0f;
  }
}

/// Where the rounded hidden values of the token's j-th expert lie, and its weight rows.
struct Places {
  std::uint8_t* inputs;
  std::uint8_t* stage;
  int input_bytes, stage_bytes, units;

  __device__ __forceinline__ StagedInput input(int j) const { return {inputs + j * input_bytes, units}; }
  __device__ __forceinline__ std::uint8_t* rows(int j) const { return stage + j * stage_bytes; }
};

/// A warp rounds two runs of 256 values at a time: each is a long chain of short steps.
__device__ __forceinline__ void round_hidden(const DownSumArgs& a, int token, const Head& head, const Places& places) {
  constexpr int kAtOnce = 2;
  const int k = a.down.w.k, runs = (k + kWarpValues - 1) / kWarpValues, n_used = a.down.experts.n_used;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 1
  for (int first = warp; first < runs * n_used; first += kAtOnce * kStagedWarps) {  // whole warps
    float v[kAtOnce][kLaneValues];
    int expert[kAtOnce], at[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int run = first + i * kStagedWarps;
      expert[i] = min(run / runs, n_used - 1);
      const bool wanted = run < runs * n_used && head.id[expert[i]] >= 0;
      at[i] = run % runs * kWarpValues + lane * kLaneValues;
      load_values(a.hidden + (static_cast<std::int64_t>(token) * n_used + expert[i]) * k, at[i], wanted ? k : 0, v[i]);
      if (run >= runs * n_used) at[i] = k;  // there is no such run: nothing is put
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) places.input(expert[i]).put(round_values(a.act, v[i], at[i]), at[i]);
  }
}

/// Products of all experts' rows, into values [expert][row].
template <class D, int kLanes>
__device__ __forceinline__ void multiply_all(const Head& head, const Places& places, int n_used, int rows,
                                             float* values) {
  constexpr int kPerWarp = kWarp / kLanes;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kLanes;
  const int group = thread % kWarp / kLanes, parts = max(1, kStagedWarps / n_used);
#pragma unroll 1
  for (int task = warp; task < n_used * parts; task += kStagedWarps) {
    const int j = task / parts;
    if (head.id[j] < 0) continue;
    LaneInput<D, kLanes, kLanes == kFewLanes ? kFewLaneUnits : 2> x;
    x.load(places.input(j), lane);
    const StagedPlanes planes = staged_planes<D>(places.rows(j), rows, places.units);
#pragma unroll 1
    for (int begin = task % parts * kPerWarp; begin < rows; begin += parts * kPerWarp) {
      const int r = begin + group;
      const float v = x.times(places.input(j), planes, min(r, rows - 1), lane);
      if (lane == 0 && r < rows) values[j * kMostRows + r] = v;
    }
  }
}

template <class D, int kLanes>
__global__ void __launch_bounds__(kStagedThreads, 2) staged_down_sum(const __grid_constant__ StagedDownSumArgs a) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  allow_next();
  Head& head = *reinterpret_cast<Head*>(memory);
  const PlanarWeight& w = a.base.down.w;
  const int units = w.k / kUnit, n_used = a.base.down.experts.n_used, thread = static_cast<int>(threadIdx.x);
  const int token = static_cast<int>(blockIdx.y), first = static_cast<int>(blockIdx.x) * a.rows_per_block;
  const int rows = min(a.rows_per_block, static_cast<int>(w.n) - first);
  float* values = reinterpret_cast<float*>(memory + sizeof(Head));
  std::uint8_t* inputs = memory + sizeof(Head) + n_used * kMostRows * sizeof(float);
  const Places places{inputs, inputs + n_used * staged_input_bytes(w.k), staged_input_bytes(w.k),
                      rows * D::row_bytes(units), units};
  if (token >= live(a.base.tokens)) return wait_for_previous();
  find_experts(a, token, head);
  if (thread < kWarp) {
    __syncwarp();
    const int n_here = __popc(__ballot_sync(~0u, thread < n_used && head.id[thread] >= 0));
    if (thread == 0) {
      head.arrival.begin();
      head.arrival.expect(n_here * places.stage_bytes);
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int j = thread / kWarp; j < n_used; j += kStagedWarps) {
    if (head.id[j] < 0) continue;
    request_rows<D>(w, w.first + head.id[j] * w.rows_per_matrix + first, rows, places.rows(j), head.arrival,
                    thread % kWarp, kWarp);
  }
  wait_for_previous();
  round_hidden(a.base, token, head, places);
  __syncthreads();
  head.arrival.wait();
  multiply_all<D, kLanes>(head, places, n_used, rows, values);
  __syncthreads();
  if (thread >= rows) return;
  const std::int64_t n = first + thread, at = static_cast<std::int64_t>(token) * w.n + n;
  const float residual = a.residual != nullptr ? a.residual[at] : 0.0f;
  float sum = 0;
#pragma unroll 1
  for (int j = 0; j < n_used; ++j) {
    if (head.id[j] >= 0) sum += finish(a.base.down, values[j * kMostRows + thread], n, head.id[j]) * head.weight[j];
  }
  a.base.y[at] = a.residual != nullptr ? sum + residual : sum;
}

int fixed_bytes(int k, int n_used) {
  return static_cast<int>(sizeof(Head)) +
         n_used * (kMostRows * static_cast<int>(sizeof(float)) + staged_input_bytes(k));
}

template <class D>
int rows_bytes(const DownSumArgs& a) {
  return kStagedRows * a.down.experts.n_used * D::row_bytes(a.down.w.k / kUnit);
}

template <class D>
void launch_of(StagedDownSumArgs args, cudaStream_t stream) {
  const PlanarWeight& w = args.base.down.w;
  const CardLimits card = card_limits();
  const int tokens = args.base.tokens.capacity, all = static_cast<int>(w.n) / kStagedRows;
  const int fixed = fixed_bytes(w.k, args.base.down.experts.n_used), one = rows_bytes<D>(args.base);
  int parts = (all * tokens + card.multiprocessors - 1) / card.multiprocessors;
  const int most = fixed + parts * one <= card.staged_bytes ? parts : kSharedStagedBytes / one;
  parts = most < 1 ? 1 : most < kMostRows / kStagedRows ? most : kMostRows / kStagedRows;
  args.rows_per_block = parts * kStagedRows;
  const dim3 grid(static_cast<unsigned>((all + parts - 1) / parts), static_cast<unsigned>(tokens));
  const auto kernel = staged_lanes(w.k) == 16 ? staged_down_sum<D, kFewLanes> : staged_down_sum<D, 32>;
  const int bytes = fixed + parts * one;
  use_shared_memory(kernel, bytes);
  launch(kernel, grid, kStagedThreads, static_cast<std::size_t>(bytes), stream, args);
}

}  // namespace

bool staged_down_sum_fits(const DownSumArgs& args) {
  const int k = args.down.w.k, n_used = args.down.experts.n_used;
  int bytes = 0;
  with_decoder(args.kind, [&]<class D>() { bytes = fixed_bytes(k, n_used) + rows_bytes<D>(args); });
  return can_stage(args.down.w) && n_used <= kMostUsed && bytes <= card_limits().staged_bytes;
}

void launch_staged_down_sum(StagedDownSumArgs args, cudaStream_t stream) {
  with_decoder(args.base.kind, [&]<class D>() { launch_of<D>(args, stream); });
}

}  // namespace ggml::cuda
