// Matrix products of every type against the machine's limit: a GEMV's bytes per second as a share of the streaming read
// bandwidth, a GEMM's operations per second as a share of the 8-bit peak. Limit and kernel take turns in one process;
// the share is the median of the pairs' ratios, with the lowest and highest beside it.
//
// A GEMV also tells its rate on weights that stay in the cache (`cached`), and its share of the lower of both limits
// (`of_limit`): a type of few bits per weight is bound by instructions. moe_gemv: one row meets 8 of 128 experts'
// matrices.
//
//   build/bench/cpu_matmul_bench [--isa=NAME] [--threads=N] [--benchmark_filter=gemv/q4_0]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "../../../../bench/shapes.h"
#include "cpu/kernels/kernels.h"
#include "cpu/probe.h"
#include "ggml/quant.h"

namespace ggml::cpu {
namespace {

using tandem::bench::MatShape;
using Clock = std::chrono::steady_clock;

constexpr int kPairs = 7;
constexpr int kDistinctRows = 64;  // encoded once, then repeated: encoding a whole tensor would take minutes

struct Aligned {
  explicit Aligned(std::size_t bytes) : storage(bytes + 64) {}
  std::vector<std::byte> storage;
  [[nodiscard]] std::byte* data() {
    return storage.data() + (64 - reinterpret_cast<std::uintptr_t>(storage.data()) % 64) % 64;
  }
};

struct Setup {
  const KernelTable* table = nullptr;
  int threads = 1;
  std::unique_ptr<ReadProbe> probe;
};
Setup& setup() {
  static Setup value;
  return value;
}

constexpr std::size_t kExperts = 128, kExpertsUsed = 8;
constexpr std::size_t kCachedBytes = 192 << 10;  // of weights per thread: they stay in its second-level cache

enum class Copies : std::uint8_t { one, in_turn, experts };

/// Weights in as many copies as it takes to exceed four times the last-level cache; of experts at least as many as a
/// layer has, met in no order.
class Problem {
 public:
  Problem(DType type, const MatShape& shape, std::int64_t m, Copies copies)
      : type_(type),
        shape_(shape),
        m_(m),
        row_(row_bytes(type, shape.k)),
        copies_(count(copies, row_ * static_cast<std::size_t>(shape.n))),
        step_(copies == Copies::experts ? 37 : 1),  // 37 would have to divide the layers of experts
        weights_(row_ * static_cast<std::size_t>(shape.n) * copies_),
        act_(act_bytes(type_info(type).act, shape.k, m)),
        dst_(static_cast<std::size_t>(m * shape.n)) {
    std::vector<float> x(static_cast<std::size_t>(std::max(shape.k, m * shape.k)));
    std::uint32_t state = 1;
    for (float& v : x) {
      state = state * 1664525u + 1013904223u;
      v = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
    }
    const auto together = static_cast<std::size_t>(type_info(type).rows_per_group);
    std::vector<float> group;
    for (std::size_t r = 0; r < kDistinctRows && r < static_cast<std::size_t>(shape.n); r += together) {
      group.clear();
      for (std::size_t i = 0; i < together; ++i) {
        std::rotate(x.begin(), x.begin() + 7, x.begin() + shape.k);
        group.insert(group.end(), x.begin(), x.begin() + shape.k);
      }
      quantise_rows(type, group, shape.k, {}, weights_.data() + r * row_);
    }
    for (std::size_t r = kDistinctRows; r < static_cast<std::size_t>(shape.n) * copies_; ++r) {
      std::memcpy(weights_.data() + r * row_, weights_.data() + r % kDistinctRows * row_, row_);
    }
    view_ = act_view(type_info(type).act, act_.data(), shape.k, m);
    quantise_act_rows(*setup().table, type_info(type).act, x.data(), shape.k, shape.k, view_, 0, m);
    for (int i = 0; i < setup().threads; ++i) scratch_.push_back(std::make_unique<Aligned>(matmul_scratch_bytes(m)));
  }

  [[nodiscard]] std::size_t weight_bytes() const { return row_ * static_cast<std::size_t>(shape_.n); }
  [[nodiscard]] double ops() const { return 2.0 * static_cast<double>(shape_.n * shape_.k * m_); }
  [[nodiscard]] std::size_t copies() const { return copies_; }

