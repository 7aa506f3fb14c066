// Cost of a grammar per token: filling the mask and accepting the token, in microseconds of processor time, over random
// answers.
//
//   grammar_bench MODEL.gguf
//
// Each schema is compiled and warmed up once; then answers are drawn at random under the mask, and every token is
// timed. The answers are others than any that the warm-up has seen.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "common/grammar/grammar_builder.h"
#include "common/grammar/grammar_mask.h"
#include "common/grammar/mask_engine.h"
#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "llama/vocab.h"

namespace {

/// Processor time of this thread: on a shared machine the wall clock shows when others had their turn.
struct Clock {
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<Clock, duration>;
  static time_point now() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return time_point(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
  }
};
using Json = nlohmann::ordered_json;

constexpr int kTokens = 20'000;
constexpr int kMaxAnswerTokens = 400;
constexpr int kWarmUpMs = 10'000;

double microseconds(Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

Json enum_schema() {
  Json values = Json::array();
  std::mt19937 random(1);
  static const char* const kWords[] = {"red",  "green", "north", "south", "alpha",
                                       "beta", "small", "large", "first", "last"};
  for (int i = 0; i < 200; ++i)
    values.push_back(std::string(kWords[random() % 10]) + "_" + kWords[random() % 10] + "_" + std::to_string(i));
  return {{"enum", values}};
}

Json nested_schema(int depth) {
  if (depth == 0) return {{"type", "string"}};
  return {{"type", "object"},
          {"properties",
           {{"name", {{"type", "string"}}}, {"count", {{"type", "integer"}}}, {"child", nested_schema(depth - 1)}}},
          {"required", {"name", "count", "child"}}};
}

Json any_of_schema() {
  return Json::parse(R"({"type":"array","items":{"anyOf":[
    {"type":"object","properties":{"kind":{"const":"circle"},"radius":{"type":"number"},"label":{"type":"string"}},"required":["kind","radius"]},
    {"type":"object","properties":{"kind":{"const":"square"},"side":{"type":"number"},"tags":{"type":"array","items":{"type":"string"}}},"required":["kind","side"]},
    {"type":"object","properties":{"kind":{"const":"text"},"text":{"type":"string","maxLength":40},"bold":{"type":"boolean"}},"required":["kind","text"]},
    {"type":"null"}]}})");
}

Json pattern_schema() {
  return Json::parse(R"({"type":"object","properties":{
    "id":{"type":"string","pattern":"^[A-Z]{2,4}-[0-9]{3,8}(-[a-z0-9]{1,12})?$"},
    "email":{"type":"string","pattern":"^[a-zA-Z0-9._]+@[a-z0-9]+\\.(com|org|net)$"},
    "created":{"type":"string","format":"date-time"}},"required":["id","email","created"]})");
}

Json tree_schema() {
  return Json::parse(R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{
    "name":{"type":"string"},"value":{"anyOf":[{"type":"integer"},{"type":"null"}]},
    "children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["name","value","children"]}}})");
}

/// One token of the mask at random; like a model that prefers to go on, it ends only when it must or with one in eight.
llama::Token draw(const std::vector<std::uint32_t>& words, const llama::Vocab& vocab, std::mt19937& random) {
  std::vector<llama::Token> allowed;
  for (std::size_t w = 0; w < words.size(); ++w) {
    for (std::uint32_t bits = words[w]; bits != 0; bits &= bits - 1)
      allowed.push_back(static_cast<llama::Token>(w * 32) + __builtin_ctz(bits));
  }
  if (allowed.empty()) return llama::kNoToken;
  // Half of the time a token that holds punctuation, so that the structure is walked and not only long strings.
  if (random() % 2 == 0) {
    for (int tries = 0; tries < 200; ++tries) {
      const llama::Token token = allowed[random() % allowed.size()];
      if (vocab.piece(token, llama::SpecialText::show).find_first_of("\"{}[],:") != std::string_view::npos)
        return token;
    }
  }
  return allowed[random() % allowed.size()];
}

void measure(const char* name, const Json& schema, const std::shared_ptr<const common::grammar::GrammarVocab>& shared) {
  using namespace common::grammar;
  const llama::Vocab& vocab = shared->vocab();
  const Clock::time_point start = Clock::now();
  const auto compiled = std::make_shared<const CompiledGrammar>(Grammar::parse(schema_to_gbnf(schema), &vocab), shared);
  const double compile_ms = microseconds(Clock::now() - start) / 1000;
  const Clock::time_point warm = Clock::now();
  compiled->warm_up(kWarmUpMs);
  const double warm_ms = microseconds(Clock::now() - warm) / 1000;

  std::mt19937 random(7);
  std::vector<double> times;
  std::vector<std::uint32_t> words((static_cast<std::size_t>(vocab.n_tokens()) + 31) / 32);
  int answers = 0;
  while (times.size() < kTokens) {
    GrammarMask mask(compiled);
    ++answers;
    for (int n = 0; n < kMaxAnswerTokens && times.size() < kTokens; ++n) {
      const Clock::time_point before = Clock::now();
      (void)mask.fill(words);
      const Clock::time_point filled = Clock::now();
      const llama::Token token = draw(words, vocab, random);
      if (token == llama::kNoToken) {
        std::printf("%s: %s\n", name, mask.failure().c_str());
        return;
      }
      const Clock::time_point chosen = Clock::now();
      mask.accept(token);
      times.push_back(microseconds(filled - before) + microseconds(Clock::now() - chosen));
      if (vocab.is_eog(token)) break;
    }
  }
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
  };
  const MaskEngine::Size size = [&] {
    const std::lock_guard lock(compiled->engine().mutex());
    return compiled->engine().size();
  }();
  std::printf("%-22s %8.1f %9.1f %8.2f %8.2f %8.2f %9.2f %7d %7zu %7zu %7.1f\n", name, compile_ms, warm_ms, at(0.5),
              at(0.99), at(0.999), times.back(), answers, size.states, size.parts,
              static_cast<double>(size.bytes) / 1048576.0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: grammar_bench MODEL.gguf\n");
    return 2;
  }
  try {
    const llama::Vocab vocab = llama::Vocab::load(ggml::gguf::File::open(argv[1]).metadata(), argv[1]);
    const Clock::time_point start = Clock::now();
    const auto shared = std::make_shared<const common::grammar::GrammarVocab>(vocab);
    std::printf("%d tokens, trie made in %.1f ms\n", vocab.n_tokens(), microseconds(Clock::now() - start) / 1000);
    std::printf("%-22s %8s %9s %8s %8s %8s %9s %7s %7s %7s %7s\n", "schema", "parse ms", "warm ms", "p50 us", "p99 us",
                "p99.9 us", "worst us", "answers", "states", "parts", "MiB");
    measure("enum of 200 strings", enum_schema(), shared);
    measure("object, depth 6", nested_schema(6), shared);
    measure("array of anyOf", any_of_schema(), shared);
    measure("pattern + date-time", pattern_schema(), shared);
    measure("recursive tree", tree_schema(), shared);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
