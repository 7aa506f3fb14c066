#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <random>

#include "ggml/sample_row.h"
#include "harness.h"

namespace ggml {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

void expect_near(const Floats& got, const Floats& expected, float tolerance = 1e-5f) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << i;
}

Floats random_values(std::int64_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(static_cast<std::size_t>(n));
  for (float& x : values) x = normal(random);
  return values;
}

TEST(CoarseOps, EmbedScalesRows) {
  Harness h(2);
  const Slot table = h.slot(DType::f32, Shape(2, 3), {1, 2, 3, 4, 5, 6});
  const TensorId ids = h.ints("ids", Shape(2), {2, 0});
  EXPECT_EQ(h.run({.n_tokens = 2}, h.builder().embed(ids, table, {0.5f}, "y")), (Floats{2.5f, 3, 0.5f, 1}));
}

TEST(CoarseOps, NormAddsResidualWeightAndBias) {
  Harness h(1);
  const TensorId x = h.input("x", Shape(2, 1), {1, 1}), r = h.input("r", Shape(2, 1), {2, 3});
  Slot w = h.slot(DType::f32, Shape(2), {10, 100});
  w.bias = h.weight("bias", DType::f32, Shape(2), {1, 2});
  const auto both = h.builder().add_norm(x, r, w, {NormKind::rms, 0.0f, true}, "y");
  const float rms = std::sqrt(12.5f);
  expect_near(h.run({.n_tokens = 1}, both.normed), {30 / rms + 1, 400 / rms + 2}, 1e-4f);
  expect_near(h.run({.n_tokens = 1}, both.sum), {3, 4});
}

TEST(CoarseOps, LinearScalesBeforeTheBias) {
  Harness h(1);
  const TensorId x = h.input("x", Shape(2, 1), {1, 2});
  Slot w = h.slot(DType::f32, Shape(2, 2), {1, 1, 3, 4});
  w.bias = h.weight("bias", DType::f32, Shape(2), {100, 200});
  w.scale = h.weight("scale", DType::f32, Shape(1), {2});
  expect_near(h.run({.n_tokens = 1}, h.builder().linear(x, w, "y")), {106, 222});
}

TEST(CoarseOps, FusedAndSeparateQkvAgree) {
  Harness h(3);
  const Floats wq = random_values(32 * 16, 1), wk = random_values(32 * 8, 2), wv = random_values(32 * 8, 3);
  Floats all = wq;
  all.insert(all.end(), wk.begin(), wk.end());
  all.insert(all.end(), wv.begin(), wv.end());
  Floats bias = random_values(32, 4);
  const TensorId x = h.input("x", Shape(32, 3), random_values(96, 5));
  const Slot norms[] = {h.slot(DType::f32, Shape(4), {1, 2, 3, 4}), h.slot(DType::f32, Shape(4), {4, 3, 2, 1})};
  std::vector<Slot> separate{h.slot(DType::q8_0, Shape(32, 16), wq), h.slot(DType::q8_0, Shape(32, 8), wk),
                             h.slot(DType::q8_0, Shape(32, 8), wv), norms[0], norms[1]};
  std::vector<Slot> fused{h.slot(DType::q8_0, Shape(32, 32), all), norms[0], norms[1]};
  fused[0].bias = h.weight("b", DType::f32, Shape(32), bias);
  separate[0].bias = h.weight("bq", DType::f32, Shape(16), {bias.begin(), bias.begin() + 16});
  separate[1].bias = h.weight("bk", DType::f32, Shape(8), {bias.begin() + 16, bias.begin() + 24});
  separate[2].bias = h.weight("bv", DType::f32, Shape(8), {bias.begin() + 24, bias.end()});
  QkvParams p{4, 2, 4, 4, false, true};
  p.clamp = 3;
  const auto a = h.builder().qkv(x, separate, p, "a");
  p.fused = true;
  const auto b = h.builder().qkv(x, fused, p, "b");
  EXPECT_EQ(h.run({.n_tokens = 2}, a.q), h.run({.n_tokens = 2}, b.q));
  EXPECT_EQ(h.run({.n_tokens = 2}, a.k), h.run({.n_tokens = 2}, b.k));
  const Floats v = h.run({.n_tokens = 2}, a.v);
  EXPECT_EQ(v, h.run({.n_tokens = 2}, b.v));
  for (float value : v) EXPECT_LE(std::fabs(value), 3);
}

