#include <gtest/gtest.h>

#include <random>

#include "ggml/error.h"
#include "harness.h"

namespace ggml {
namespace {

using Floats = std::vector<float>;

/// Quarters from -1 to 1: sums of their products are exact in f32.
Floats quarters(std::int64_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  Floats values(static_cast<std::size_t>(n));
  for (float& v : values) v = static_cast<float>(static_cast<int>(random() % 9) - 4) / 4.0f;
  return values;
}

/// A matrix [K, N(, experts)] in two forms: with an adapter beside it, and with the adapter's product added to it.
struct Adapted {
  Slot beside, merged;
};

class SlotAdapters : public ::testing::Test {
 protected:
  static constexpr int kTokens = 3, kRank = 2;

  /// Each row has the factor 0.5, which `merged` has in its values.
  Adapted matrix(const Shape& shape) {
    const std::int64_t k = shape[0], n = shape[1], stack = shape[2];
    Floats w = quarters(shape.elements(), ++seed_);
    const Floats a = quarters(k * kRank * stack, ++seed_), b = quarters(kRank * n * stack, ++seed_);
    Adapted slots;
    slots.beside = h.slot(DType::f32, shape, w);
    slots.beside.adapters.push_back({h.weight("a", DType::f32, Shape(k, kRank, stack), a),
                                     h.weight("b", DType::f32, Shape(kRank, n, stack), b), factors});
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    for (std::int64_t e = 0; e < stack; ++e)
      for (std::int64_t row = 0; row < n; ++row)
        for (std::int64_t col = 0; col < k; ++col)
          for (std::int64_t r = 0; r < kRank; ++r)
            w[at((e * n + row) * k + col)] +=
                0.5f * a[at((e * kRank + r) * k + col)] * b[at((e * n + row) * kRank + r)];
    slots.merged = h.slot(DType::f32, shape, w);
    return slots;
  }

  Floats run(TensorId y) { return h.run({.n_tokens = kTokens}, y); }
  static void expect_near(const Floats& got, const Floats& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5f) << i;
  }
  template <class F>
  static std::string refusal(F&& f) {
    try {
      f();
    } catch (const Error& error) {
      return error.message();
    }
    return {};
  }

  Harness h{kTokens};
  TensorId factors = h.input("factors", Shape(1, kTokens), {0.5f, 0.5f, 0.5f});

