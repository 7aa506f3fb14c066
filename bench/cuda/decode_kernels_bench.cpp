// What a layer with experts costs per token when its launches follow each other in one graph, and what each launch
// contributes: the chain is timed whole, with single launches left out, and with one kind of launch alone.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda/kernels/single_attention.h"
#include "cuda/kernels/staged_experts.h"
#include "cuda/kernels/staged_products.h"
#include "cuda/ops/plane_kinds.h"
#include "cuda/planes.h"
#include "cuda/resources.h"

namespace ggml::cuda {
namespace {

constexpr int kEmbd = 2048, kHeads = 32, kHeadsKv = 4, kDim = 128, kExperts = 128, kUsed = 8, kWidth = 768;
constexpr int kLayers = 4, kRounds = 12;  // weights of four layers, again and again: more than caches hold

/// Memory of the card with random bytes that are small finite numbers as halves and as floats.
class Random {
 public:
  explicit Random(std::size_t bytes) {
    std::vector<std::uint32_t> words((bytes + 3) / 4);
    std::uint32_t state = 1;
    for (std::uint32_t& w : words) w = (state = state * 1664525u + 1013904223u) & 0x3bff3bffu;
    CUDA_CHECK(cudaMalloc(&p_, words.size() * 4));
    CUDA_CHECK(cudaMemcpy(p_, words.data(), words.size() * 4, cudaMemcpyHostToDevice));
  }
  template <class T>
  explicit Random(const std::vector<T>& values) {
    CUDA_CHECK(cudaMalloc(&p_, values.size() * sizeof(T)));
    CUDA_CHECK(cudaMemcpy(p_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  Random(const Random&) = delete;
  Random& operator=(const Random&) = delete;
  ~Random() { (void)cudaFree(p_); }
  template <class T>
  [[nodiscard]] T* get() const {
    return static_cast<T*>(p_);
  }

 private:
  void* p_ = nullptr;
};

struct Matrix {
  PlaneSpec spec;
  Random planes;
  PlanarWeight w;

  Matrix(DType type, int k, int n, int count = 1)
      : spec(plane_spec(type)), planes(plane_offsets(type, Shape(k, n, count)).total) {
    const PlaneOffsets o = plane_offsets(type, Shape(k, n, count));
    const auto* p = planes.get<std::uint8_t>();
    w = {p + o.codes, p + o.high, p + o.scales, p + o.supers, k, n, 0, n};
  }
};

RowCount fixed_rows(int n) {
  return {nullptr, n, n};
}

struct Layer {
  Matrix q{DType::q4_k, kEmbd, kHeads*kDim}, k{DType::q4_k, kEmbd, kHeadsKv*kDim}, v;
  Matrix out{DType::q4_k, kHeads* kDim, kEmbd};
  Matrix gate{DType::q4_k, kEmbd, kWidth, kExperts}, up{DType::q4_k, kEmbd, kWidth, kExperts}, down;
  Random router{std::size_t{kEmbd} * kExperts * 4}, norms{std::size_t{kEmbd} * 4};
  explicit Layer(DType better) : v(better, kEmbd, kHeadsKv * kDim), down(better, kWidth, kEmbd, kExperts) {}
};

/// Activations of the token and everything else that layers share.
struct Shared {
  KvLayout kv{DType::f16, DType::f16, kHeadsKv, kDim, kDim};
  Random x{kEmbd * 4}, y{kEmbd * 4}, q{kHeads * kDim * 4}, k{kHeadsKv * kDim * 4}, v{kHeadsKv * kDim * 4};
  Random heads{kHeads * kDim * 4}, codes{kHeads * kDim}, d{kHeads * kDim * 4}, s{kHeads * kDim * 4};
  Random logits_out{kExperts * 4}, logits, hidden{kUsed * kWidth * 4};
  Random pool, table, spans, n_spans{std::vector<int>{1}}, positions, frequencies;

  static std::vector<float> random_logits() {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> v(kExperts * kLayers);
    for (float& x : v) x = normal(random);
    return v;
  }
  static std::vector<int> numbers(int n) {
    std::vector<int> v(static_cast<std::size_t>(n));
    std::iota(v.begin(), v.end(), 0);
    return v;
  }
  explicit Shared(int depth)
      : logits(random_logits()),
        pool(kv.block_bytes() * static_cast<std::size_t>(depth / kKvBlockTokens + 1)),
        table(numbers(depth / kKvBlockTokens + 1)),
        spans(std::vector<int>{0, 1, depth, 0, 0, -1, -1, -1}),
        positions(std::vector<int>{depth}),
        frequencies(std::vector<double>(kDim / 2, 0.01)) {}
};

ProductArgs product(const Matrix& m, float* y) {
  ProductArgs a;
  a.w = m.w;
  a.y = y;
  a.y_stride = m.w.n;
  a.rows = fixed_rows(1);
  return a;
}

struct Launch {
  std::string name;
  std::function<void(cudaStream_t)> run;
};

std::vector<Launch> launches_of(const Layer& l, const Shared& s, int number) {
  const RowNorm norm{s.x.get<float>(), l.norms.get<float>(), kEmbd, 1e-6f};
  StagedProducts qkv;
  qkv.norm = norm;
  qkv.products.add(plane_kind(l.q.spec), product(l.q, s.q.get<float>()));
  qkv.products.add(plane_kind(l.k.spec), product(l.k, s.k.get<float>()));
  qkv.products.add(plane_kind(l.v.spec), product(l.v, s.v.get<float>()));
  for (ActType& act : qkv.act) act = ActType::q8_k;

  SingleAttentionArgs attention;
  HeadsArgs& h = attention.heads;
  h.kv.n_head_kv = kHeadsKv;
  h.kv.dk = h.kv.dv = kDim;
  h.kv.block_bytes = static_cast<std::int64_t>(s.kv.block_bytes());
  h.kv.v_values = static_cast<std::int64_t>(s.kv.v_values());
  h.kv.k_head = h.kv.v_head = static_cast<std::int64_t>(KvLayout::head_value_bytes(DType::f16, kDim));
  h.in = {s.pool.get<std::uint8_t>(), s.spans.get<AttnSpan>(), s.table.get<std::int32_t>(), s.n_spans.get<int>()};
  h.q = s.q.get<float>();
  h.k = s.k.get<float>();
  h.v = s.v.get<float>();
  h.q_norm.weight = h.k_norm.weight = l.norms.get<float>();
  h.rotate.positions = s.positions.get<std::int32_t>();
  h.rotate.frequencies = s.frequencies.get<double>();
  h.rotate.n_rot = kDim;
  h.n_head = kHeads;
  h.tokens = fixed_rows(1);
  AttentionArgs& a = attention.attend;
  a.kv = h.kv;
  a.in = h.in;
  a.y = s.heads.get<float>();
  a.n_head = kHeads;
  a.scale = 0.1f;
  a.tokens = fixed_rows(1);
  const QuantisedRows rounded{s.codes.get<std::int8_t>(), s.d.get<float>(), s.s.get<float>()};
  a.rounded = {ActType::q8_k, rounded};

  StagedProducts out;
  out.products.add(plane_kind(l.out.spec), product(l.out, s.y.get<float>()));
  out.products.product[0].x = rounded;
  out.residual = s.x.get<float>();

  RouterArgs router;
  router.norm = norm;
  router.router = l.router.get<float>();
  router.n_expert = kExperts;
  router.logits = s.logits_out.get<float>();

  RouteArgs choice;
  choice.n_expert = kExperts;
  choice.n_used = kUsed;
  choice.normalise = true;
  choice.logits = s.logits.get<float>() + number * kExperts;
  StagedGateUpArgs gate_up;
  gate_up.norm = norm;
  gate_up.choice = choice;
  gate_up.base.kind = plane_kind(l.gate.spec);
  gate_up.base.gate = product(l.gate, nullptr);
  gate_up.base.up = product(l.up, nullptr);
  gate_up.base.gate.rows = gate_up.base.up.rows = fixed_rows(kUsed);
  gate_up.base.gate.experts = gate_up.base.up.experts = {nullptr, kUsed, true, 0, kExperts};
  gate_up.base.hidden = s.hidden.get<float>();
  gate_up.base.activation.act = Activation::silu;

  StagedDownSumArgs down;
  down.choice = choice;
  down.residual = s.x.get<float>();
  down.base.kind = plane_kind(l.down.spec);
  down.base.down = product(l.down, nullptr);
  down.base.down.rows = fixed_rows(kUsed);
  down.base.down.experts = {nullptr, kUsed, false, 0, kExperts};
  down.base.hidden = s.hidden.get<float>();
  down.base.act = ActType::q8_k;
  down.base.y = s.y.get<float>();
  down.base.tokens = fixed_rows(1);
  return {{"norm, q, k, v", [=](cudaStream_t t) { launch_staged_products(qkv, t); }},
          {"attention", [=](cudaStream_t t) { launch_single_attention(attention, t); }},
          {"output, residual", [=](cudaStream_t t) { launch_staged_products(out, t); }},
          {"norm, router", [=](cudaStream_t t) { launch_router(router, t); }},
          {"choice, gate, up", [=](cudaStream_t t) { launch_staged_gate_up(gate_up, t); }},
          {"down, sum, residual", [=](cudaStream_t t) { launch_staged_down_sum(down, t); }}};
}

/// Median microseconds per layer of a graph of all layers, of whose launches only `taken` are made.
double time_of(const std::vector<std::vector<Launch>>& layers, const std::function<bool(std::size_t)>& taken) {
  constexpr int kRepeats = 15;
  const Stream stream;
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  for (int round = 0; round < kRounds; ++round) {
    for (const std::vector<Launch>& layer : layers) {
      for (std::size_t i = 0; i < layer.size(); ++i) {
        if (taken(i)) layer[i].run(stream.get());
      }
    }
  }
  CUDA_CHECK(cudaStreamEndCapture(stream.get(), &graph));
  const GraphExec exec(graph);
  CUDA_CHECK(cudaGraphDestroy(graph));
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int r = 0; r < kRepeats; ++r) {
    CUDA_CHECK(cudaEventRecord(begin, stream.get()));
    CUDA_CHECK(cudaGraphLaunch(exec.get(), stream.get()));
    CUDA_CHECK(cudaEventRecord(end, stream.get()));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms);
  }
  std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
  CUDA_CHECK(cudaEventDestroy(begin));
  CUDA_CHECK(cudaEventDestroy(end));
  return 1e3 * static_cast<double>(times[kRepeats / 2]) / (kLayers * kRounds);
}

void run() {
  std::vector<std::unique_ptr<Layer>> weights;
  weights.reserve(kLayers);
  for (int i = 0; i < kLayers; ++i) weights.push_back(std::make_unique<Layer>(i % 2 == 0 ? DType::q4_k : DType::q6_k));
  for (const int depth : {20, 500, 4000}) {
    const Shared shared(depth);
    std::vector<std::vector<Launch>> layers;
    layers.reserve(kLayers);
    for (int i = 0; i < kLayers; ++i) layers.push_back(launches_of(*weights[static_cast<std::size_t>(i)], shared, i));
    std::vector<double> alone;
    for (std::size_t i = 0; i < layers[0].size(); ++i) {
      alone.push_back(time_of(layers, [i](std::size_t j) { return j == i; }));
      std::printf("  %-20s alone %6.2f us\n", layers[0][i].name.c_str(), alone.back());
    }
    const double whole = time_of(layers, [](std::size_t) { return true; });
    std::printf("depth %d: %.2f us a layer\n", depth, whole);
    for (std::size_t i = 0; i < layers[0].size(); ++i) {
      const double without = time_of(layers, [i](std::size_t j) { return j != i; });
      std::printf("  %-20s adds %6.2f us\n", layers[0][i].name.c_str(), whole - without);
    }
  }
}

}  // namespace
}  // namespace ggml::cuda

int main() {
  (void)std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  ggml::cuda::run();
  return 0;
}