TEST(CoarseOps, QkNormsRunPerHeadOrOverTheRow) {
  Harness h(1);
  const TensorId x = h.input("x", Shape(1, 1), {1});
  const Slot q = h.slot(DType::f32, Shape(1, 4), {3, 4, 6, 8}), k = h.slot(DType::f32, Shape(1, 2), {3, 4});
  const Slot per_head = h.slot(DType::f32, Shape(2), {1, 2}), full = h.slot(DType::f32, Shape(4), {1, 1, 1, 2});
  QkvParams p{2, 1, 2, 2, false, true, false, 0.0f};
  const float rms = std::sqrt(12.5f);
  const Slot heads[] = {q, k, k, per_head, per_head};
  expect_near(h.run({.n_tokens = 1}, h.builder().qkv(x, heads, p, "a").q), {3 / rms, 8 / rms, 3 / rms, 8 / rms});
  p.norm_full_row = true;
  const Slot row[] = {q, k, k, full, per_head};
  const float row_rms = std::sqrt(125.0f / 4);
  expect_near(h.run({.n_tokens = 1}, h.builder().qkv(x, row, p, "b").q),
              {3 / row_rms, 4 / row_rms, 6 / row_rms, 16 / row_rms});
}

TEST(CoarseOps, FfnFormsAgreeWithHandValues) {
  Harness h(1);
  const TensorId x = h.input("x", Shape(1, 1), {1});
  const Slot gate = h.slot(DType::f32, Shape(1, 2), {1, 2}), up = h.slot(DType::f32, Shape(1, 2), {3, 4});
  const Slot both = h.slot(DType::f32, Shape(1, 4), {1, 2, 3, 4}), down = h.slot(DType::f32, Shape(2, 1), {1, 10});
  const float silu1 = 0.73105858f, silu2 = 1.76159416f;
  const Floats expected{3 * silu1 + 40 * silu2};
  const Slot separate[] = {gate, up, down}, fused[] = {both, down}, plain[] = {up, down};
  expect_near(h.run({.n_tokens = 1}, h.builder().ffn(x, separate, {}, "a")), expected);
  expect_near(h.run({.n_tokens = 1}, h.builder().ffn(x, fused, {Activation::silu, true, true}, "b")), expected);
  expect_near(h.run({.n_tokens = 1}, h.builder().ffn(x, plain, {Activation::relu2, false}, "c")), {9 + 160});
}

MoeRouteParams route_params(Gating gating) {
  MoeRouteParams p;
  p.n_expert = 3;
  p.n_used = 2;
  p.gating = gating;
  return p;
}

TEST(CoarseOps, RoutesByEveryGating) {
  Harness h(1);
  const TensorId x = h.input("x", Shape(1, 1), {1});
  const Slot router = h.slot(DType::f32, Shape(1, 3), {0, std::log(3.0f), std::log(2.0f)});
  auto run = [&](MoeRouteParams p) {
    const auto r = h.builder().moe_route(x, {&router, 1}, p, "r");
    EXPECT_EQ(h.run_ints({.n_tokens = 1}, r.ids), (Ints{1, 2}));
    return h.run({.n_tokens = 1}, r.weights);
  };
  MoeRouteParams p = route_params(Gating::softmax);
  expect_near(run(p), {0.5f, 1 / 3.0f});
  p.normalise = true;
  expect_near(run(p), {0.6f, 0.4f});
  p.scale = 2.5f;
  expect_near(run(p), {1.5f, 1.0f});
  expect_near(run(route_params(Gating::sigmoid)), {0.75f, 2 / 3.0f});
  expect_near(run(route_params(Gating::softmax_selected)), {0.6f, 0.4f});
  expect_near(run(route_params(Gating::sqrt_softplus)), {std::sqrt(std::log(4.0f)), std::sqrt(std::log(3.0f))});
}

TEST(CoarseOps, SelectionBiasMovesTheChoiceNotTheWeights) {
  Harness h(1);
  const TensorId x = h.input("x", Shape(1, 1), {1});
  const Slot slots[] = {h.slot(DType::f32, Shape(1, 3), {0, std::log(3.0f), std::log(2.0f)}),
                        h.slot(DType::f32, Shape(3), {5, 0, 0})};
  MoeRouteParams p = route_params(Gating::softmax);
  p.has_selection_bias = true;
  const auto r = h.builder().moe_route(x, slots, p, "r");
  EXPECT_EQ(h.run_ints({.n_tokens = 1}, r.ids), (Ints{0, 1}));
  expect_near(h.run({.n_tokens = 1}, r.weights), {1 / 6.0f, 0.5f});
}

