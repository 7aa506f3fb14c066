// Speeds of the prompt kernels alone: products in TOP/s, attention in TFLOP/s (causal: what is visible).
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "cuda/check.h"
#include "cuda/kernels/latent_attention.h"
#include "cuda/kernels/prompt_attention.h"
#include "cuda/kernels/selection.h"
#include "cuda/ops/heads.h"
#include "cuda/ops/plane_kinds.h"
#include "cuda/ops/projection.h"

namespace ggml::cuda {
namespace {

/// Memory of the card with random bytes that are small finite numbers as halves and as floats.
template <class T>
class Random {
 public:
  explicit Random(std::size_t n) {
    std::vector<std::uint32_t> words((n * sizeof(T) + 3) / 4);
    std::mt19937 random(1);
    for (std::uint32_t& w : words) w = random() & 0x3bff3bffu;
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&p_), words.size() * 4));
    CUDA_CHECK(cudaMemcpy(p_, words.data(), words.size() * 4, cudaMemcpyHostToDevice));
  }
  explicit Random(const std::vector<T>& values) {
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&p_), values.size() * sizeof(T)));
    CUDA_CHECK(cudaMemcpy(p_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  Random(const Random&) = delete;
  Random& operator=(const Random&) = delete;
  ~Random() { (void)cudaFree(p_); }
  [[nodiscard]] T* get() const { return p_; }

 private:
  T* p_ = nullptr;
};

/// Median of the time of one launch, in seconds.
double time_of(const std::function<void(cudaStream_t)>& launch) {
  constexpr int kRepeats = 5, kLaunches = 10;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaStreamCreate(&stream));
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  launch(stream);
  std::vector<float> times;
  for (int r = 0; r < kRepeats; ++r) {
    CUDA_CHECK(cudaEventRecord(begin, stream));
    for (int i = 0; i < kLaunches; ++i) launch(stream);
    CUDA_CHECK(cudaEventRecord(end, stream));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms / kLaunches);
  }
  std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
  CUDA_CHECK(cudaEventDestroy(begin));
  CUDA_CHECK(cudaEventDestroy(end));
  CUDA_CHECK(cudaStreamDestroy(stream));
  return 1e-3 * static_cast<double>(times[kRepeats / 2]);
}

RowCount fixed_rows(int n) {
  return {nullptr, n, n};
}

struct Matrix {
  PlaneSpec spec;
  Random<std::uint8_t> planes;
  PlanarWeight w;

  Matrix(DType type, int k, int n, int count)
      : spec(plane_spec(type)), planes(plane_offsets(type, Shape(k, n, count)).total) {
    const PlaneOffsets o = plane_offsets(type, Shape(k, n, count));
    w = {planes.get() + o.codes, planes.get() + o.high, planes.get() + o.scales, planes.get() + o.supers, k, n, 0, n};
  }
};

void bench_product(DType type, int k, int n, int rows) {
  const Matrix matrix(type, k, n, 1);
  const std::size_t cells = static_cast<std::size_t>(rows) * static_cast<std::size_t>(k);
  const Random<std::int8_t> q(cells);
  const Random<float> d(cells / kUnit), s(cells / 16), y(static_cast<std::size_t>(rows) * static_cast<std::size_t>(n));
  ProductArgs args;
  args.w = matrix.w;
  args.x = {q.get(), d.get(), s.get()};
  args.y = y.get();
  args.y_stride = n;
  args.rows = fixed_rows(rows);
  const double t = time_of([&](cudaStream_t stream) {
    with_planes(matrix.spec, [&]<int kBits, ScaleForm kForm, int kCenter>() {
      launch_tile_product<kBits, kForm, kCenter>(args, stream);
    });
  });
  std::printf("product %-6s %5d x %5d, %5d rows: %8.1f us %7.1f TOP/s\n", type_info(type).id.data(), k, n, rows,
              1e6 * t, 2e-12 * static_cast<double>(cells) * n / t);
}