  /// Seconds of `times` products, each with the next copy of the weights; threads share the rows in multiples of 32.
  double run(std::size_t times) {
    const auto start = Clock::now();
    const int threads = setup().threads;
    std::vector<std::thread> pool;
    for (int i = 1; i < threads; ++i) pool.emplace_back([this, i, times] { work(i, times); });
    work(0, times);
    for (std::thread& thread : pool) thread.join();
    next_ = (next_ + times) % copies_;
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  static std::size_t count(Copies copies, std::size_t bytes) {
    if (copies == Copies::one) return 1;
    const std::size_t n = 4 * last_level_cache_bytes() / bytes + 2;
    if (copies == Copies::in_turn) return n;
    return (n + kExperts - 1) / kExperts * kExperts;
  }

  void work(int thread, std::size_t times) {
    const std::int64_t threads = setup().threads;
    const std::int64_t share = (shape_.n / threads + 31) / 32 * 32;
    MatmulArgs args;
    args.weight_row_bytes = static_cast<std::int64_t>(row_);
    args.k = shape_.k;
    args.n0 = std::min(shape_.n, share * thread);
    args.n1 = std::min(shape_.n, share * (thread + 1));
    args.act = view_;
    args.m_rows = m_;
    args.dst = dst_.data();
    args.dst_row_stride = shape_.n;
    args.scratch = scratch_[static_cast<std::size_t>(thread)]->data();
    for (std::size_t t = 0; t < times; ++t) {
      args.weights = weights_.data() + (next_ + t) * step_ % copies_ * weight_bytes();
      setup().table->of(type_).mul_mat(args);
    }
  }

  DType type_;
  MatShape shape_;
  std::int64_t m_;
  std::size_t row_, copies_, step_, next_ = 0;
  Aligned weights_, act_;
  std::vector<float> dst_;
  std::vector<std::unique_ptr<Aligned>> scratch_;
  ActView view_;
};

void report(benchmark::State& state, std::vector<double> rates, std::vector<double> shares, const char* unit,
            double scale) {
  std::sort(rates.begin(), rates.end());
  std::sort(shares.begin(), shares.end());
  state.counters[unit] = rates[rates.size() / 2] * scale;
  state.counters["share"] = shares[shares.size() / 2];
  state.counters["share_min"] = shares.front();
  state.counters["share_max"] = shares.back();
}

/// As many rows as stay in the caches of the threads.
MatShape cached_shape(DType type, const MatShape& shape) {
  const auto rows = static_cast<std::int64_t>(kCachedBytes / row_bytes(type, shape.k)) / 32 * 32;
  return {shape.name, std::max<std::int64_t>(rows, 32) * setup().threads, shape.k};
}

void run_gemv_of(benchmark::State& state, Problem& problem, Problem& cached, std::size_t times) {
  (void)problem.run(1);
  (void)cached.run(1);
  const auto repeats = std::max<std::size_t>(1, times * problem.weight_bytes() / cached.weight_bytes() / 4);
  std::vector<double> rates, shares, cached_rates, of_limit;
  for (auto _ : state) {
    const double before = setup().probe->run(0.1);
    const double seconds = problem.run(times);
    const double rate = static_cast<double>(problem.weight_bytes() * times) / seconds;
    const double bandwidth = 0.5 * (before + setup().probe->run(0.1));
    cached_rates.push_back(static_cast<double>(cached.weight_bytes() * repeats) / cached.run(repeats));
    state.SetIterationTime(seconds / static_cast<double>(times));
    rates.push_back(rate);
    shares.push_back(rate / bandwidth);
    of_limit.push_back(rate / std::min(bandwidth, cached_rates.back()));
  }
  report(state, rates, shares, "GB/s", 1e-9);
  const auto median = [](std::vector<double>& v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
  };
  state.counters["cached"] = median(cached_rates) * 1e-9;
  state.counters["of_limit"] = median(of_limit);
}

void run_gemv(benchmark::State& state, DType type, const MatShape& shape, std::int64_t m) {
  Problem problem(type, shape, m, Copies::in_turn), cached(type, cached_shape(type, shape), m, Copies::one);
  run_gemv_of(state, problem, cached, problem.copies());
}

void run_moe_gemv(benchmark::State& state, DType type, const MatShape& shape, std::int64_t m) {
  Problem problem(type, shape, m, Copies::experts), cached(type, cached_shape(type, shape), m, Copies::one);
  run_gemv_of(state, problem, cached, problem.copies() / kExpertsUsed * kExpertsUsed);
}

void run_gemm(benchmark::State& state, DType type, const MatShape& shape, std::int64_t m) {
  Problem problem(type, shape, m, Copies::one);
  (void)problem.run(1);
  std::vector<double> rates, shares;
  for (auto _ : state) {
    const double limit = int8_peak(*setup().table, setup().threads, 0.02);
    const double seconds = problem.run(1);
    const double after = int8_peak(*setup().table, setup().threads, 0.02);
    state.SetIterationTime(seconds);
    rates.push_back(problem.ops() / seconds);
    shares.push_back(rates.back() / (0.5 * (limit + after)));
  }
  report(state, rates, shares, "GOP/s", 1e-9);
}

void register_all() {
  for (int t = 0; t < kTypeCount; ++t) {
    const auto type = static_cast<DType>(t);
    if (!is_weight_type(type)) continue;
    for (const MatShape& shape : tandem::bench::kShapes) {
      if (shape.k % type_info(type).block_weights != 0) continue;
      const std::string tail = std::string(type_info(type).id) + "/" + shape.name;
      const auto add = [&](const std::string& name, auto run, std::int64_t m) {
        std::string whole = name;
        whole.append("/").append(tail).append("/m").append(std::to_string(m));
        benchmark::RegisterBenchmark(whole.c_str(),
                                     [=, &shape](benchmark::State& state) { run(state, type, shape, m); })
            ->UseManualTime()
            ->Iterations(kPairs)
            ->Unit(benchmark::kMillisecond);
      };
      for (const std::int64_t m : {1, 4}) add("gemv", run_gemv, m);
      if (std::string_view(shape.name).ends_with("_exp")) add("moe_gemv", run_moe_gemv, 1);
      for (const std::int64_t m : {32, 512}) add("gemm", run_gemm, m);
    }
  }
}

/// Takes --isa= and --threads= out of the arguments, as Google Benchmark knows neither.
void take_options(int& argc, char** argv) {
  std::string isa;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--isa=", 0) == 0) {
      isa = arg.substr(6);
    } else if (arg.rfind("--threads=", 0) == 0) {
      setup().threads = std::max(1, std::atoi(arg.c_str() + 10));
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  setup().table = &select_table(isa);
}

}  // namespace
}  // namespace ggml::cpu

int main(int argc, char** argv) {
  ggml::cpu::take_options(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  ggml::cpu::setup().probe =
      std::make_unique<ggml::cpu::ReadProbe>(*ggml::cpu::setup().table, ggml::cpu::setup().threads);
  benchmark::AddCustomContext("isa", ggml::cpu::setup().table->name);
  benchmark::AddCustomContext("threads", std::to_string(ggml::cpu::setup().threads));
  ggml::cpu::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
