#include "cuda/kernels/expert_rows.h"

#include "cuda/kernels/activate.cuh"
#include "cuda/kernels/rounding.cuh"
#include "cuda/kernels/vector_product.cuh"

namespace ggml::cuda {
namespace {

/// One weight row times one activation row by a group of lanes; the first kAhead units of each lane are requested by
/// themselves, so that several rows can be in flight.
template <class D>
struct RowInFlight {
  D ahead[kAhead];
  std::int64_t row = 0;

  __device__ __forceinline__ void request(const PlanarWeight& w, int unit, int lanes) {
    const int units = w.k / kUnit;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (unit + i * lanes < units) ahead[i].load(w, row * units + unit + i * lanes);
    }
  }
  /// This lane's part of the product; `x_row` counts rows of x.
  __device__ __forceinline__ float product(const PlanarWeight& w, const QuantisedRows& x, int x_row, int lane,
                                           int lanes) {
    const int units = w.k / kUnit;
    float sum = 0;
    for (int unit = lane; unit < units; unit += kAhead * lanes) {
      if (unit != lane) request(w, unit, lanes);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int at = unit + i * lanes;
        if (at >= units) break;
        sum += unit_product(ahead[i], ahead[i].codes(), ahead[i].scales(), x,
                            static_cast<std::int64_t>(x_row) * units + at);
      }
    }
    return sum;
  }
};

/// Sum over a group of lanes, in all of them.
__device__ __forceinline__ float group_sum(float v, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
  return v;
}

/// As many blocks as decoders leave room for registers, so that all of them are at work at once.
template <class D>
constexpr int kBlocksAtOnce = sizeof(D) <= 32 ? 6 : 4;

/// A block has kVectorThreads / lanes values of one row's hidden vector, all in one run of 256; the last block of a run
/// rounds it if that is wanted.
template <class D>
__global__ void __launch_bounds__(kVectorThreads, kBlocksAtOnce<D>)
    gate_up(const __grid_constant__ GateUpArgs a, int lanes) {
  const PlanarWeight& w = a.gate.w;
  const int pair = static_cast<int>(blockIdx.y), per_block = kVectorThreads / lanes;
  const int first = static_cast<int>(blockIdx.x) * per_block;
  const int lane = static_cast<int>(threadIdx.x) % lanes, width = static_cast<int>(w.n);
  const std::int64_t n = first + static_cast<int>(threadIdx.x) / lanes;
  const bool inside = n < width;
  RowInFlight<D> gate, up;
  const bool early = a.gate.experts.ids == nullptr && inside;
  if (early) {
    gate.row = a.gate.w.first + n;
    up.row = a.up.w.first + n;
    gate.request(a.gate.w, lane, lanes);
    up.request(a.up.w, lane, lanes);
  }
  wait_for_previous();
  allow_next();  // not before: the next kernel reads ids that the one before this wrote
  if (pair >= live(a.gate.rows)) return;
  const RowChoice choice = choose_row(a.gate, pair, n);
  if (choice.zero) return;
  float g = 0, u = 0;
  if (inside) {
    if (!early) {
      gate.row = choice.weight_row;
      up.row = choose_row(a.up, pair, n).weight_row;
      gate.request(a.gate.w, lane, lanes);
      up.request(a.up.w, lane, lanes);
    }
    g = gate.product(a.gate.w, a.gate.x, choice.x_row, lane, lanes);
    u = up.product(a.up.w, a.gate.x, choice.x_row, lane, lanes);
  }
  g = group_sum(g, lanes);
  u = group_sum(u, lanes);
  float* hidden = a.hidden + static_cast<std::int64_t>(pair) * width;
  if (inside && lane == 0) {
    hidden[n] = gated_value(a.activation, finish(a.gate, g, n, choice.expert), finish(a.up, u, n, choice.expert));
  }
  if (a.rounded.act == ActType::f32) return;
  const int run = first / kWarpValues, runs = (width + kWarpValues - 1) / kWarpValues;
  const int in_run = min(kWarpValues, width - run * kWarpValues);
  if (!last_to_arrive(a.arrived + pair * runs + run, (in_run + per_block - 1) / per_block)) return;
  if (threadIdx.x >= kWarp) return;
  const int at = run * kWarpValues + static_cast<int>(threadIdx.x) * kLaneValues;
  float v[kLaneValues];
#pragma unroll
  for (int j = 0; j < kLaneValues; ++j) v[j] = at < width ? __ldcg(hidden + at + j) : 0.0f;
  write_rounded(a.rounded.act, v, at, width, pair, a.rounded.to);
}

constexpr int kDownRows = 16;  // of a block, a warp each
constexpr int kInFlight = 2;   // experts
constexpr int kMostShared = 48 * 1024;

