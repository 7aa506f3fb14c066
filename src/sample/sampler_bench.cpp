// The sampler of one request, token after token: prepare, the chain, collect, accept. Random logits of a normal
// distribution, vocabularies of Llama 3 and Gemma 3.
#include <benchmark/benchmark.h>

#include <random>
#include <string>

#include "ggml/sampler_chain.h"
#include "llama/sampler.h"
#include "sample/test_vocab.h"

namespace {

using llama::SamplingParams;

const llama::Vocab& vocab_of(std::size_t n) {
  static const auto make = [](std::size_t size) {
    std::vector<std::string> words;
    for (std::size_t i = 3; i < size; ++i) words.push_back("w" + std::to_string(i));
    return llama::testing::word_vocab(words);
  };
  static const llama::Vocab small = make(128256), large = make(262144);
  return n == 128256 ? small : large;
}

void chain(benchmark::State& state, const SamplingParams& params) {
  const auto n = static_cast<std::size_t>(state.range(0));
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(n);
  for (float& x : logits) x = normal(random);
  llama::Sampler sampler(params, vocab_of(n), 4096);
  std::vector<llama::Token> prompt;
  prompt.reserve(4096);
  for (int i = 0; i < 4096; ++i) prompt.push_back(static_cast<llama::Token>(3 + (i * i) % 1500));
  sampler.accept_prompt(prompt);
  std::vector<std::byte> scratch(ggml::sampler_scratch_bytes(n));
  std::vector<ggml::SampleAdjust> adjust;
  for (auto _ : state) {
    ggml::SampleRow row;
    adjust.clear();
    sampler.prepare(row, adjust);
    ggml::SampleResult result;
    ggml::run_sampler_chain(row, {logits, adjust, {}}, scratch, result);
    sampler.collect(result);
    sampler.accept(result.token);
  }
}

void open_request(benchmark::State& state, const SamplingParams& params) {
  const llama::Vocab& vocab = vocab_of(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    const llama::Sampler sampler(params, vocab, 4096);
    benchmark::DoNotOptimize(&sampler);
  }
}

SamplingParams with(void (*change)(SamplingParams&)) {
  SamplingParams params;
  params.seed = 1;
  change(params);
  return params;
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  struct Row {
    const char* name;
    SamplingParams params;
  };
  const Row rows[] = {
      {"default", with([](SamplingParams&) {})},
      {"greedy", with([](SamplingParams& p) { p.temperature = 0; })},
      {"penalties", with([](SamplingParams& p) { p.repeat_penalty = 1.1f; })},
      {"dry", with([](SamplingParams& p) { p.dry_multiplier = 0.8f; })},
      {"dry_whole_context", with([](SamplingParams& p) {
         p.dry_multiplier = 0.8f;
         p.dry_penalty_last_n = -1;
       })},
      {"xtc", with([](SamplingParams& p) { p.xtc_probability = 0.5f; })},
      {"xtc_without_cuts", with([](SamplingParams& p) {
         p.samplers = {llama::SamplerKind::xtc, llama::SamplerKind::temperature};
         p.xtc_probability = 0.5f;
       })},
      {"top_n_sigma", with([](SamplingParams& p) { p.top_n_sigma = 1; })},
      {"top_p_alone", with([](SamplingParams& p) { p.samplers = {llama::SamplerKind::top_p}; })},
      {"mirostat_1", with([](SamplingParams& p) { p.mirostat = 1; })},
      {"mirostat_2", with([](SamplingParams& p) { p.mirostat = 2; })},
      {"adaptive_p", with([](SamplingParams& p) {
         p.samplers.push_back(llama::SamplerKind::adaptive_p);
         p.adaptive_target = 0.5f;
       })},
  };
  for (const Row& row : rows) {
    benchmark::RegisterBenchmark(row.name, [&row](benchmark::State& s) { chain(s, row.params); })
        ->Arg(128256)
        ->Arg(262144)
        ->Unit(benchmark::kMicrosecond);
  }
  for (const int i : {0, 3}) {
    benchmark::RegisterBenchmark((std::string("new_request/") + rows[i].name).c_str(),
                                 [&rows, i](benchmark::State& s) { open_request(s, rows[i].params); })
        ->Arg(128256)
        ->Arg(262144)
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
