#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "cpu/test_bed.h"

namespace ggml::cpu::test {
namespace {

constexpr int kTokens = 64;
constexpr int kSlots = 6;

/// first row, rows, slot read, slot written, slot for the state before the last row.
std::vector<std::int32_t> spans_of(const std::vector<std::array<std::int32_t, 5>>& list) {
  std::vector<std::int32_t> spans;
  for (const auto& s : list) spans.insert(spans.end(), {s[0], s[1], 0, 0, 0, s[2], s[3], s[4]});
  spans.resize(8 * 6, -1);
  return spans;
}

std::vector<std::int32_t> words(const std::vector<float>& values) {
  std::vector<std::int32_t> bits;
  bits.reserve(values.size());
  for (const float v : values) bits.push_back(std::bit_cast<std::int32_t>(v));
  return bits;
}

std::vector<float> floats(const std::vector<std::int32_t>& bits) {
  std::vector<float> values;
  values.reserve(bits.size());
  for (const std::int32_t v : bits) values.push_back(std::bit_cast<float>(v));
  return values;
}

// A fresh sequence, one that goes on from a slot to another with a state kept before its last row, one in place that is
// shorter than the filter.
const std::vector<std::int32_t> kSpans = spans_of({{0, 20, -1, 0, 3}, {20, 9, 1, 4, 5}, {29, 2, 2, 2, -1}});
constexpr StepCounts kCounts{31, 0, 3};

void expect_states(const Outcome& got, const Outcome& want, std::int64_t slot, const std::string& what) {
  const std::vector<float> a = floats(got.words.at("state")), b = floats(want.words.at("state"));
  expect_close(a, b, slot, slot * kSlots, {.row = 2e-5}, what + " state");
}

TEST(Conv1d, MatchesTheReferenceAndKeepsTheSameState) {
  for (const Activation act : {Activation::none, Activation::silu}) {
    constexpr std::int64_t kChannels = 300;
    TestBed bed(kTokens, 1, 5);
    Conv1dParams p;
    p.kernel = 4;
    p.act = act;
    p.state = {.slot_floats = 3 * kChannels + 40, .offset = 40};
    const TensorId x = bed.random_input("x", Shape(kChannels, kTokens), Rows::tokens);
    const TensorId state = bed.state("state", words(bed.normal(p.state.slot_floats * kSlots, 1.0f)));
    const TensorId spans = bed.input("spans", Shape(8, 6), Rows::fixed, kSpans);
    const Slot filters{.weight = bed.weight_id(DType::f32, Shape(4, kChannels), 0.5f), .bias = {}, .scale = {}};
    bed.output(bed.graph().conv1d(x, {state, spans}, filters, p, "y"), "y");
    const Outcome want = bed.run_reference(kCounts);
    for (const std::string& isa : isa_names()) {
      const Outcome got = bed.run_cpu(kCounts, {.isa = isa, .n_threads = 3});
      expect_close(got.values.at("y"), want.values.at("y"), kChannels, kChannels * 31, {.row = 1e-5}, isa);
      EXPECT_EQ(got.words.at("state"), want.words.at("state")) << isa;
    }
  }
}

TEST(DeltaNet, MatchesItsDecompositionAndKeepsTheSameState) {
  for (const bool tiled : {false, true}) {
    constexpr int kDim = 32, kKeys = 2, kValues = 6;
    TestBed bed(kTokens, 1, 7);
    DeltaNetParams p;
    p.head_dim = kDim;
    p.n_head_k = kKeys;
    p.n_head_v = kValues;
    p.tiled = tiled;
    p.state = {.slot_floats = kDim * kDim * kValues + 16, .offset = 16};
    const TensorId qkv = bed.random_input("qkv", Shape(kDim * (2 * kKeys + kValues), kTokens), Rows::tokens);
    const TensorId beta = bed.random_input("beta", Shape(kValues, kTokens), Rows::tokens);
    const TensorId alpha = bed.random_input("alpha", Shape(kValues, kTokens), Rows::tokens);
    const TensorId state = bed.state("state", words(bed.normal(p.state.slot_floats * kSlots, 0.3f)));
    const TensorId spans = bed.input("spans", Shape(8, 6), Rows::fixed, kSpans);
    // Decays are negative: a sum that shrinks.
    std::vector<float> decay = bed.normal(kValues, 1.0f);
    for (float& v : decay) v = -std::fabs(v);
    const Weight& a = bed.weight_of(DType::f32, Shape(kValues), decay);
    const Slot slot{
        .weight = bed.graph().weight(a), .bias = bed.weight_id(DType::f32, Shape(kValues), 1.0f), .scale = {}};
    bed.output(bed.graph().delta_net({qkv, beta, alpha}, {state, spans}, slot, p, "y"), "y");
    const Outcome want = bed.run_reference(kCounts);
    for (const std::string& isa : isa_names())
      for (const bool primitives : {false, true}) {
        const Outcome got = bed.run_cpu(kCounts, {.isa = isa, .n_threads = 3, .decompose_all = primitives});
        const std::string what = isa + (primitives ? " primitives" : " native") + (tiled ? " tiled" : " grouped");
        expect_close(got.values.at("y"), want.values.at("y"), kDim * kValues, kDim * kValues * 31, {.row = 2e-5}, what);
        expect_states(got, want, p.state.slot_floats, what);
      }
  }
}

/// A prompt of more than one chunk, and ends of every length behind whole ones; decays from none to all.
TEST(DeltaNet, TakesTheRowsOfPromptsInChunks) {
  for (const int dim : {32, 64, 128}) {
    constexpr int kKeys = 1, kValues = 2, kMostTokens = 160;
    TestBed bed(kMostTokens, 1, static_cast<unsigned>(dim));
    DeltaNetParams p;
    p.head_dim = dim;
    p.n_head_k = kKeys;
    p.n_head_v = kValues;
    p.state = {.slot_floats = std::int64_t{dim} * dim * kValues, .offset = 0};
    const TensorId qkv =
        bed.random_input("qkv", Shape(std::int64_t{dim} * (2 * kKeys + kValues), kMostTokens), Rows::tokens);
    const TensorId beta = bed.random_input("beta", Shape(kValues, kMostTokens), Rows::tokens);
    const TensorId alpha = bed.random_input("alpha", Shape(kValues, kMostTokens), Rows::tokens);
    const TensorId state = bed.state("state", words(bed.normal(p.state.slot_floats * kSlots, 0.3f)));
    const TensorId spans =
        bed.input("spans", Shape(8, 6), Rows::fixed,
                  spans_of({{0, 79, -1, 0, 3}, {79, 46, 1, 4, 5}, {125, 33, 2, 2, -1}, {158, 2, -1, 1, -1}}));
    const Slot slot{.weight = bed.graph().weight(bed.weight_of(DType::f32, Shape(kValues), {-0.01f, -8.0f})),
                    .bias = bed.weight_id(DType::f32, Shape(kValues), 1.0f),
                    .scale = {}};
    bed.output(bed.graph().delta_net({qkv, beta, alpha}, {state, spans}, slot, p, "y"), "y");
    const StepCounts counts{160, 0, 4};
    const Outcome want = bed.run_reference(counts);
    for (const std::string& isa : isa_names()) {
      const Outcome got = bed.run_cpu(counts, {.isa = isa, .n_threads = 2});
      const std::string what = isa + " " + std::to_string(dim);
      expect_close(got.values.at("y"), want.values.at("y"), std::int64_t{dim} * kValues,
                   std::int64_t{dim} * kValues * 160, {.row = 2e-5}, what);
      expect_states(got, want, p.state.slot_floats, what);
    }
  }
}

TEST(Pool, GivesOneRowPerSpan) {
  for (const PoolKind kind : {PoolKind::mean, PoolKind::first, PoolKind::last}) {
    TestBed bed(kTokens, 6, 9);
    const TensorId x = bed.random_input("x", Shape(40, kTokens), Rows::tokens);
    const TensorId spans = bed.input("spans", Shape(8, 6), Rows::fixed, kSpans);
    bed.output(bed.graph().pool(x, spans, {kind}, "y"), "y");
    const StepCounts counts{31, 3, 3};
    const Outcome want = bed.run_reference(counts);
    const Outcome got = bed.run_cpu(counts, {.n_threads = 2});
    expect_close(got.values.at("y"), want.values.at("y"), 40, 40 * 3, {.row = 1e-6}, "pool");
  }
}

}  // namespace
}  // namespace ggml::cpu::test
