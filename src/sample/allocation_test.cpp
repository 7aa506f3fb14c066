// No token costs an allocation: operator new of this program counts while a request runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ggml/sampler_chain.h"
#include "llama/sampler.h"
#include "sample/test_vocab.h"

namespace {
std::atomic<std::size_t> g_allocations{0};

void* counted(std::size_t size, std::size_t alignment) {
  ++g_allocations;
  // aligned_alloc wants whole multiples.
  void* p = std::aligned_alloc(alignment, (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

// The array and nothrow forms of the library call these. Inlined into a sanitised caller, GCC would take half of a pair
// for the other half of another.
[[gnu::noinline]] void* operator new(std::size_t size) {
  return counted(size, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t /*size*/) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t /*alignment*/) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  std::free(p);
}

namespace llama {
namespace {

constexpr std::size_t kVocab = 2000;

const Vocab& vocab() {
  static const Vocab made = [] {
    std::vector<std::string> words;
    for (std::size_t i = 3; i < kVocab; ++i) words.push_back("w" + std::to_string(i));
    return testing::word_vocab(words);
  }();
  return made;
}

/// Allows every second token, as a grammar might.
class EverySecond final : public TokenMask {
 public:
  bool fill(std::span<std::uint32_t> words) override {
    std::fill(words.begin(), words.end(), 0x55555555u);
    return true;
  }
  void accept(Token /*token*/) override {}
};

/// Allocations of `n_tokens` tokens of one request, from the second on: the first may size the buffers of the step.
std::size_t allocations(const SamplingParams& params, TokenMask* mask, int n_tokens) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kVocab);
  Sampler sampler(params, vocab(), 4096);
  sampler.set_mask(mask);
  std::vector<Token> prompt(300);
  std::iota(prompt.begin(), prompt.end(), 3);
  sampler.accept_prompt(prompt);
  std::vector<std::byte> scratch(ggml::sampler_scratch_bytes(kVocab));
  std::vector<ggml::SampleAdjust> adjust;
  adjust.reserve(kVocab);
  std::vector<std::uint32_t> words((kVocab + 31) / 32);
  ggml::SampleResult result;
  std::size_t before = 0;
  for (int i = 0; i < n_tokens; ++i) {
    if (i == 1) before = g_allocations;
    for (float& x : logits) x = normal(random);
    ggml::SampleRow row;
    adjust.clear();
    sampler.prepare(row, adjust);
    const bool masked = sampler.fill_mask(words, adjust);
    const std::span<const std::uint32_t> allowed = masked ? words : std::span<const std::uint32_t>();
    ggml::run_sampler_chain(row, {logits, adjust, allowed}, scratch, result);
    sampler.collect(result);
    sampler.accept(result.token);
  }
  return g_allocations - before;
}

TEST(SamplerAllocations, TheCounterCounts) {
  const std::size_t before = g_allocations;
  const std::vector<int> made(100);
  EXPECT_EQ(g_allocations - before, 1u);
  EXPECT_EQ(made.size(), 100u);
}

TEST(SamplerAllocations, TheDefaultChainMakesNone) {
  EXPECT_EQ(allocations({}, nullptr, 500), 0u);
}

TEST(SamplerAllocations, AMaskMakesNone) {
  EverySecond mask;
  SamplingParams params;
  params.ignore_eos = true;
  EXPECT_EQ(allocations(params, &mask, 500), 0u);
}

TEST(SamplerAllocations, PenaltiesAndDryOfTheUsualWindowsMakeNone) {
  SamplingParams params;
  params.repeat_penalty = 1.1f;
  params.frequency_penalty = 0.1f;
  params.dry_multiplier = 0.8f;
  EXPECT_EQ(allocations(params, nullptr, 500), 0u);
}

TEST(SamplerAllocations, EveryOtherSamplerMakesNone) {
  SamplingParams params;
  params.samplers = {SamplerKind::top_n_sigma, SamplerKind::tail_free, SamplerKind::typical_p,
                     SamplerKind::top_p,       SamplerKind::min_p,     SamplerKind::xtc,
                     SamplerKind::temperature, SamplerKind::adaptive_p};
  params.top_n_sigma = 2;
  params.tfs_z = 0.95f;
  params.typical_p = 0.9f;
  params.xtc_probability = 0.5f;
  params.dynatemp_range = 0.3f;
  params.adaptive_target = 0.4f;
  params.n_probs = 10;
  EXPECT_EQ(allocations(params, nullptr, 500), 0u);
  for (const int mirostat : {1, 2}) {
    SamplingParams miro;
    miro.mirostat = mirostat;
    EXPECT_EQ(allocations(miro, nullptr, 500), 0u) << "mirostat " << mirostat;
  }
}

}  // namespace
}  // namespace llama