constexpr int down_sum_bytes(int k, int n_used) {
  const int values = k * n_used;
  return values + values / 16 * static_cast<int>(sizeof(float)) + values / kUnit * static_cast<int>(sizeof(float));
}

/// Hidden values of the token's experts, rounded into the block's memory.
__device__ __forceinline__ QuantisedRows round_hidden(const DownSumArgs& a, int token, std::int8_t* memory) {
  const ExpertIds& experts = a.down.experts;
  const int k = a.down.w.k, values = k * experts.n_used, runs = (k + kWarpValues - 1) / kWarpValues;
  QuantisedRows x;
  x.q = memory;
  x.s = reinterpret_cast<float*>(memory + values);
  x.d = x.s + values / 16;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int i = warp; i < runs * experts.n_used; i += kDownRows) {
    const int j = i / runs, at = i % runs * kWarpValues + lane * kLaneValues, pair = token * experts.n_used + j;
    if (choose_row(a.down, pair, 0).zero) continue;
    float v[kLaneValues];
    load_values(a.hidden + static_cast<std::int64_t>(pair) * k, at, k, v);
    write_rounded(a.act, v, at, k, j, x);
  }
  __syncthreads();
  return x;
}

/// A warp per result: each group of lanes takes every (32 / lanes)-th expert.
template <class D>
__global__ void __launch_bounds__(kDownRows* kWarp) down_sum(const __grid_constant__ DownSumArgs a, int lanes) {
  extern __shared__ __align__(16) std::int8_t memory[];
  allow_next();
  const PlanarWeight& w = a.down.w;
  const ExpertIds& experts = a.down.experts;
  const int token = static_cast<int>(blockIdx.y), warp_lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kDownRows + threadIdx.x / kWarp;
  const int group = warp_lane / lanes, lane = warp_lane % lanes, groups = kWarp / lanes;
  if (token >= live(a.tokens)) return wait_for_previous();
  const bool inside = n < w.n;
  RowInFlight<D> rows[kInFlight];
  RowChoice choice[kInFlight];
  auto request = [&](int first) {
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int j = first + i * groups + group;
      choice[i].zero = true;
      if (!inside || j >= experts.n_used) continue;
      choice[i] = choose_row(a.down, token * experts.n_used + j, n);
      if (choice[i].zero) continue;
      rows[i].row = choice[i].weight_row;
      rows[i].request(w, lane, lanes);
    }
  };
  request(0);
  wait_for_previous();
  const QuantisedRows x = round_hidden(a, token, memory);
  float sum = 0;
  for (int first = 0; first < experts.n_used; first += kInFlight * groups) {
    if (first > 0) request(first);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int j = first + i * groups + group;
      float v = choice[i].zero ? 0.0f : rows[i].product(w, x, j, lane, lanes);
      v = group_sum(v, lanes);
      if (!choice[i].zero) {
        v = finish(a.down, v, n, choice[i].expert);
        if (a.weights != nullptr) v *= a.weights[token * experts.n_used + j];
      }
      for (int g = 0; g < groups; ++g) sum += __shfl_sync(~0u, v, g * lanes);
    }
  }
  if (inside && warp_lane == 0) a.y[static_cast<std::int64_t>(token) * w.n + n] = sum;
}

}  // namespace

int gate_up_counters(const RowCount& rows, std::int64_t width) {
  return rows.capacity * static_cast<int>((width + kWarpValues - 1) / kWarpValues);
}

void launch_gate_up(const GateUpArgs& args, cudaStream_t stream) {
  const int lanes = lanes_per_row(args.gate.w.k), per_block = kVectorThreads / lanes;
  const dim3 grid(static_cast<unsigned>((args.gate.w.n + per_block - 1) / per_block),
                  static_cast<unsigned>(args.gate.rows.capacity));
  with_decoder(args.kind, [&]<class D>() { launch(gate_up<D>, grid, kVectorThreads, 0, stream, args, lanes); });
}

bool down_sum_fits(int k, int n_used) {
  return down_sum_bytes(k, n_used) <= kMostShared;
}

void launch_down_sum(const DownSumArgs& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((args.down.w.n + kDownRows - 1) / kDownRows),
                  static_cast<unsigned>(args.tokens.capacity));
  const auto bytes = static_cast<std::size_t>(down_sum_bytes(args.down.w.k, args.down.experts.n_used));
  const int lanes = lanes_per_row(args.down.w.k);
  with_decoder(args.kind, [&]<class D>() { launch(down_sum<D>, grid, kDownRows * kWarp, bytes, stream, args, lanes); });
}

}  // namespace ggml::cuda