class MoeFfn : public ::testing::Test {
 protected:
  static constexpr int kEmbd = 32, kFf = 64, kExperts = 4, kUsed = 2, kTokens = 3;

  MoeFfn() {
    x = h.input("x", Shape(kEmbd, kTokens), random_values(kEmbd * kTokens, 1));
    ids = h.ints("ids", Shape(kUsed, kTokens), {3, 0, 1, -1, 2, 3});
    weights = h.input("weights", Shape(kUsed, kTokens), {0.75f, 0.25f, 1, 9, 0.5f, 0.5f});
    slots = {h.slot(DType::q8_0, Shape(kEmbd, kFf, kExperts), gate_values),
             h.slot(DType::q8_0, Shape(kEmbd, kFf, kExperts), up_values),
             h.slot(DType::q8_0, Shape(kFf, kEmbd, kExperts), random_values(kEmbd * kFf * kExperts, 4))};
    params.n_expert = kExperts;
    params.n_used = kUsed;
  }

  Floats run(const std::vector<Slot>& s, const MoeFfnParams& p) {
    return h.run({.n_tokens = kTokens}, h.builder().moe_ffn(x, {ids, weights}, s, p, "moe"));
  }

  // The same expert as a plain ffn.
  Floats expert(const std::vector<Slot>& s, int e) {
    auto part = [&](const Slot& slot) {
      const Tensor& stack = h.builder().graph().at(slot.weight);
      const Weight& w = *stack.weight;
      Placement at = w.placements.front();
      at.data += static_cast<std::size_t>(e) * tensor_bytes(w.type, Shape(w.shape[0], w.shape[1]));
      parts.push_back({w.name + " expert", w.type, Shape(w.shape[0], w.shape[1]), {at}});
      return Slot{h.builder().weight(parts.back()), {}, {}, false};
    };
    std::vector<Slot> dense;
    dense.reserve(s.size());
    for (const Slot& slot : s) dense.push_back(part(slot));
    return h.run({.n_tokens = kTokens}, h.builder().ffn(x, dense, {}, "expert"));
  }

  Harness h{kTokens};
  TensorId x, ids, weights;
  Floats gate_values = random_values(kEmbd * kFf * kExperts, 2), up_values = random_values(kEmbd * kFf * kExperts, 3);
  std::vector<Slot> slots;
  std::deque<Weight> parts;
  MoeFfnParams params;
};

TEST_F(MoeFfn, IsTheWeightedSumOfPlainExperts) {
  const Floats y = run(slots, params);
  const Floats e0 = expert(slots, 0), e1 = expert(slots, 1), e2 = expert(slots, 2), e3 = expert(slots, 3);
  for (std::size_t i = 0; i < kEmbd; ++i) {
    EXPECT_NEAR(y[i], 0.75f * e3[i] + 0.25f * e0[i], 1e-2f);
    EXPECT_NEAR(y[kEmbd + i], e1[kEmbd + i], 1e-2f) << "the skipped pair adds nothing";
    EXPECT_NEAR(y[2 * kEmbd + i], 0.5f * e2[2 * kEmbd + i] + 0.5f * e3[2 * kEmbd + i], 1e-2f);
  }
}

TEST_F(MoeFfn, PartialSumsAddUp) {
  const Floats whole = run(slots, params);
  MoeFfnParams low = params, high = params;
  low.expert_end = 2;
  high.expert_begin = 2;
  const Floats a = run(slots, low), b = run(slots, high);
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(a[i] + b[i], whole[i], 1e-3f);
}

TEST_F(MoeFfn, FusedGateUpAgrees) {
  Floats both;
  for (int e = 0; e < kExperts; ++e)
    for (const Floats* values : {&gate_values, &up_values})
      both.insert(both.end(), values->begin() + e * kEmbd * kFf, values->begin() + (e + 1) * kEmbd * kFf);
  MoeFfnParams fused = params;
  fused.fused_gate_up = true;
  EXPECT_EQ(run({h.slot(DType::q8_0, Shape(kEmbd, 2 * kFf, kExperts), both), slots[2]}, fused), run(slots, params));
}

