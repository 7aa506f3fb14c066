#include <gtest/gtest.h>

#include <cmath>

#include "ggml/error.h"
#include "harness.h"

namespace ggml {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

void expect_near(const Floats& got, const Floats& expected, float tolerance = 1e-6f) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << i;
}

TensorId one(Harness& h, Op op, OpParams params, std::vector<TensorId> src) {
  return h.builder().add(op, params, src, {}, "y").front();
}

TEST(Reference, TouchesRealRowsOnly) {
  Harness h(4);
  const TensorId x = h.input("x", Shape(2, 4), {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(h.run({.n_tokens = 3}, h.builder().add(x, x, "y")), (Floats{2, 4, 6, 8, 10, 12}));
}

TEST(Reference, GetRowsDecodesAndZeroesMissingIds) {
  Harness h(4);
  const TensorId table = h.weight("t", DType::f16, Shape(2, 3), {1, 2, 3, 4, 5, 6});
  const TensorId ids = h.ints("ids", Shape(4), {2, -1, 0, 3});
  EXPECT_EQ(h.run({.n_tokens = 4}, one(h, Op::get_rows, GetRowsParams{}, {table, ids})),
            (Floats{5, 6, 0, 0, 1, 2, 0, 0}));
}

TEST(Reference, SelectsOutputRows) {
  Harness h(4, 2);
  const TensorId x = h.input("x", Shape(2, 4), {1, 2, 3, 4, 5, 6, 7, 8});
  const TensorId ids = h.ints("ids", Shape(2), {2, 0}, Rows::outputs);
  EXPECT_EQ(h.run({.n_tokens = 4, .n_outputs = 1}, h.builder().select_rows(x, ids, "y")), (Floats{5, 6}));
}

TEST(Reference, QuantiseActRoundsToTheForm) {
  Floats block(32, 0.0f);
  block[0] = 127;
  block[1] = 0.4f;
  block[2] = -50.6f;
  Floats q8_0 = block;
  round_activations(ActType::q8_0, q8_0);  // d = 1
  EXPECT_EQ(q8_0[0], 127);
  EXPECT_EQ(q8_0[1], 0);
  EXPECT_EQ(q8_0[2], -51);
  Floats half{1.0f + 1.0f / 4096};
  round_activations(ActType::f16, half);
  EXPECT_EQ(half[0], 1.0f);
  Floats zeros(256, 0.0f);
  round_activations(ActType::q8_k, zeros);
  EXPECT_EQ(zeros, Floats(256, 0.0f));
  Floats super(256, 0.0f);
  super[3] = -127;
  super[4] = 126.6f;
  round_activations(ActType::q8_k, super);
  EXPECT_EQ(super[3], -127);
  EXPECT_EQ(super[4], 127);
}

TEST(Reference, MulMatMultipliesRows) {
  Harness h(2);
  const TensorId w = h.weight("w", DType::f32, Shape(3, 2), {1, 2, 3, -1, 0, 1});
  const TensorId x = h.input("x", Shape(3, 2), {1, 1, 1, 2, 0, 5});
  EXPECT_EQ(h.run({.n_tokens = 2}, one(h, Op::mul_mat, MulMatParams{}, {w, x})), (Floats{6, 0, 17, 3}));
}

TEST(Reference, MulMatIdSkipsForeignExperts) {
  Harness h(2);
  const TensorId w = h.weight("w", DType::f32, Shape(2, 1, 3), {1, 0, 0, 1, 1, 1});
  const TensorId x = h.input("x", Shape(2, 1, 2), {3, 5, 7, 11});
  const TensorId ids = h.ints("ids", Shape(2, 2), {0, 1, 2, -1});
  EXPECT_EQ(h.run({.n_tokens = 2}, one(h, Op::mul_mat_id, MulMatIdParams{}, {w, x, ids})), (Floats{3, 5, 18, 0}));
  EXPECT_EQ(h.run({.n_tokens = 2}, one(h, Op::mul_mat_id, MulMatIdParams{1, 2}, {w, x, ids})), (Floats{0, 5, 0, 0}));
}

TEST(Reference, NormalisesRows) {
  Harness h(1);
  const TensorId x = h.input("x", Shape(2, 1), {3, 4});
  const float rms = std::sqrt(12.5f + 0.5f);
  expect_near(h.run({.n_tokens = 1}, one(h, Op::normalise, NormaliseParams{NormKind::rms, 0.5f}, {x})),
              {3 / rms, 4 / rms});
  const float dev = std::sqrt(0.25f + 0.5f);
  expect_near(h.run({.n_tokens = 1}, one(h, Op::normalise, NormaliseParams{NormKind::layer, 0.5f}, {x})),
              {-0.5f / dev, 0.5f / dev});
  expect_near(h.run({.n_tokens = 1}, one(h, Op::normalise, NormaliseParams{NormKind::l2, 0.5f}, {x})), {0.6f, 0.8f});
  expect_near(h.run({.n_tokens = 1}, one(h, Op::normalise, NormaliseParams{NormKind::l2, 10.0f}, {x})), {0.3f, 0.4f});
}

TEST(Reference, BroadcastsEitherOperand) {
  Harness h(2);
  const TensorId a = h.input("a", Shape(2, 1, 2), {1, 2, 3, 4});
  const TensorId b = h.input("b", Shape(1, 3, 2), {1, 10, 100, 2, 20, 200});
  EXPECT_EQ(h.run({.n_tokens = 2}, h.builder().mul(a, b, "y")),
            (Floats{1, 2, 10, 20, 100, 200, 6, 8, 60, 80, 600, 800}));
  const TensorId v = h.weight("v", DType::f32, Shape(2), {5, 7});
  EXPECT_EQ(h.run({.n_tokens = 2}, h.builder().add(a, v, "z")), (Floats{6, 9, 8, 11}));
}

TEST(Reference, UnaryFormulas) {
  Harness h(1);
  const TensorId x = h.input("x", Shape(3, 1), {-1, 0.5f, 30});
  auto run = [&](UnaryKind kind, Activation act, float a) {
    return h.run({.n_tokens = 1}, h.builder().unary(x, {kind, act, a}, "y"));
  };
  expect_near(run(UnaryKind::scale, Activation::none, 2), {-2, 1, 60});
  expect_near(run(UnaryKind::softcap, Activation::none, 2), {2 * std::tanh(-0.5f), 2 * std::tanh(0.25f), 2});
  expect_near(run(UnaryKind::clamp, Activation::none, 0.75f), {-0.75f, 0.5f, 0.75f});
  expect_near(run(UnaryKind::activation, Activation::silu, 1), {-0.26894143f, 0.31122968f, 30});
  expect_near(run(UnaryKind::activation, Activation::gelu, 1), {-0.15880801f, 0.34571401f, 30});
  expect_near(run(UnaryKind::activation, Activation::relu2, 1), {0, 0.25f, 900});
  expect_near(run(UnaryKind::activation, Activation::sigmoid, 1), {0.26894143f, 0.62245935f, 1});
  expect_near(run(UnaryKind::activation, Activation::softplus, 1), {0.31326166f, 0.97407699f, 30});
}

TEST(Reference, GatedFormulas) {
  Harness h(1);
  const TensorId gate = h.input("gate", Shape(2, 1), {1, 9});
  const TensorId up = h.input("up", Shape(2, 1), {3, -8});
  const TensorId both = h.input("gate_up", Shape(4, 1), {1, 9, 3, -8});
  const float silu1 = 0.73105858f, silu9 = 8.99889f;
  for (const std::vector<TensorId>& src : {std::vector<TensorId>{gate, up}, {both}}) {
    expect_near(h.run({.n_tokens = 1}, one(h, Op::gated, GatedParams{}, src)), {3 * silu1, -8 * silu9}, 1e-4f);
    expect_near(h.run({.n_tokens = 1}, one(h, Op::gated, GatedParams{Activation::silu, 2}, src)), {2 * silu1, -2 * 2},
                1e-5f);
    const float a7 = 7 / (1 + std::exp(-1.702f * 7)), a1 = 1 / (1 + std::exp(-1.702f));
    expect_near(h.run({.n_tokens = 1}, one(h, Op::gated, GatedParams{Activation::swiglu_oai, 0}, src)),
                {a1 * 4, a7 * -6}, 1e-4f);
  }
}

TEST(Reference, RotatesPairsOfBothLayouts) {
  Harness h(1);
  const TensorId x = h.input("x", Shape(5, 1, 1), {1, 2, 3, 4, 5});
  const TensorId pos = h.ints("pos", Shape(1), {3});
  RopeParams p;
  p.n_rot = 4;
  p.base = 100;  // second pair turns at a tenth of the speed
  const float c0 = std::cos(3.0f), s0 = std::sin(3.0f), c1 = std::cos(0.3f), s1 = std::sin(0.3f);
  expect_near(h.run({.n_tokens = 1}, one(h, Op::rotate, p, {pos, x})),
              {c0 - 2 * s0, s0 + 2 * c0, 3 * c1 - 4 * s1, 3 * s1 + 4 * c1, 5});
  p.layout = RopeLayout::neox;
  expect_near(h.run({.n_tokens = 1}, one(h, Op::rotate, p, {pos, x})),
              {c0 - 3 * s0, 2 * c1 - 4 * s1, s0 + 3 * c0, 2 * s1 + 4 * c1, 5});
  p.has_factors = true;
  p.freq_scale = 0.5f;
  p.attn_factor = 2;
  const TensorId factors = h.weight("f", DType::f32, Shape(2), {1.5f, 1});
  const float c = 2 * std::cos(1.0f), s = 2 * std::sin(1.0f), d = 2 * std::cos(0.15f), e = 2 * std::sin(0.15f);
  expect_near(h.run({.n_tokens = 1}, one(h, Op::rotate, p, {pos, factors, x})),
              {c - 3 * s, 2 * d - 4 * e, s + 3 * c, 2 * e + 4 * d, 5});
}

TEST(Reference, YarnMixesInterpolatedAndPlainAngles) {
  Harness h(1);
  const TensorId x = h.input("x", Shape(64, 1, 1), Floats(64, 1.0f));
  const TensorId pos = h.ints("pos", Shape(1), {100});
  RopeParams p;
  p.n_rot = 64;
  p.freq_scale = 0.25f;
  p.ext_factor = 1;
  p.n_ctx_orig = 4096;
  const Floats y = h.run({.n_tokens = 1}, one(h, Op::rotate, p, {pos, x}));
  const double magnitude = 1 + 0.1 * std::log(4.0);
  // The fastest pair keeps its angle, the slowest is interpolated fully.
  EXPECT_NEAR(y[0], magnitude * (std::cos(100.0) - std::sin(100.0)), 1e-5);
  const double slow = 0.25 * 100 * std::pow(10000.0, -62.0 / 64);
  EXPECT_NEAR(y[62], magnitude * (std::cos(slow) - std::sin(slow)), 1e-5);
}

TEST(Reference, SoftmaxAndCopy) {
  Harness h(1);
  const TensorId x = h.input("x", Shape(2, 1), {0, std::log(3.0f)});
  expect_near(h.run({.n_tokens = 1}, one(h, Op::softmax, SoftmaxParams{}, {x})), {0.25f, 0.75f});
  expect_near(h.run({.n_tokens = 1}, one(h, Op::copy, CopyParams{}, {x})), {0, std::log(3.0f)});
}

TEST(Reference, TopKSortsBreaksTiesAndLimitsGroups) {
  Harness h(1);
  const TensorId x = h.input("x", Shape(6, 1), {5, 1, 3, 3, 4, 0});
  EXPECT_EQ(h.run_ints({.n_tokens = 1}, one(h, Op::top_k, TopKParams{4}, {x})), (Ints{0, 4, 2, 3}));
  // Groups of two score 6, 6, 4: the lower of the equal ones wins.
  EXPECT_EQ(h.run_ints({.n_tokens = 1}, one(h, Op::top_k, TopKParams{2, 3, 1}, {x})), (Ints{0, 1}));
  EXPECT_EQ(h.run_ints({.n_tokens = 1}, one(h, Op::top_k, TopKParams{3, 3, 2}, {x})), (Ints{0, 2, 3}));
}

TEST(Reference, GathersInOrderSoftmaxNormaliseScale) {
  Harness h(1);
  const TensorId x = h.input("x", Shape(3, 1), {0.2f, 0.5f, 0.3f});
  const TensorId ids = h.ints("ids", Shape(2, 1), {1, 2});
  auto run = [&](GatherParams p) { return h.run({.n_tokens = 1}, one(h, Op::gather, p, {x, ids})); };
  expect_near(run({}), {0.5f, 0.3f});
  expect_near(run({true, false, 2}), {1.25f, 0.75f});
  const float e = std::exp(0.2f);
  expect_near(run({false, true, 1}), {e / (1 + e), 1 / (1 + e)});
  const TensorId shared = h.weight("w", DType::f32, Shape(3), {7, 8, 9});
  expect_near(h.run({.n_tokens = 1}, one(h, Op::gather, GatherParams{}, {shared, ids})), {8, 9});
}

TEST(Reference, WeightedSumSkipsForeignExperts) {
  Harness h(1);
  const TensorId y = h.input("y", Shape(2, 3, 1), {1, 2, 10, 20, 100, 200});
  const TensorId ids = h.ints("ids", Shape(3, 1), {4, -1, 0});
  const TensorId w = h.input("w", Shape(3, 1), {0.5f, 9, 2});
  EXPECT_EQ(h.run({.n_tokens = 1}, one(h, Op::weighted_sum, WeightedSumParams{}, {y, ids, w})), (Floats{200.5f, 401}));
  EXPECT_EQ(h.run({.n_tokens = 1}, one(h, Op::weighted_sum, WeightedSumParams{0, 4}, {y, ids})), (Floats{100, 200}));
}

TEST(Reference, RefusesUnboundAndSmallPorts) {
  GraphBuilder b(1, 1);
  const TensorId x = b.port(PortId(3), "x", DType::f32, Shape(4), Rows::fixed);
  b.output(b.add(x, x, "y"), PortId(4));
  ReferenceExecutor executor;
  float memory[4] = {};
  const PortBinding small[] = {{PortId(3), memory, 8}, {PortId(4), memory, 16}};
  EXPECT_THROW((void)executor.compile(b.graph(), small, {}), Error);
  const PortBinding missing[] = {{PortId(3), memory, 16}};
  EXPECT_THROW((void)executor.compile(b.graph(), missing, {}), Error);
}

TEST(Reference, StopsBetweenNodes) {
  Harness h(1);
  const TensorId x = h.input("x", Shape(2, 1), {1, 2});
  h.builder().output(h.builder().add(x, x, "y"), PortId(0));
  ReferenceExecutor executor;
  const auto program = executor.compile(h.builder().graph(), h.ports(), {});
  const StopToken stop{[](void*) { return true; }, nullptr};
  EXPECT_THROW(executor.run(*program, {.n_tokens = 1}, stop), Error);
}

}  // namespace
}  // namespace ggml