/// Tokens choose n_used of n_expert matrices at random.
void bench_experts(DType type, int k, int n, int tokens, int tile) {
  constexpr int kExperts = 128, kUsed = 8;
  const Matrix matrix(type, k, n, kExperts);
  const int pairs = tokens * kUsed;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(pairs));
  std::mt19937 random(2);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % kExperts);
  const Random<std::int32_t> device_ids(ids);
  const std::size_t cells = static_cast<std::size_t>(pairs) * static_cast<std::size_t>(k);
  const Random<std::int8_t> q(cells);
  const Random<float> d(cells / kUnit), s(cells / 16), y(static_cast<std::size_t>(pairs) * static_cast<std::size_t>(n));
  const int capacity = tiles_for(pairs, kExperts, tile);
  const auto count = static_cast<std::size_t>(capacity);
  const Random<std::int32_t> sorted(static_cast<std::size_t>(pairs)), expert(count), first(count), size(count);
  SortArgs sort;
  sort.ids = device_ids.get();
  sort.n_expert = sort.end = kExperts;
  sort.pairs = fixed_rows(pairs);
  sort.sorted = sorted.get();
  sort.tile_expert = expert.get();
  sort.tile_first = first.get();
  sort.tile_count = size.get();
  sort.tile_capacity = capacity;
  sort.tile_rows = tile;
  const double sort_time = time_of([&](cudaStream_t stream) { launch_sort_by_expert(sort, stream); });
  ProductArgs args;
  args.w = matrix.w;
  args.x = {q.get(), d.get(), s.get()};
  args.y = y.get();
  args.y_stride = n;
  args.rows = fixed_rows(pairs);
  args.experts = {device_ids.get(), kUsed, false, 0, kExperts};
  const ExpertTiles tiles{sorted.get(), expert.get(), first.get(), size.get(), capacity, tile};
  const double t = time_of([&](cudaStream_t stream) {
    with_planes(matrix.spec, [&]<int kBits, ScaleForm kForm, int kCenter>() {
      launch_expert_tiles<kBits, kForm, kCenter>(args, tiles, stream);
    });
  });
  std::printf("experts %-6s %5d x %5d, %5d tokens, tiles of %3d: %8.1f us %7.1f TOP/s; sort %.1f us\n",
              type_info(type).id.data(), k, n, tokens, tile, 1e6 * t, 2e-12 * static_cast<double>(cells) * n / t,
              1e6 * sort_time);
}

void bench_router(int k, int n, int rows) {
  const Random<float> w(static_cast<std::size_t>(k) * static_cast<std::size_t>(n)),
      x(static_cast<std::size_t>(k) * static_cast<std::size_t>(rows)),
      y(static_cast<std::size_t>(n) * static_cast<std::size_t>(rows));
  ProductArgs args;
  args.w.codes = reinterpret_cast<const std::uint8_t*>(w.get());
  args.w.k = k;
  args.w.n = n;
  args.x_float = x.get();
  args.y = y.get();
  args.y_stride = n;
  args.rows = fixed_rows(rows);
  const double t = time_of([&](cudaStream_t stream) { launch_float_tile_product(FloatKind::f32, args, stream); });
  std::printf("product F32    %5d x %5d, %5d rows: %8.1f us %7.1f TFLOP/s\n", k, n, rows, 1e6 * t,
              2e-12 * k * static_cast<double>(n) * rows / t);
}

/// Query heads over key heads; v_of_k > 0: values are the first so many elements of the keys.
struct Heads {
  int n, n_kv, dim;
  int v_of_k = 0;
};

