#pragma once

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/staged_products.h"
#include "cuda/kernels/staged_rows.cuh"
#include "cuda/kernels/vector_product.cuh"

// y = W x for a single row of activations (staged_rows.cuh). A block has some tens of weight rows of one matrix, so
// that there is about one block per multiprocessor; of a large matrix as many rows as let several blocks share one.
namespace ggml::cuda {

struct alignas(128) StagedHead {
  Arrival arrival;
  float shared[kWarp];
};

/// The weight rows of a block.
struct StagedPart {
  int part, first, rows;
  std::uint8_t* stage;
};

template <class D>
__device__ __forceinline__ void request_part(const PlanarWeight& w, const StagedPart& part, Arrival& arrival) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    arrival.begin();
    arrival.expect(part.rows * D::row_bytes(w.k / kUnit));
  }
  __syncwarp();
  request_rows<D>(w, w.first + part.first, part.rows, part.stage, arrival, thread, kStagedThreads);
}

template <class D, int kLanes>
__device__ __forceinline__ void multiply_part(const StagedProducts& a, const StagedPart& part, const StagedInput& input,
                                              bool rehearsal) {
  constexpr int kGroups = kStagedThreads / kLanes;
  const ProductArgs& product = a.products.product[part.part];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes, last = part.rows - 1;
  LaneInput<D, kLanes> x;
  x.load(input, lane);
  const StagedPlanes planes = staged_planes<D>(part.stage, part.rows, input.units);
  const bool adds = a.residual != nullptr && part.part == 0;
#pragma unroll 1
  for (int begin = 0; begin < (rehearsal ? 1 : part.rows); begin += kGroups) {
    const int r = begin + thread / kLanes;
    const bool writes = lane == 0 && r <= last && !rehearsal;
    const std::int64_t n = part.first + r;
    const float residual = adds && writes ? a.residual[n] : 0.0f;
    const float sum = x.times(input, planes, min(r, last), lane);
    if (!writes) continue;
    const float y = finish(product, sum, n, 0);
    product.y[n] = adds ? y + residual : y;
  }
}

template <int kLanes>
__global__ void __launch_bounds__(kStagedThreads, 2) staged_products(const __grid_constant__ StagedProducts a) {
  extern __shared__ __align__(128) std::uint8_t staged_memory[];
  allow_next();
  StagedHead& head = *reinterpret_cast<StagedHead*>(staged_memory);
  StagedPart part{};
#pragma unroll
  for (int i = 1; i < kMaxProducts; ++i) {
    part.part += i < a.products.n && static_cast<int>(blockIdx.x) >= a.products.first_block[i] ? 1 : 0;
  }
  const ProductArgs& product = a.products.product[part.part];
  const PlanarWeight& w = product.w;
  const StagedInput input{staged_memory + sizeof(StagedHead), w.k / kUnit};
  const int most = a.rows_per_block[part.part];
  part.first = (static_cast<int>(blockIdx.x) - a.products.first_block[part.part]) * most;
  part.rows = min(most, static_cast<int>(w.n) - part.first);
  part.stage = input.memory + staged_input_bytes(w.k);
  const PlaneKind kind = a.products.kind[part.part];
  with_decoder(kind, [&]<class D>() { request_part<D>(w, part, head.arrival); });
  const bool normed = a.norm.x != nullptr;
  NormedRow row;
  if (normed) row.request_weights(a.norm);
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
    if (pass == 1) wait_for_previous();
    if (normed) {
      row.request_values(a.norm);
      row.round(a.norm, a.act[part.part], head.shared, input);
    } else {
      __syncthreads();
      input.fill(product.x, 0);
    }
    __syncthreads();
    head.arrival.wait();
    with_decoder(kind, [&]<class D>() { multiply_part<D, kLanes>(a, part, input, pass == 0); });
  }
}

template <int kLanes>
void launch_staged_products_of(const StagedProducts& args, unsigned blocks, int bytes, cudaStream_t stream) {
  use_shared_memory(staged_products<kLanes>, bytes);
  launch(staged_products<kLanes>, blocks, kStagedThreads, static_cast<std::size_t>(bytes), stream, args);
}

}  // namespace ggml::cuda