 private:
  std::uint32_t seed_ = 0;
};

TEST_F(SlotAdapters, AreAddedBehindTheScaleAndInFrontOfTheBiasByTheFactorOfEachRow) {
  const TensorId x = h.input("x", Shape(2, kTokens), {1, 2, 1, 2, 3, 0});
  Slot w = h.slot(DType::f32, Shape(2, 2), {1, 1, 3, 4});
  w.bias = h.weight("bias", DType::f32, Shape(2), {100, 200});
  w.scale = h.weight("scale", DType::f32, Shape(1), {2});
  const auto pair = [&](const Floats& a, const Floats& b, const Floats& scales) {
    w.adapters.push_back({h.weight("a", DType::f32, Shape(2, 1), a), h.weight("b", DType::f32, Shape(1, 2), b),
                          h.input("scales", Shape(1, kTokens), scales)});
  };
  pair({1, 0}, {10, 20}, {0.5f, 0, -1});
  pair({0, 1}, {1, 0}, {1, 1, 0});
  EXPECT_EQ(run(h.builder().linear(x, w, "y")),
            (Floats{106 + 5 + 2, 222 + 10, 106 + 2, 222, 2 * 3 + 100 - 30, 2 * 9 + 200 - 60}));
}

TEST_F(SlotAdapters, OfATableAreLookedUpWithItsRows) {
  Slot table = h.slot(DType::f32, Shape(2, 3), {1, 2, 3, 4, 5, 6});
  table.adapters.push_back({h.weight("a", DType::f32, Shape(1, 3), {1, 2, 3}),
                            h.weight("b", DType::f32, Shape(1, 2), {10, 100}),
                            h.input("scales", Shape(1, kTokens), {1, 0, -1})});
  const TensorId ids = h.ints("ids", Shape(kTokens), {2, 0, 1});
  EXPECT_EQ(run(h.builder().embed(ids, table, {0.5f}, "y")), (Floats{17.5f, 153, 0.5f, 1, -8.5f, -98}));
}

TEST_F(SlotAdapters, OfQueriesKeysAndValuesEqualMergedMatricesFusedOrNot) {
  const TensorId x = h.input("x", Shape(8, kTokens), quarters(8 * kTokens, 90));
  const Adapted q = matrix(Shape(8, 8)), k = matrix(Shape(8, 4)), v = matrix(Shape(8, 4)), all = matrix(Shape(8, 16));
  QkvParams p{2, 1, 4, 4};
  const auto same = [&](const std::vector<Slot>& beside, const std::vector<Slot>& merged) {
    const auto a = h.builder().qkv(x, beside, p, "a"), b = h.builder().qkv(x, merged, p, "b");
    expect_near(run(a.q), run(b.q));
    expect_near(run(a.k), run(b.k));
    expect_near(run(a.v), run(b.v));
  };
  same({q.beside, k.beside, v.beside}, {q.merged, k.merged, v.merged});
  p.fused = true;
  same({all.beside}, {all.merged});
}

TEST_F(SlotAdapters, OfFeedForwardsEqualMergedMatricesFusedOrNot) {
  const TensorId x = h.input("x", Shape(8, kTokens), quarters(8 * kTokens, 91));
  const Adapted gate = matrix(Shape(8, 6)), up = matrix(Shape(8, 6)), down = matrix(Shape(6, 8)),
                both = matrix(Shape(8, 12));
  const auto same = [&](const std::vector<Slot>& beside, const std::vector<Slot>& merged, const FfnParams& p) {
    expect_near(run(h.builder().ffn(x, beside, p, "a")), run(h.builder().ffn(x, merged, p, "b")));
  };
  same({gate.beside, up.beside, down.beside}, {gate.merged, up.merged, down.merged}, {});
  same({both.beside, down.beside}, {both.merged, down.merged}, {Activation::silu, true, true});
}

TEST_F(SlotAdapters, OfExpertsAreThoseOfTheChosenExpert) {
  constexpr int kExperts = 4, kUsed = 2;
  const TensorId x = h.input("x", Shape(8, kTokens), quarters(8 * kTokens, 92));
  const TensorId ids = h.ints("ids", Shape(kUsed, kTokens), {3, 0, 1, -1, 2, 3});
  const TensorId weights = h.input("weights", Shape(kUsed, kTokens), {0.75f, 0.25f, 1, 9, 0.5f, 0.5f});
  const Adapted gate = matrix(Shape(8, 6, kExperts)), up = matrix(Shape(8, 6, kExperts)),
                down = matrix(Shape(6, 8, kExperts)), both = matrix(Shape(8, 12, kExperts));
  MoeFfnParams p;
  p.n_expert = kExperts;
  p.n_used = kUsed;
  const auto same = [&](const std::vector<Slot>& beside, const std::vector<Slot>& merged) {
    expect_near(run(h.builder().moe_ffn(x, {ids, weights}, beside, p, "a")),
                run(h.builder().moe_ffn(x, {ids, weights}, merged, p, "b")));
  };
  same({gate.beside, up.beside, down.beside}, {gate.merged, up.merged, down.merged});
  // On a device that has some of the experts only, and where the weight is on the input.
  p.expert_begin = 1;
  p.expert_end = 3;
  same({gate.beside, up.beside, down.beside}, {gate.merged, up.merged, down.merged});
  p = {.n_expert = kExperts, .n_used = kUsed, .weight_on_input = true};
  same({gate.beside, up.beside, down.beside}, {gate.merged, up.merged, down.merged});
  p = {.n_expert = kExperts, .n_used = kUsed, .fused_gate_up = true};
  same({both.beside, down.beside}, {both.merged, down.merged});
}

TEST_F(SlotAdapters, OfARouterMoveItsChoice) {
  const TensorId x = h.input("x", Shape(1, kTokens), {1, 1, 1});
  Slot router = h.slot(DType::f32, Shape(1, 3), {0, 2, 1});
  router.adapters.push_back({h.weight("a", DType::f32, Shape(1, 1), {1}),
                             h.weight("b", DType::f32, Shape(1, 3), {4, 0, 0}),
                             h.input("scales", Shape(1, kTokens), {0, 1, 0.375f})});
  MoeRouteParams p;
  p.n_expert = 3;
  p.n_used = 1;
  const auto r = h.builder().moe_route(x, {&router, 1}, p, "r");
  EXPECT_EQ(h.run_ints({.n_tokens = kTokens}, r.ids), (std::vector<std::int32_t>{1, 0, 1}));
}

TEST_F(SlotAdapters, ThatDoNotFitAreRefusedBeforeTheGraphIsMade) {
  const TensorId x = h.input("x", Shape(8, kTokens), quarters(8 * kTokens, 93));
  const auto with = [&](const Shape& a, const Shape& b, TensorId scales) {
    Slot slot = h.slot(DType::f32, Shape(8, 4), quarters(32, 94));
    slot.adapters.push_back({h.weight("a", DType::f32, a, quarters(a.elements(), 95)),
                             h.weight("b", DType::f32, b, quarters(b.elements(), 96)), scales});
    return slot;
  };
  const auto message = [&](const Slot& slot) { return refusal([&] { (void)h.builder().linear(x, slot, "out-1"); }); };
  EXPECT_EQ(message(with(Shape(8, 2), Shape(2, 4), factors)), "");
  EXPECT_NE(message(with(Shape(6, 2), Shape(2, 4), factors)).find("out-1: adapter of slot weight is 6 x 2"),
            std::string::npos);
  EXPECT_NE(message(with(Shape(8, 3), Shape(2, 4), factors)).find("is 8 x 3"), std::string::npos);
  EXPECT_NE(message(with(Shape(8, 2), Shape(2, 5), factors)).find("is 2 x 5"), std::string::npos);
  const TensorId wide = h.input("wide", Shape(2, kTokens), Floats(2 * kTokens, 1.0f));
  EXPECT_NE(message(with(Shape(8, 2), Shape(2, 4), wide)).find("expected 1 x rows"), std::string::npos);
  Slot norm = h.slot(DType::f32, Shape(8), quarters(8, 97));
  norm.adapters = with(Shape(8, 2), Shape(2, 4), factors).adapters;
  EXPECT_NE(refusal([&] { (void)h.builder().norm(x, norm, {}, "norm-1"); }).find("take no adapters"),
            std::string::npos);
}

}  // namespace
}  // namespace ggml
