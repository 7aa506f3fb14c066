// What a parallel region, a barrier and a chunk cost: the fixed price of each node of a step.
//
//   build/bench/threads_bench
#include <benchmark/benchmark.h>

#include <algorithm>

#include "ggml/threads.h"

namespace ggml {
namespace {

constexpr int kPerRegion = 1000;

void region(benchmark::State& state) {
  ThreadPool pool({.n_threads = static_cast<int>(state.range(0))});
  auto body = [](Team&) noexcept {};
  for ([[maybe_unused]] auto iteration : state) pool.parallel(pool.size(), body);
}

void barrier(benchmark::State& state) {
  ThreadPool pool({.n_threads = static_cast<int>(state.range(0))});
  auto body = [](Team& team) noexcept {
    for (int i = 0; i < kPerRegion; ++i) team.barrier();
  };
  for ([[maybe_unused]] auto iteration : state) pool.parallel(pool.size(), body);
  state.SetItemsProcessed(state.iterations() * kPerRegion);
}

void chunk(benchmark::State& state) {
  ThreadPool pool({.n_threads = static_cast<int>(state.range(0))});
  auto body = [](Team& team) noexcept {
    team.for_chunks(kPerRegion * team.size(), 1,
                    [](std::int64_t begin, std::int64_t) { benchmark::DoNotOptimize(begin); });
  };
  for ([[maybe_unused]] auto iteration : state) pool.parallel(pool.size(), body);
  state.SetItemsProcessed(state.iterations() * kPerRegion * state.range(0));
}

void for_each_size(benchmark::internal::Benchmark* b) {
  const int cores = physical_cores();
  for (int n = 1; n < cores; n *= 2) b->Arg(n);
  b->Arg(cores)->UseRealTime();
}

BENCHMARK(region)->Apply(for_each_size);
BENCHMARK(barrier)->Apply(for_each_size);
BENCHMARK(chunk)->Apply(for_each_size);

}  // namespace
}  // namespace ggml

BENCHMARK_MAIN();
