#include <benchmark/benchmark.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "ggml/gguf.h"
#include "llama/vocab.h"
#include "test_vocab.h"

// Throughput of text to tokens in MB/s. With a GGUF file as first argument its vocabulary is measured, else a small
// made-up one:
//   vocab_bench MODEL.gguf --benchmark_filter=...

namespace {

std::string repeated(std::string_view part, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

std::string sample(std::size_t bytes) {
  constexpr std::string_view kPart =
      "The router picks eight experts of one hundred and twenty-eight, and the server streams what they say. In 2024 "
      "we "
      "measured 38.6 GB/s on two cores; it wasn't enough.\n\n"
      "```cpp\nfor (std::size_t i = 0; i < tokens.size(); ++i) {\n    out.push_back(vocab.piece(tokens[i]));\n}\n```\n"
      "Съешь же ещё этих мягких французских булок, да выпей чаю. Größe, façade, naïve.\n"
      "这个模型把文字切成词元，然后逐个预测下一个词元。 日本語のテキストも少し。\n";
  return repeated(kPart, bytes);
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
  std::optional<llama::Vocab> loaded;
  try {
    loaded = argc > 1 ? llama::Vocab::load(ggml::gguf::File::open(argv[1]).metadata(), argv[1])
                      : llama::Vocab::load(llama::testing::bpe_metadata(llama::testing::some_merges(), "llama-bpe"),
                                           "built-in");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  const llama::Vocab& vocab = *loaded;
  const std::string text = sample(1 << 20);
  const std::string word(1 << 20, 'a');
  const std::string spaces(1 << 20, ' ');
  const std::string emoji = repeated("😀", 1 << 20);
  const auto add = [&](const char* name, const std::string& input) {
    benchmark::RegisterBenchmark(name, [&vocab, &input](benchmark::State& s) {
      tokenize(s, vocab, input);
    })->Unit(benchmark::kMillisecond);
  };
  add("prose_code_scripts", text);
  add("one_word", word);
  add("spaces", spaces);
  add("emoji", emoji);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
