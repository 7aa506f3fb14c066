#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "ggml/gguf.h"
#include "llama/vocab.h"
#include "test_vocab.h"

// Throughput of text to tokens in MB/s. With a file as first argument its vocabulary is measured, else a small made-up
// one:
//   vocab_bench llama3.gguf --benchmark_filter=...

namespace {

std::string sample(std::size_t bytes) {
  constexpr std::string_view kPart =
      "The router picks eight experts of one hundred and twenty-eight, and the server streams what they say. In 2024 "
      "we "
      "measured 38.6 GB/s on two cores; it wasn't enough.\n\n"
      "```cpp\nfor (std::size_t i = 0; i < tokens.size(); ++i) {\n    out.push_back(vocab.piece(tokens[i]));\n}\n```\n"
      "Съешь же ещё этих мягких французских булок, да выпей чаю. Größe, façade, naïve.\n"
      "这个模型把文字切成词元，然后逐个预测下一个词元。 日本語のテキストも少し。\n";
  std::string text;
  while (text.size() < bytes) text += kPart;
  return text;
}

void tokenize(benchmark::State& state, const llama::Vocab& vocab, const std::string& text) {
  std::size_t n = 0;
  for (auto _ : state) {
    const auto tokens = vocab.tokenize(text, {.parse_special = true});
    n = tokens.size();
    benchmark::DoNotOptimize(tokens.data());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(text.size()));
  state.counters["tokens"] = static_cast<double>(n);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const llama::Vocab vocab =
      argc > 1
          ? llama::Vocab::load(ggml::gguf::File::open(argv[1]).metadata(), argv[1])
          : llama::Vocab::load(llama::testing::bpe_metadata(llama::testing::some_merges(), "llama-bpe"), "built-in");
  const std::string text = sample(1 << 20);
  const std::string word(1 << 20, 'a');
  const std::string spaces(1 << 20, ' ');
  benchmark::RegisterBenchmark("prose_code_scripts", [&](benchmark::State& s) { tokenize(s, vocab, text); });
  benchmark::RegisterBenchmark("one_word", [&](benchmark::State& s) { tokenize(s, vocab, word); });
  benchmark::RegisterBenchmark("spaces", [&](benchmark::State& s) { tokenize(s, vocab, spaces); });
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