TEST_F(MoeFfn, ScalesAndBiasesAreThoseOfTheExpert) {
  std::vector<Slot> with = slots;
  with[2].scale = h.weight("scale", DType::f32, Shape(kExperts), {1, 2, 1, 1});
  Floats bias(kEmbd * kExperts, 0.0f);
  std::fill(bias.begin() + kEmbd, bias.begin() + 2 * kEmbd, 10.0f);
  with[2].bias = h.weight("bias", DType::f32, Shape(kEmbd, kExperts), bias);
  const Floats plain = run(slots, params), changed = run(with, params);
  for (std::size_t i = 0; i < kEmbd; ++i) {
    EXPECT_NEAR(changed[i], plain[i], 1e-3f);
    EXPECT_NEAR(changed[kEmbd + i], 2 * plain[kEmbd + i] + 10, 1e-2f);
  }
}

TEST_F(MoeFfn, WeightOnTheInputScalesTheInput) {
  MoeFfnParams p = params;
  p.weight_on_input = true;
  const Floats y = run(slots, p);
  const Floats plain = run(slots, params);
  // Token 1 uses one expert with weight 1: no difference there.
  for (std::size_t i = 0; i < kEmbd; ++i) EXPECT_NEAR(y[kEmbd + i], plain[kEmbd + i], 1e-3f);
  EXPECT_GT(std::fabs(y[0] - plain[0]), 1e-3f);
}

class Recorder final : public Observer {
 public:
  void on_tensor(const Tensor& tensor, const void*, std::int64_t rows) override {
    seen.push_back(tensor.name + " x" + std::to_string(rows));
  }
  void on_slot(const Weight& weight, std::span<const float> rows, std::span<const std::int32_t> experts) override {
    seen.push_back(weight.name + " " + std::to_string(rows.size()) + "/" + std::to_string(experts.size()));
    last_rows.assign(rows.begin(), rows.end());
    last_experts.assign(experts.begin(), experts.end());
  }
  std::vector<std::string> seen;
  Floats last_rows;
  Ints last_experts;
};

TEST_F(MoeFfn, TapsShowUnroundedInputsOfUsedPairs) {
  slots[0].tapped = true;
  const TensorId y = h.builder().moe_ffn(x, {ids, weights}, slots, params, "moe");
  h.builder().observe(y);
  Recorder recorder;
  CompileOptions options;
  options.observer = &recorder;
  (void)h.run({.n_tokens = 2}, y, options);
  EXPECT_EQ(recorder.seen, (std::vector<std::string>{"weight.0 96/3", "moe x2"}));
  EXPECT_EQ(recorder.last_experts, (Ints{3, 0, 1}));
  const Floats input = random_values(kEmbd * kTokens, 1);
  EXPECT_EQ(recorder.last_rows[0], input[0]);
  EXPECT_EQ(recorder.last_rows[64], input[32]);
}

TEST(LatentAttention, TapsShowEachHeadsMatrixItsInput) {
  constexpr int kTokens = 2, kHeads = 3;
  for (const bool apart : {false, true}) {  // one matrix for keys and values of all heads, or one for each head
    Harness h(kTokens);
    const MlaExpandParams p{.n_head = kHeads,
                            .nope = 4,
                            .n_rot = 2,
                            .dv = 5,
                            .k_up_rows = apart ? 4 : 9,
                            .v_up_rows = apart ? 5 : 9,
                            .v_up_begin = apart ? 0 : 4};
    const Floats input = random_values(8 * kTokens, 1);
    const TensorId src[] = {h.input("latent", Shape(8, kTokens), input),
                            h.input("k_rot", Shape(2, 1, kTokens), random_values(2 * kTokens, 2))};
    const auto matrix = [&](std::int64_t rows, std::uint32_t seed) {
      return h.slot(DType::f32, apart ? Shape(8, rows, kHeads) : Shape(8, rows * kHeads),
                    random_values(8 * rows * kHeads, seed));
    };
    Slot slots[] = {matrix(p.k_up_rows, 3), {}};
    slots[1] = apart ? matrix(5, 4) : slots[0];
    slots[0].tapped = !apart;
    slots[1].tapped = true;
    const std::vector<TensorId> dst = h.builder().add(Op::mla_expand, p, src, slots, "kv");
    Recorder recorder;
    CompileOptions options;
    options.observer = &recorder;
    (void)h.run({.n_tokens = kTokens}, dst[1], options);
    ASSERT_EQ(recorder.seen.size(), 1u) << "the same input of the same matrix counts once";
    if (!apart) {
      EXPECT_EQ(recorder.last_rows, input);
      EXPECT_TRUE(recorder.last_experts.empty());
      continue;
    }
    EXPECT_EQ(recorder.last_experts, (Ints{0, 1, 2, 0, 1, 2}));
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(recorder.last_rows[4 * 8 + i], input[8 + i]);  // token 1, head 1
  }
}

