#include "cuda/kernels/activate.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/route_choice.cuh"
#include "cuda/kernels/staged_experts.h"
#include "cuda/kernels/staged_rows.cuh"
#include "cuda/kernels/vector_product.cuh"

// Hidden values of few (token, expert) pairs, with the weights copied ahead (staged_rows.cuh). A block has some tens of
// values of one pair: eight rows of gate and the same of up arrive together and are multiplied while later ones are on
// their way.
namespace ggml::cuda {
namespace {

constexpr int kMostChunks = 16;
constexpr int kChunkRows = 2 * kStagedRows;  // of gate and up

struct alignas(128) Head {
  Arrival arrival[kMostChunks];
  float shared[kWarp];
  float values[kMostChunks * kChunkRows];  // gate and up in turn
  Ranking ranking;
};

/// Eight rows of gate and the same of up for each chunk; every warp has some of the copies.
template <class D>
__device__ __forceinline__ void request_chunks(const GateUpArgs& a, std::int64_t matrix, int first, int chunks,
                                               std::uint8_t* stage, Head& head) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int bytes = kStagedRows * D::row_bytes(a.gate.w.k / kUnit);
#if __CUDA_ARCH__ >= 900
  constexpr int kPlanes = 4;
  const int plane = warp % kPlanes, all = 2 * chunks;  // pieces of eight rows, of gate and up in turn
  for (int i = warp / kPlanes; i < all; i += kStagedWarps / kPlanes) {
    const PlanarWeight& w = i % 2 != 0 ? a.up.w : a.gate.w;
    const std::int64_t row = w.first + matrix * w.rows_per_matrix + first + i / 2 * kStagedRows;
    if (lane == 0) request_plane<D>(w, plane, row, kStagedRows, stage + i * bytes, head.arrival[i / 2]);
  }
#else
  for (int i = warp; i < 2 * chunks; i += kStagedWarps) {
    const PlanarWeight& w = i % 2 != 0 ? a.up.w : a.gate.w;
    request_rows<D>(w, w.first + matrix * w.rows_per_matrix + first + i / 2 * kStagedRows, kStagedRows,
                    stage + i * bytes, head.arrival[i / 2], lane, kWarp);
  }
#endif
}

/// What a block works on.
struct Work {
  int pair, first, rows, chunks;
};

template <class D>
__device__ __forceinline__ void multiply_chunks(const Work& work, const StagedInput& input, const std::uint8_t* stage,
                                                Head& head) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, units = input.units;
  LaneInput<D, kWarp> x;
  x.load(input, lane);
  const int bytes = kStagedRows * D::row_bytes(units);
#pragma unroll 1
  for (int c = 0; c < work.chunks; ++c) {
    head.arrival[c].wait();
    static_assert(kChunkRows == kStagedWarps);
    const int item = thread / kWarp, is_up = item % 2;
    const StagedPlanes planes = staged_planes<D>(stage + (2 * c + is_up) * bytes, kStagedRows, units);
    const float v = x.times(input, planes, item / 2, lane);
    if (lane == 0) head.values[c * kChunkRows + item] = v;
  }
}