/// One sequence of rows behind `depth` cells.
void bench_attention(DType type, const Heads& heads, int rows, int depth, bool few_rows = false) {
  AttentionParams p;
  p.kv = {type, type, heads.n_kv, heads.dim, heads.v_of_k > 0 ? 0 : heads.dim};
  p.v_of_k = heads.v_of_k;
  const int blocks = (depth + rows + kKvBlockTokens - 1) / kKvBlockTokens;
  const Random<std::uint8_t> pool(p.kv.block_bytes() * static_cast<std::size_t>(blocks));
  std::vector<std::int32_t> table(static_cast<std::size_t>(blocks));
  std::iota(table.begin(), table.end(), 0);
  const Random<std::int32_t> device_table(table), spans(std::vector<std::int32_t>{0, rows, depth, 0, 0, -1, -1, -1}),
      n_spans(std::vector<std::int32_t>{1});
  AttentionArgs a;
  a.kv = planes_read(p);
  const std::size_t vectors = static_cast<std::size_t>(rows) * static_cast<std::size_t>(heads.n);
  const Random<float> q(vectors * static_cast<std::size_t>(a.kv.dk)), y(vectors * static_cast<std::size_t>(a.kv.dv));
  a.in = {pool.get(), reinterpret_cast<const AttnSpan*>(spans.get()), device_table.get(), n_spans.get()};
  a.q = q.get();
  a.y = y.get();
  a.n_head = heads.n;
  a.scale = 0.1f;
  a.tokens = fixed_rows(rows);
  int multiprocessors = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  const int group = heads.n / heads.n_kv;
  const bool latents = !few_rows && heads.v_of_k > 0;
  a.n_splits = few_rows  ? few_rows_attention_splits(a.kv, rows, group, multiprocessors)
               : latents ? latent_attention_splits(rows, heads.n, heads.n_kv, multiprocessors)
                         : prompt_attention_splits(rows, heads.n, heads.n_kv, multiprocessors);
  const Random<float> partial(vectors * static_cast<std::size_t>((a.kv.dv + 2) * a.n_splits));
  const Random<std::int32_t> arrived(
      std::vector<std::int32_t>(static_cast<std::size_t>(few_rows_attention_counters(a.kv, rows, group)), 0));
  a.partial = partial.get();
  a.arrived = arrived.get();
  const double t = time_of([&](cudaStream_t stream) {
    few_rows  ? launch_few_rows_attention(a, stream)
    : latents ? launch_latent_attention(a, 1, stream)
              : launch_prompt_attention(a, 1, stream);
  });
  const double seen = rows * (depth + 0.5 * (rows + 1));
  const double bytes = static_cast<double>(p.kv.block_bytes()) / kKvBlockTokens * (depth + rows);
  std::printf("attention %-6s %d/%d heads of %d, %5d rows at %5d, %2d splits: %8.1f us %7.1f TFLOP/s %6.0f GB/s\n",
              type_info(type).id.data(), heads.n, heads.n_kv, heads.dim, rows, depth, a.n_splits, 1e6 * t,
              2e-12 * heads.n * (a.kv.dk + a.kv.dv) * seen / t, 1e-9 * bytes / t);
}

/// Every type of cache in a prompt and for single tokens, and latents.
void run_cache_types() {
  const Heads qwen{32, 4, 128}, latents{16, 1, 576, 512};
  for (int i = 0; i < kTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    if (!type_info(type).kv_capable) continue;
    if (type != DType::f32) bench_attention(type, qwen, 512, 1536);
    bench_attention(type, qwen, 1, 8192, true);
  }
  bench_attention(DType::f32, qwen, 512, 1536, true);
  for (const DType type : {DType::f16, DType::q8_0}) {
    bench_attention(type, latents, 1, 8192, true);
    bench_attention(type, latents, 512, 1536, true);
  }
  for (const int depth : {0, 1536}) bench_attention(DType::f16, latents, 512, depth);
  bench_attention(DType::f16, latents, 2048, 0);
  bench_attention(DType::f16, latents, 32, 8192);
}

void run() {
  for (const DType type : {DType::q4_k, DType::q6_k, DType::q8_0, DType::q4_0}) {
    for (const int rows : {512, 2048}) bench_product(type, 2048, 4096, rows);
  }
  bench_product(DType::q4_k, 2048, 512, 512);
  bench_product(DType::q4_k, 4096, 14336, 2048);
  for (const DType type : {DType::q4_k, DType::q6_k}) {
    for (const int tokens : {512, 2048}) {
      for (const int tile : {64, 128}) bench_experts(type, type == DType::q4_k ? 2048 : 768, 768, tokens, tile);
    }
  }
  bench_router(2048, 128, 512);
  const Heads qwen{32, 4, 128};
  for (const int depth : {0, 1536, 8192}) bench_attention(DType::f16, qwen, 512, depth);
  bench_attention(DType::f16, qwen, 2048, 0);
  bench_attention(DType::f16, {32, 8, 128}, 2048, 2048);
  bench_attention(DType::f16, qwen, 64, 4096);
  bench_attention(DType::f16, {8, 4, 256}, 512, 1536);
  run_cache_types();
}

}  // namespace
}  // namespace ggml::cuda

int main() {
  (void)std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  ggml::cuda::run();
  return 0;
}