// One head, keys that single out one cell each.
class Attention : public ::testing::Test {
 protected:
  static constexpr int kTokens = 4;

  Floats run(const AttentionParams& p, const Ints& spans, const Ints& table, int n_spans = 1) {
    Harness h(kTokens);
    const int dk = p.kv.dk, dv = p.kv.dv;
    const TensorId q = h.input("q", Shape(dk, p.n_head, kTokens), queries);
    const TensorId k = h.input("k", Shape(dk, p.kv.n_head_kv, kTokens), keys);
    const TensorId v = h.input("v", Shape(dv, p.kv.n_head_kv, kTokens), values);
    const GraphBuilder::AttentionInputs cache{
        h.state("pool", 4 * p.kv.block_bytes()),
        h.ints("spans", Shape(8, static_cast<std::int64_t>(spans.size() / 8)), spans, Rows::fixed),
        h.ints("table", Shape(static_cast<std::int64_t>(table.size())), table, Rows::fixed)};
    std::copy(pool.begin(), pool.end(), h.bytes(cache.pool).begin());
    Slot sinks;
    if (p.has_sinks) sinks = h.slot(DType::f32, Shape(p.n_head), sink_values);
    const TensorId y = h.builder().attention({q, k, v}, cache, sinks, p, "attn");
    Floats out = h.run({.n_tokens = kTokens, .n_spans = n_spans}, y);
    pool = h.bytes(cache.pool);
    return out;
  }

  static AttentionParams plain(DType type = DType::f32) {
    AttentionParams p;
    p.kv = {type, type, 1, 1, 1};
    p.n_head = 1;
    return p;
  }

  static Ints span(int first_row, int n_rows, int first_cell, int table_offset = 0, int first_block = 0) {
    return {first_row, n_rows, first_cell, table_offset, first_block, -1, 0, 0};
  }

  Floats queries{0, 0, 0, 0}, keys{0, 0, 0, 0}, values{1, 2, 4, 8}, sink_values;
  std::vector<std::byte> pool;
};

TEST_F(Attention, AveragesTheCellsEachRowMaySee) {
  AttentionParams p = plain();
  expect_near(run(p, span(0, 4, 0), {2}), {1, 1.5f, 7 / 3.0f, 3.75f});
  p.causal = false;
  expect_near(run(p, span(0, 4, 0), {2}), {3.75f, 3.75f, 3.75f, 3.75f});
}

TEST_F(Attention, WindowsDropCells) {
  AttentionParams p = plain();
  p.window_kind = WindowKind::standard;
  p.window = 2;
  expect_near(run(p, span(0, 4, 0), {2}), {1, 1.5f, 3, 6});
  p.window_kind = WindowKind::chunked;
  p.window = 3;
  expect_near(run(p, span(0, 4, 0), {2}), {1, 1.5f, 7 / 3.0f, 8});
  p.window_kind = WindowKind::symmetric;
  p.window = 2;
  p.causal = false;
  expect_near(run(p, span(0, 4, 0), {2}), {1.5f, 7 / 3.0f, 14 / 3.0f, 6});
}

TEST_F(Attention, SinksTakeShareWithoutValue) {
  AttentionParams p = plain();
  p.has_sinks = true;
  sink_values = {0};
  expect_near(run(p, span(0, 4, 0), {2}), {0.5f, 1, 7 / 4.0f, 3});
}

