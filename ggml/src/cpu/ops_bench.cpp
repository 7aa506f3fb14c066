// Whole ops on the CPU device at the shapes of real models. Decode cases report bytes per second of weights or KV, and
// their share of the streaming read bandwidth; prompt cases operations per second and their share of the 8-bit peak.
// Limit and op take turns in one process; the share is the median of the pairs' ratios, with the lowest and highest
// beside it.
//
//   build/bench/cpu_ops_bench [--isa=NAME] [--threads=N] [--pin] [--benchmark_filter=decode/moe]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "cpu/probe.h"
#include "ggml/cpu.h"
#include "ggml/quant.h"
#include "ggml/threads.h"

namespace ggml::cpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPairs = 7;
constexpr double kMeasuredSeconds = 0.2;    // per pair: decoding is one step after another, not one after a pause
constexpr std::int64_t kDistinctRows = 64;  // encoded once, then repeated: encoding whole tensors would take minutes

struct Setup {
  const KernelTable* table = nullptr;
  int threads = 1;
  bool pin = false;
  std::unique_ptr<ReadProbe> probe;
  std::unique_ptr<Device> device;
};
Setup& setup() {
  static Setup value;
  return value;
}

/// A graph of equal layers with weights of their own, so that no layer finds its weights in the cache.
class Layers {
 public:
  explicit Layers(int rows) : builder_(rows, 1), rows_(rows) {}

  GraphBuilder& graph() { return builder_; }
  [[nodiscard]] int rows() const { return rows_; }

  Slot slot(DType type, const Shape& shape) {
    const std::size_t bytes = row_bytes(type, shape[0]);
    std::unique_ptr<Buffer> memory =
        setup().device->allocate(bytes * static_cast<std::size_t>(shape.rows()), BufferKind::host_pageable);
    std::vector<float> row(static_cast<std::size_t>(shape[0]));
    const std::int64_t distinct = std::min(kDistinctRows, shape.rows());
    for (std::int64_t i = 0; i < shape.rows(); ++i) {
      std::byte* at = memory->data() + static_cast<std::size_t>(i) * bytes;
      if (i >= distinct) {
        std::memcpy(at, memory->data() + static_cast<std::size_t>(i % distinct) * bytes, bytes);
        continue;
      }
      for (float& v : row) v = draw_(random_) / std::sqrt(static_cast<float>(shape[0]));
      quantise_row(type, row, {}, at);
    }
    Weight& w = weights_.emplace_back();
    w.type = type;
    w.shape = shape;
    Placement placement;
    placement.data = memory->data();
    w.placements.push_back(placement);
    memory_.push_back(std::move(memory));
    Slot s;
    s.weight = builder_.weight(w);
    return s;
  }

  TensorId port(DType type, const Shape& shape, Rows rows, const std::function<void(std::byte*)>& fill) {
    const std::size_t bytes = tensor_bytes(type, shape);
    memory_.push_back(setup().device->allocate(bytes, BufferKind::host_pageable));
    fill(memory_.back()->data());
    const PortId id(static_cast<std::int32_t>(ports_.size()));
    ports_.push_back({id, memory_.back()->data(), bytes});
    return builder_.port(id, "port", type, shape, rows);
  }
  TensorId values(const Shape& shape) {
    return port(DType::f32, shape, Rows::tokens, [&](std::byte* at) {
      auto* x = reinterpret_cast<float*>(at);
      for (std::int64_t i = 0; i < shape.elements(); ++i) x[i] = draw_(random_);
    });
  }

  void compile(TensorId result) {
    const Shape shape = builder_.graph().at(result).shape;
    memory_.push_back(setup().device->allocate(tensor_bytes(DType::f32, shape), BufferKind::host_pageable));
    const PortId id(static_cast<std::int32_t>(ports_.size()));
    ports_.push_back({id, memory_.back()->data(), tensor_bytes(DType::f32, shape)});
    builder_.output(result, id);
    executor_ = setup().device->make_executor();
    memory_.push_back(
        setup().device->allocate(executor_->arena_bytes(builder_.graph(), {}), BufferKind::host_pageable));
    program_ = executor_->compile(builder_.graph(), ports_, *memory_.back(), {});
  }
  void step() { executor_->run(*program_, {rows_, 0, 1}, {}); }
  /// Seconds per step, steps following each other. The first one wakes the workers and is not counted.
  double run() {
    step();
    const auto begin = Clock::now();
    for (int steps = 1;; ++steps) {
      step();
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      if (seconds >= kMeasuredSeconds) return seconds / steps;
    }
  }
  std::mt19937& random() { return random_; }

 private:
  GraphBuilder builder_;
  int rows_;
  std::mt19937 random_{1};
  std::normal_distribution<float> draw_;
  std::deque<Weight> weights_;
  std::vector<std::unique_ptr<Buffer>> memory_;
  std::vector<PortBinding> ports_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Program> program_;
};

struct Work {
  double bytes = 0;  // that must be read
  double ops = 0;    // a multiply and an add are two
};