template <class D>
__global__ void __launch_bounds__(kStagedThreads, 2) staged_gate_up(const __grid_constant__ StagedGateUpArgs a) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  Head& head = *reinterpret_cast<Head*>(memory);
  const PlanarWeight& w = a.base.gate.w;
  const ExpertIds& experts = a.base.gate.experts;
  const int units = w.k / kUnit, thread = static_cast<int>(threadIdx.x), width = static_cast<int>(w.n);
  const StagedInput input{memory + sizeof(Head), units};
  std::uint8_t* stage = input.memory + staged_input_bytes(w.k);
  Work work;
  work.pair = static_cast<int>(blockIdx.y);
  work.first = static_cast<int>(blockIdx.x) * a.rows_per_block;
  work.rows = min(a.rows_per_block, width - work.first);
  work.chunks = work.rows / kStagedRows;
  if (thread < work.chunks) {
    head.arrival[thread].begin();
    head.arrival[thread].expect(kChunkRows * D::row_bytes(units));
  }
  const bool normed = a.norm.x != nullptr, chooses = a.choice.logits != nullptr;
  NormedRow row;
  if (normed) row.request_weights(a.norm);
  wait_for_previous();
  allow_next();  // not before: the next kernel reads which experts there are
  if (work.pair >= live(a.base.gate.rows)) return;
  if (normed) row.request_values(a.norm);  // before the weights, behind which it would have to wait
  int id = -1;
  if (chooses) {
    rank_experts<kStagedThreads>(a.choice, head.ranking);
    id = head.ranking.id[work.pair];
  } else {
    id = __ldcg(experts.ids + work.pair);
    __syncthreads();  // the barriers are ready; rank_experts() synchronises, too
  }
  if (id < experts.begin || id >= experts.end) return;
  request_chunks<D>(a.base, id, work.first, work.chunks, stage, head);
  if (normed) {  // while the weights are on their way
    row.round(a.norm, a.act, head.shared, input);
  } else {
    input.fill(a.base.gate.x, experts.shared_input ? work.pair / experts.n_used : work.pair);
  }
  __syncthreads();
  multiply_chunks<D>(work, input, stage, head);
  __syncthreads();
  if (thread >= work.rows) return;
  const std::int64_t n = work.first + thread;
  const float g = finish(a.base.gate, head.values[2 * thread], n, id);
  const float u = finish(a.base.up, head.values[2 * thread + 1], n, id);
  a.base.hidden[static_cast<std::int64_t>(work.pair) * width + n] = gated_value(a.base.activation, g, u);
}

int fixed_bytes(int k) {
  return static_cast<int>(sizeof(Head)) + staged_input_bytes(k);
}

template <class D>
int chunk_bytes(int k) {
  return kChunkRows * D::row_bytes(k / kUnit);
}

template <class D>
void launch_of(StagedGateUpArgs args, cudaStream_t stream) {
  const PlanarWeight& w = args.base.gate.w;
  const CardLimits card = card_limits();
  const int pairs = args.base.gate.rows.capacity, chunks = static_cast<int>(w.n) / kStagedRows;
  const int each = (chunks * pairs + card.multiprocessors - 1) / card.multiprocessors;
  const bool at_once = each <= kMostChunks && fixed_bytes(w.k) + each * chunk_bytes<D>(w.k) <= card.staged_bytes;
  const int shared = kSharedStagedBytes / chunk_bytes<D>(w.k);
  const int of_block = at_once ? each : shared < 1 ? 1 : shared < kMostChunks ? shared : kMostChunks;
  args.rows_per_block = of_block * kStagedRows;
  const int bytes = fixed_bytes(w.k) + of_block * chunk_bytes<D>(w.k);
  const dim3 grid(static_cast<unsigned>((chunks + of_block - 1) / of_block), static_cast<unsigned>(pairs));
  const auto kernel = staged_gate_up<D>;
  use_shared_memory(kernel, bytes);
  launch(kernel, grid, kStagedThreads, static_cast<std::size_t>(bytes), stream, args);
}

}  // namespace

bool staged_gate_up_fits(const GateUpArgs& args) {
  int bytes = 0;
  with_decoder(args.kind, [&]<class D>() { bytes = fixed_bytes(args.gate.w.k) + chunk_bytes<D>(args.gate.w.k); });
  return can_stage(args.gate.w) && can_stage(args.up.w) && bytes <= card_limits().staged_bytes;
}

void launch_staged_gate_up(StagedGateUpArgs args, cudaStream_t stream) {
  with_decoder(args.base.kind, [&]<class D>() { launch_of<D>(args, stream); });
}

}  // namespace ggml::cuda