TEST_F(Attention, ScalesCapsAndBiasesScores) {
  AttentionParams p = plain();
  queries = {1, 1, 1, 1};
  keys = {0, std::log(3.0f), 0, 0};
  EXPECT_NEAR(run(p, span(0, 4, 0), {0})[1], 0.25f * 1 + 0.75f * 2, 1e-5);
  p.scale = 2;
  EXPECT_NEAR(run(p, span(0, 4, 0), {0})[1], 0.1f * 1 + 0.9f * 2, 1e-5);
  p.scale = 1;
  p.softcap = 0.5f;
  const float w = std::exp(0.5f * std::tanh(2 * std::log(3.0f)));
  EXPECT_NEAR(run(p, span(0, 4, 0), {0})[1], (1 + 2 * w) / (1 + w), 1e-5);
  p.softcap = 0;
  keys = {0, 0, 0, 0};
  p.max_alibi_bias = 8;  // one head: slope 2^-8
  const float far = std::exp(-1.0f / 256);
  EXPECT_NEAR(run(p, span(0, 4, 0), {0})[1], (far + 2) / (far + 1), 1e-6);
}

TEST_F(Attention, ReadsStoredCellsAcrossBlocksAndSequencesApart) {
  const AttentionParams p = plain();
  // 62 cells of value 1 are stored in block 3 first, then cells 62..65 cross into block 1.
  Floats stored;
  values = {1, 1, 1, 1};
  for (int cell = 0; cell < 60; cell += 4) (void)run(p, span(0, 4, cell), {3, 1});
  (void)run(p, span(0, 2, 60), {3, 1});
  values = {100, 200, 300, 400};
  const Floats y = run(p, span(0, 4, 62), {3, 1});
  EXPECT_NEAR(y[0], (62 + 100) / 63.0, 1e-4);
  EXPECT_NEAR(y[3], (62 + 1000) / 66.0, 1e-4);
  // Two sequences in one step: rows 0-1 and 2-3 see nothing of each other.
  Ints spans = span(0, 2, 0, 0), second = span(2, 2, 0, 1);
  spans.insert(spans.end(), second.begin(), second.end());
  values = {1, 2, 4, 8};
  expect_near(run(p, spans, {0, 2}, 2), {1, 1.5f, 4, 6});
}

TEST_F(Attention, FreedBlocksAreNotSeenAndRowsWithoutCellsAreZero) {
  const AttentionParams p = plain();
  expect_near(run(p, span(0, 4, 0), {-1}), {0, 0, 0, 0});
  // The table starts at block 1; cell 64 is its first cell.
  expect_near(run(p, span(0, 4, 64, 0, 1), {0}), {1, 1.5f, 7 / 3.0f, 3.75f});
}

TEST_F(Attention, RoundsCellsToTheCacheTypes) {
  AttentionParams p = plain();
  p.kv = {DType::q8_0, DType::f16, 2, 32, 32};
  p.n_head = 4;
  queries = random_values(4 * 32 * 4, 1);
  keys = random_values(2 * 32 * 4, 2);
  values = random_values(2 * 32 * 4, 3);
  p.scale = 0.17f;
  const Floats rounded = run(p, span(0, 4, 0), {1});
  pool.clear();
  p.kv.k_type = p.kv.v_type = DType::f32;
  const Floats exact = run(p, span(0, 4, 0), {1});
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    worst = std::max(worst, std::fabs(static_cast<double>(exact[i] - rounded[i])));
  EXPECT_GT(worst, 1e-6);
  EXPECT_LT(worst, 0.03);
}

TEST(CoarseOps, SampleRunsTheChainPerRow) {
  Harness h(1, 3);
  const TensorId logits = h.input("logits", Shape(4, 3), {0, 5, 1, 2, 9, 0, 0, 0, 0, 0, 0, 7}, Rows::outputs);
  SampleRow rows[3]{};
  rows[0].logits_row = 2;
  rows[1].logits_row = -1;
  rows[2].logits_row = 0;
  for (SampleRow& row : rows) row.mask_row = -1;
  rows[2].mask_row = 0;
  Ints words(sizeof(rows) / 4);
  std::memcpy(words.data(), rows, sizeof(rows));
  const std::vector<TensorId> src{logits, h.ints("rows", Shape(sizeof(SampleRow) / 4, 3), words, Rows::outputs),
                                  h.ints("adjust", Shape(4, 1), {0, 0, 0, 0}, Rows::fixed),
                                  h.ints("masks", Shape(1, 1), {0b1001}, Rows::fixed)};
  const TensorId y = h.builder().add(Op::sample, SampleParams{}, src, {}, "sampled").front();
  const Ints out = h.run_ints({.n_tokens = 1, .n_outputs = 3}, y);
  const std::size_t stride = sizeof(SampleResult) / 4;
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(out[stride], -1);
  EXPECT_EQ(out[2 * stride], 3);
}

}  // namespace
}  // namespace ggml