/// x + y: without the sum, values would shrink from layer to layer until they are denormal, and slow for that reason
/// alone.
TensorId residual(Layers& l, TensorId x, TensorId y, int layer) {
  return l.graph().add(x, y, "sum" + std::to_string(layer));
}

/// Layers until their weights pass four last-level caches.
int layers_for(double bytes_per_layer, int rows) {
  if (rows > 1) return 2;
  return 2 + static_cast<int>(4.0 * static_cast<double>(last_level_cache_bytes()) / bytes_per_layer);
}

double slot_bytes(DType type, double k, double n) {
  const TypeInfo& info = type_info(type);
  return k * n / info.block_weights * info.block_bytes;
}

/// Pairs of products: k to n elements and back.
Work build_linear(Layers& l, DType type, std::int64_t k, std::int64_t n) {
  const double bytes = 2 * slot_bytes(type, static_cast<double>(k), static_cast<double>(n));
  const int layers = layers_for(bytes, l.rows());
  TensorId x = l.values(Shape(k, l.rows()));
  for (int i = 0; i < layers; ++i) {
    const TensorId wide = l.graph().linear(x, l.slot(type, Shape(k, n)), "wide" + std::to_string(i));
    x = residual(l, x, l.graph().linear(wide, l.slot(type, Shape(n, k)), "y" + std::to_string(i)), i);
  }
  l.compile(x);
  return {bytes * layers, 4.0 * static_cast<double>(k * n) * l.rows() * layers};
}

Work build_ffn(Layers& l, DType up, DType down, std::int64_t n_embd, std::int64_t width) {
  const auto e = static_cast<double>(n_embd), w = static_cast<double>(width);
  const double bytes = 2 * slot_bytes(up, e, w) + slot_bytes(down, w, e);
  const int n = layers_for(bytes, l.rows());
  TensorId x = l.values(Shape(n_embd, l.rows()));
  for (int i = 0; i < n; ++i) {
    const std::vector<Slot> slots{l.slot(up, Shape(n_embd, width)), l.slot(up, Shape(n_embd, width)),
                                  l.slot(down, Shape(width, n_embd))};
    x = residual(l, x, l.graph().ffn(x, slots, {}, "y" + std::to_string(i)), i);
  }
  l.compile(x);
  return {bytes * n, 6.0 * e * w * l.rows() * n};
}

Work build_moe(Layers& l, DType up, DType down) {
  constexpr std::int64_t kEmbd = 2048, kWidth = 768;
  constexpr int kExperts = 128, kUsed = 8;
  const double bytes = kUsed * (2 * slot_bytes(up, kEmbd, kWidth) + slot_bytes(down, kWidth, kEmbd));
  const int n = layers_for(bytes * 4, l.rows());  // 16 times as much is stored: the experts' choice differs per layer
  TensorId x = l.values(Shape(kEmbd, l.rows()));
  const TensorId weights = l.values(Shape(kUsed, l.rows()));
  for (int i = 0; i < n; ++i) {
    const TensorId ids = l.port(DType::i32, Shape(kUsed, l.rows()), Rows::tokens, [&](std::byte* at) {
      auto* id = reinterpret_cast<std::int32_t*>(at);
      for (int t = 0; t < l.rows(); ++t) {
        const auto first = static_cast<std::int32_t>(l.random()() % kExperts);
        for (int j = 0; j < kUsed; ++j) *id++ = (first + 37 * j) % kExperts;
      }
    });
    const std::vector<Slot> slots{l.slot(up, Shape(kEmbd, kWidth, kExperts)),
                                  l.slot(up, Shape(kEmbd, kWidth, kExperts)),
                                  l.slot(down, Shape(kWidth, kEmbd, kExperts))};
    const MoeFfnParams p{.n_expert = kExperts, .n_used = kUsed};
    x = residual(l, x, l.graph().moe_ffn(x, {ids, weights}, slots, p, "y" + std::to_string(i)), i);
  }
  l.compile(x);
  return {bytes * n, 6.0 * kEmbd * kWidth * kUsed * l.rows() * n};
}

Work build_attention(Layers& l, DType type, int depth) {
  AttentionParams p;
  p.kv = {.k_type = type, .v_type = type, .n_head_kv = 8, .dk = 128, .dv = 128};
  p.n_head = 32;
  p.scale = 0.088f;
  const int blocks = (depth + l.rows() + kKvBlockTokens - 1) / kKvBlockTokens;
  const double bytes = static_cast<double>(p.kv.block_bytes()) * blocks;
  const int n = layers_for(bytes, l.rows());
  const auto words = static_cast<std::int64_t>(p.kv.block_bytes() / 4) * blocks;
  const TensorId q = l.values(Shape(128, 32, l.rows())), k = l.values(Shape(128, 8, l.rows()));
  const TensorId table = l.port(DType::i32, Shape(blocks), Rows::fixed, [&](std::byte* at) {
    for (int i = 0; i < blocks; ++i) reinterpret_cast<std::int32_t*>(at)[i] = i;
  });
  const TensorId spans = l.port(DType::i32, Shape(8, 1), Rows::fixed, [&](std::byte* at) {
    const AttnSpan span{0, l.rows(), depth, 0, 0, -1, -1, -1};
    std::memcpy(at, &span, sizeof span);
  });
  TensorId y;
  for (int i = 0; i < n; ++i) {
    const TensorId pool = l.port(DType::i32, Shape(words), Rows::fixed, [&](std::byte* at) {
      std::memset(at, 0x21, static_cast<std::size_t>(words) * 4);  // about 0.01 as a half; codes of 33
    });
    const TensorId out = l.graph().attention({q, k, k}, {pool, spans, table}, {}, p, "y" + std::to_string(i));
    y = y.valid() ? residual(l, y, out, i) : out;
  }
  l.compile(y);
  return {bytes * n, 4.0 * 128 * 32 * l.rows() * (depth + 0.5 * l.rows()) * n};
}

void report(benchmark::State& state, std::vector<double> rates, std::vector<double> shares, const char* unit) {
  std::sort(rates.begin(), rates.end());
  std::sort(shares.begin(), shares.end());
  state.counters[unit] = rates[rates.size() / 2] * 1e-9;
  state.counters["share"] = shares[shares.size() / 2];
  state.counters["lowest"] = shares.front();
  state.counters["highest"] = shares.back();
}

void run_case(benchmark::State& state, int rows, const std::function<Work(Layers&)>& build) {
  Layers layers(rows);
  const Work work = build(layers);
  const bool decode = rows == 1;
  const auto limit = [&] { return decode ? setup().probe->run(0.1) : int8_peak(*setup().table, setup().threads); };
  std::vector<double> rates, shares;
  for ([[maybe_unused]] auto iteration : state) {
    const double before = limit();
    const double seconds = layers.run();
    const double after = limit();
    state.SetIterationTime(seconds);
    rates.push_back((decode ? work.bytes : work.ops) / seconds);
    shares.push_back(rates.back() / (0.5 * (before + after)));
  }
  report(state, rates, shares, decode ? "GB/s" : "GOP/s");
}

void register_all() {
  struct Case {
    std::string name;
    std::function<Work(Layers&)> build;
  };
  std::vector<Case> cases;
  for (const DType type : {DType::q4_0, DType::q8_0, DType::q4_k, DType::q6_k}) {
    const std::string id(type_info(type).id);
    cases.push_back({"linear/llama3-8b/attn_o/" + id, [=](Layers& l) { return build_linear(l, type, 4096, 4096); }});
    cases.push_back({"linear/llama3-8b/ffn/" + id, [=](Layers& l) { return build_linear(l, type, 4096, 14336); }});
    cases.push_back({"ffn/llama3-8b/" + id, [=](Layers& l) { return build_ffn(l, type, type, 4096, 14336); }});
    cases.push_back({"moe_ffn/qwen3-30b-a3b/" + id, [=](Layers& l) { return build_moe(l, type, type); }});
  }
  for (const DType type : {DType::f16, DType::q8_0}) {
    for (const int depth : {512, 4096, 32768}) {
      cases.push_back({"attention/llama3-8b/" + std::string(type_info(type).id) + "/depth" + std::to_string(depth),
                       [=](Layers& l) { return build_attention(l, type, depth); }});
    }
  }
  for (const int rows : {1, 512}) {
    for (const Case& c : cases) {
      benchmark::RegisterBenchmark(((rows == 1 ? "decode/" : "prompt512/") + c.name).c_str(),
                                   [rows, build = c.build](benchmark::State& state) { run_case(state, rows, build); })
          ->UseManualTime()
          ->Iterations(kPairs)
          ->Unit(benchmark::kMillisecond);
    }
  }
}

/// Takes --isa= and --threads= out of the arguments, as Google Benchmark knows neither.
std::string take_options(int& argc, char** argv) {
  std::string isa;
  int kept = 1;
  setup().threads = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--isa=", 0) == 0) {
      isa = arg.substr(6);
    } else if (arg == "--pin") {
      setup().pin = true;
    } else if (arg.rfind("--threads=", 0) == 0) {
      setup().threads = std::atoi(arg.c_str() + 10);
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  return isa;
}

int run_all(int argc, char** argv) {
  const std::string isa = take_options(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  Setup& s = setup();
  if (s.threads < 1) s.threads = physical_cores();
  s.table = &select_table(isa);
  CpuOptions options;
  options.isa = isa;
  options.n_threads = s.threads;
  options.team.pin_each = true;
  for (int core = 0; s.pin && core < s.threads; ++core) options.team.affinity.push_back(core);
  s.device = make_cpu_device(options);
  s.probe = std::make_unique<ReadProbe>(*s.table, s.threads);
  benchmark::AddCustomContext("isa", s.table->name);
  benchmark::AddCustomContext("threads", std::to_string(s.threads));
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  s.device.reset();
  return 0;
}

}  // namespace
}  // namespace ggml::cpu

int main(int argc, char** argv) {
  return ggml::cpu::run_all(argc, argv);
}
