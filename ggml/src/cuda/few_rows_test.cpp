#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cpu/test_bed.h"
#include "ggml/kv_rows.h"

// What the card does differently for steps of few rows (decoding), against the plain way: attention over a long cache
// and fused nodes.
namespace ggml::cpu::test {
namespace {

struct SpanCase {
  int n_rows, first_cell;
};

/// A cache of some sequences with their new rows.
struct Cache {
  TensorId pool, spans, table;
  int rows = 0, n_spans = 0;
};

/// Blocks filled with rows as the cache keeps them.
std::vector<std::int32_t> random_pool(TestBed& bed, const KvLayout& kv, int n_blocks) {
  std::vector<std::int32_t> words(kv.block_bytes() / 4 * static_cast<std::size_t>(n_blocks));
  auto* bytes = reinterpret_cast<std::byte*>(words.data());
  const auto fill = [&](std::byte* values, std::byte* scales, DType type, int dim) {
    const KvForm form = kv_form(type);
    const std::vector<float> x = bed.normal(std::int64_t{kKvBlockTokens} * kv.n_head_kv * dim, 1.0f);
    const std::size_t rows = std::size_t{kKvBlockTokens} * static_cast<std::size_t>(kv.n_head_kv);
    for (std::size_t row = 0; row < rows; ++row)
      encode_kv_row(type, x.data() + row * static_cast<std::size_t>(dim), dim, values + row * form.value_bytes(dim),
                    scales + row * form.scale_bytes(dim));
  };
  for (int b = 0; b < n_blocks; ++b) {
    std::byte* block = bytes + static_cast<std::size_t>(b) * kv.block_bytes();
    fill(block + kv.k_values(), block + kv.k_scales(), kv.k_type, kv.dk);
    if (kv.dv > 0) fill(block + kv.v_values(), block + kv.v_scales(), kv.v_type, kv.dv);
  }
  return words;
}

Cache make_cache(TestBed& bed, const KvLayout& kv, const std::vector<SpanCase>& cases) {
  constexpr int kSpans = 8, kTable = 64, kLongTable = 160;  // a short cache has kernels of its own
  Cache cache;
  std::vector<std::int32_t> table, spans;
  int blocks = 0;
  for (const SpanCase& s : cases) blocks += (s.first_cell + s.n_rows + kKvBlockTokens - 1) / kKvBlockTokens;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(blocks));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), bed.random());
  for (const SpanCase& s : cases) {
    spans.insert(spans.end(), {cache.rows, s.n_rows, s.first_cell, static_cast<int>(table.size()), 0, -1, 0, 0});
    const int own = (s.first_cell + s.n_rows + kKvBlockTokens - 1) / kKvBlockTokens;
    for (int b = 0; b < own; ++b) table.push_back(ids[table.size()]);
    cache.rows += s.n_rows;
    ++cache.n_spans;
  }
  spans.resize(8 * kSpans, -1);
  const int n_table = blocks <= kTable ? kTable : kLongTable;
  table.resize(static_cast<std::size_t>(n_table), -1);
  cache.pool = bed.state("pool", random_pool(bed, kv, blocks));
  cache.spans = bed.input("spans", Shape(8, kSpans), Rows::fixed, spans);
  cache.table = bed.input("table", Shape(n_table), Rows::fixed, table);
  return cache;
}

struct AttentionCase {
  std::string name;
  DType k, v;
  int n_head, n_head_kv, dk, dv;
  std::function<void(AttentionParams&)> change;
};

std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> all;
  for (const DType k : {DType::f16, DType::f32, DType::bf16, DType::q8_0}) {
    for (const DType v : {DType::f16, DType::f32, DType::bf16, DType::q8_0}) {
      all.push_back(
          {std::string(type_info(k).id) + "_and_" + std::string(type_info(v).id), k, v, 16, 2, 128, 64, nullptr});
    }
  }
  for (const DType type :
       {DType::q8_kv, DType::q6_0, DType::q5_1, DType::q5_0, DType::q4_1, DType::q4_0, DType::iq4_nl}) {
    const std::string name(type_info(type).id);
    all.push_back({name, type, type, 8, 2, 128, 128, nullptr});
    all.push_back({name + "_keys", type, DType::f16, 4, 4, 64, 96, nullptr});
    all.push_back({name + "_values", DType::q8_0, type, 4, 1, 256, 32, nullptr});
  }
  for (const DType type : {DType::f16, DType::f32, DType::q8_0, DType::q5_1})
    all.push_back({"heads_of_576_" + std::string(type_info(type).id), type, type, 16, 1, 576, 512, nullptr});
  const auto f16 = [&](const char* name, int n_head, int n_head_kv, int dk, int dv,
                       std::function<void(AttentionParams&)> change = nullptr) {
    all.push_back({name, DType::f16, DType::f16, n_head, n_head_kv, dk, dv, std::move(change)});
  };
  f16("one_head_each", 4, 4, 64, 64);
  f16("groups_of_two", 4, 2, 80, 80);
  f16("groups_of_four", 8, 2, 128, 128);
  f16("groups_of_five", 10, 2, 96, 128);
  f16("groups_of_eight", 32, 4, 128, 128);
  f16("groups_of_twenty", 40, 2, 32, 32);
  f16("large_heads", 8, 1, 256, 256);
  f16("uneven_heads", 8, 2, 192, 128);
  f16("odd_sizes", 4, 2, 20, 12);
  f16("softcap", 8, 2, 64, 64, [](AttentionParams& p) { p.softcap = 2.0f; });
  f16("sinks", 8, 2, 64, 64, [](AttentionParams& p) { p.has_sinks = true; });
  f16("alibi", 8, 2, 64, 64, [](AttentionParams& p) { p.max_alibi_bias = 8.0f; });
  f16("window", 8, 2, 64, 64, [](AttentionParams& p) {
    p.window_kind = WindowKind::standard;
    p.window = 100;
  });
  f16("chunked", 8, 2, 64, 64, [](AttentionParams& p) {
    p.window_kind = WindowKind::chunked;
    p.window = 96;
  });
  f16("not_causal", 8, 2, 64, 64, [](AttentionParams& p) { p.causal = false; });
  return all;
}

class FewRowsAttention : public testing::TestWithParam<AttentionCase> {};

TEST_P(FewRowsAttention, MatchesTheReference) {
  const AttentionCase& form = GetParam();
  AttentionParams p;
  p.kv = {.k_type = form.k, .v_type = form.v, .n_head_kv = form.n_head_kv, .dk = form.dk, .dv = form.dv};
  p.n_head = form.n_head;
  p.scale = 1.0f / std::sqrt(static_cast<float>(form.dk));
  if (form.change) form.change(p);
  const std::vector<std::vector<SpanCase>> steps = {
      {{1, 0}}, {{1, 63}}, {{1, 2500}}, {{1, 5000}}, {{1, 300}, {2, 700}, {1, 0}, {3, 61}}, {{7, 120}, {5, 0}}};
  for (const std::vector<SpanCase>& step : steps) {
    int rows = 0, bucket = 1;
    for (const SpanCase& s : step) rows += s.n_rows;
    while (bucket < rows) bucket *= 2;
    TestBed bed(bucket, 1, 17);
    const TensorId q = bed.random_input("q", Shape(p.kv.dk, p.n_head, bucket), Rows::tokens);
    const TensorId k = bed.random_input("k", Shape(p.kv.dk, p.kv.n_head_kv, bucket), Rows::tokens);
    const TensorId v = bed.random_input("v", Shape(p.kv.dv, p.kv.n_head_kv, bucket), Rows::tokens);
    const Cache cache = make_cache(bed, p.kv, step);
    Slot sinks;
    if (p.has_sinks) sinks.weight = bed.weight_id(DType::f32, Shape(p.n_head), 1.0f);
    bed.output(bed.graph().attention({q, k, v}, {cache.pool, cache.spans, cache.table}, sinks, p, "y"), "y");
    const StepCounts counts{rows, 0, cache.n_spans};
    const Outcome want = bed.run_reference(counts), got = bed.run_cpu(counts, {}), again = bed.run_cpu(counts, {});
    const std::int64_t width = std::int64_t{p.kv.dv} * p.n_head;
    const std::string what = std::to_string(step[0].first_cell) + " cells, " + std::to_string(rows) + " rows";
    expect_close(got.values.at("y"), want.values.at("y"), width, width * rows, {.row = 1e-5}, what);
    EXPECT_TRUE(got.words.at("pool") == want.words.at("pool")) << what << ": other bytes in the cache";
    EXPECT_TRUE(
        std::equal(got.values.at("y").begin(), got.values.at("y").begin() + width * rows, again.values.at("y").begin()))
        << what << ": another run gave other bytes";
  }
}

/// A cache of latents: no plane of values.
TEST(LatentAttention, ReadsValuesOutOfTheKeys) {
  struct Case {
    DType type;
    int n_head, dk, dv;
  };
  for (const Case& form :
       {Case{DType::f16, 16, 576, 512}, Case{DType::f16, 3, 320, 288}, Case{DType::q8_0, 5, 576, 512},
        Case{DType::bf16, 4, 96, 64}, Case{DType::q4_0, 4, 96, 64}, Case{DType::f16, 3, 36, 20}}) {
    AttentionParams p;
    p.kv = {.k_type = form.type, .v_type = form.type, .n_head_kv = 1, .dk = form.dk, .dv = 0};
    p.n_head = form.n_head;
    p.scale = 1.0f / std::sqrt(static_cast<float>(form.dk));
    p.v_of_k = form.dv;
    for (const std::vector<SpanCase>& step : std::vector<std::vector<SpanCase>>{
             {{1, 700}}, {{1, 3}, {7, 100}}, {{40, 90}}, {{20, 1500}, {1, 63}, {33, 0}}}) {
      int rows = 0, bucket = 1;
      for (const SpanCase& s : step) rows += s.n_rows;
      while (bucket < rows) bucket *= 2;
      TestBed bed(bucket, 1, 17);
      const Cache cache = make_cache(bed, p.kv, step);
      const TensorId q = bed.random_input("q", Shape(form.dk, form.n_head, bucket), Rows::tokens);
      const TensorId src[] = {q, cache.pool, cache.spans, cache.table};
      bed.output(bed.graph().add(Op::attn_dense, p, src, {}, "y").front(), "y");
      const StepCounts counts{rows, 0, cache.n_spans};
      const Outcome want = bed.run_reference(counts), got = bed.run_cpu(counts, {});
      const std::int64_t width = std::int64_t{form.dv} * form.n_head;
      expect_close(got.values.at("y"), want.values.at("y"), width, width * rows, {.row = 1e-5},
                   std::string(type_info(form.type).id) + ", " + std::to_string(rows) + " rows");
    }
  }
}

TEST(LatentAttention, GivesWhatItsPrimitivesGive) {
  struct Case {
    DType weights, cache;
    int n_head, nope, kv_rank;
  };
  constexpr int kRot = 64, kValues = 96;
  for (const Case& form : {Case{DType::q8_0, DType::f16, 16, 128, 512}, Case{DType::q4_k, DType::q8_0, 5, 256, 512},
                           Case{DType::q5_0, DType::f32, 4, 64, 96}, Case{DType::f16, DType::q4_0, 6, 128, 256},
                           Case{DType::bf16, DType::bf16, 3, 40, 64}, Case{DType::f32, DType::f16, 4, 128, 512}}) {
    MlaParams p;
    p.n_head = form.n_head;
    p.nope = p.k_up_rows = form.nope;
    p.n_rot = kRot;
    p.kv_rank = form.kv_rank;
    p.dv = p.v_up_rows = kValues;
    p.kv = {.k_type = form.cache, .v_type = form.cache, .n_head_kv = 1, .dk = form.kv_rank + kRot, .dv = 0};
    p.scale = 0.05f;
    for (const std::vector<SpanCase>& step :
         std::vector<std::vector<SpanCase>>{{{1, 0}}, {{1, 700}}, {{1, 3}, {6, 100}}, {{30, 200}, {1, 63}}}) {
      int rows = 0, bucket = 1;
      for (const SpanCase& s : step) rows += s.n_rows;
      while (bucket < rows) bucket *= 2;
      TestBed bed(bucket, 1, 19);
      const Cache cache = make_cache(bed, p.kv, step);
      const Slot slots[] = {bed.slot(form.weights, Shape(form.nope, form.kv_rank, form.n_head)),
                            bed.slot(form.weights, Shape(form.kv_rank, std::int64_t{form.nope} * form.n_head)),
                            bed.slot(form.weights, Shape(form.kv_rank, std::int64_t{kValues} * form.n_head))};
      const TensorId q = bed.random_input("q", Shape(form.nope + kRot, form.n_head, bucket), Rows::tokens);
      const TensorId latent = bed.random_input("latent", Shape(form.kv_rank, bucket), Rows::tokens);
      const TensorId k_rot = bed.random_input("k_rot", Shape(kRot, 1, bucket), Rows::tokens);
      bed.output(bed.graph().mla({q, latent, k_rot, {cache.pool, cache.spans, cache.table}}, slots, p, "y"), "y");
      const StepCounts counts{rows, 0, cache.n_spans};
      const Outcome want = bed.run_cpu(counts, {.decompose_all = true}), got = bed.run_cpu(counts, {});
      ASSERT_EQ(got.description.size(), 1u);
      const std::int64_t width = std::int64_t{kValues} * form.n_head;
      const std::string what = std::string(type_info(form.weights).id) + ", " + std::to_string(rows) + " rows";
      const Tolerance tolerance{.row = 1e-4, .outlier_row = 5e-3, .outlier_share = 0.3};
      expect_close(got.values.at("y"), want.values.at("y"), width, width * rows, tolerance, what);
      EXPECT_TRUE(got.words.at("pool") == want.words.at("pool")) << what << ": other bytes in the cache";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, FewRowsAttention, testing::ValuesIn(attention_cases()),
                         [](const auto& row) { return row.param.name; });

TEST(LargeResults, OfRealRowsAloneReachTheHost) {
  constexpr std::int64_t kEmbd = 64, kVocab = 20000;
  for (const int rows : {1, 3, 8}) {
    const int bucket = rows == 3 ? 4 : rows;
    TestBed bed(bucket, 1, 5);
    const TensorId x = bed.random_input("x", Shape(kEmbd, bucket), Rows::tokens);
    bed.output(bed.graph().linear(x, bed.slot(DType::q8_0, Shape(kEmbd, kVocab)), "y"), "y");
    const StepCounts counts{rows, 0, 0};
    const Outcome want = bed.run_cpu(counts, {.decompose_all = true}), got = bed.run_cpu(counts, {});
    expect_close(got.values.at("y"), want.values.at("y"), kVocab, kVocab * rows, {}, std::to_string(rows) + " rows");
  }
}

struct LayerCase {
  const char* name;
  DType qk, v, out, up, down, kv;
  bool qk_norm, experts, neox, fused_up;
  int dk = 128;
};

const LayerCase kLayers[] = {
    {"experts_q4_k", DType::q4_k, DType::q6_k, DType::q4_k, DType::q4_k, DType::q6_k, DType::f16, true, true, true,
     false},
    {"experts_q8_0", DType::q8_0, DType::q8_0, DType::q8_0, DType::q8_0, DType::q8_0, DType::q8_0, true, true, true,
     true},
    {"experts_of_several_forms", DType::q4_0, DType::q6_k, DType::q5_1, DType::q5_k, DType::q4_1, DType::f32, false,
     true, false, false},
    {"dense_q4_k", DType::q4_k, DType::q6_k, DType::q4_k, DType::q4_k, DType::q6_k, DType::f16, true, false, true,
     false, 64},
    {"dense_q5_0", DType::q5_0, DType::q5_0, DType::q5_0, DType::q5_0, DType::q5_0, DType::bf16, false, false, false,
     false},
    {"dense_iq4_xs", DType::iq4_xs, DType::q5_k, DType::iq4_xs, DType::iq4_xs, DType::q5_k, DType::f16, true, false,
     true, true},
    {"floats", DType::f16, DType::bf16, DType::f32, DType::f16, DType::f16, DType::f16, true, true, true, false},
};

class FusedLayer : public testing::TestWithParam<LayerCase> {
 protected:
  static constexpr std::int64_t kEmbd = 512, kWidth = 768;
  static constexpr int kHeads = 16, kHeadsKv = 2, kExperts = 40, kUsed = 6;

  static TensorId attention_of(TestBed& bed, const LayerCase& form, TensorId x, int bucket, const Cache& cache) {
    QkvParams qkv;
    qkv.n_head = kHeads;
    qkv.n_head_kv = kHeadsKv;
    qkv.dk = qkv.dv = form.dk;
    qkv.has_qk_norm = form.qk_norm;
    std::vector<Slot> slots{bed.slot(form.qk, Shape(kEmbd, std::int64_t{form.dk} * kHeads)),
                            bed.slot(form.qk, Shape(kEmbd, std::int64_t{form.dk} * kHeadsKv)),
                            bed.slot(form.v, Shape(kEmbd, std::int64_t{form.dk} * kHeadsKv))};
    for (int i = 0; form.qk_norm && i < 2; ++i) {
      slots.push_back({});
      slots.back().weight = bed.weight_id(DType::f32, Shape(form.dk), 1.0f);
    }
    std::vector<std::int32_t> positions(static_cast<std::size_t>(bucket));
    std::iota(positions.begin(), positions.end(), 1000);
    RopeParams rope;
    rope.layout = form.neox ? RopeLayout::neox : RopeLayout::norm;
    rope.n_rot = form.dk / 2;
    AttentionParams attention;
    attention.kv = {.k_type = form.kv, .v_type = form.kv, .n_head_kv = kHeadsKv, .dk = form.dk, .dv = form.dk};
    attention.n_head = kHeads;
    attention.scale = 0.1f;
    GraphBuilder& b = bed.graph();
    const TensorId ports = bed.input("positions", Shape(bucket), Rows::tokens, positions);
    const GraphBuilder::Qkv heads = b.rope_qk(b.qkv(x, slots, qkv, "qkv"), ports, {}, rope, "rope");
    const TensorId y = b.attention(heads, {cache.pool, cache.spans, cache.table}, {}, attention, "heads");
    return b.linear(y, bed.slot(form.out, Shape(std::int64_t{form.dk} * kHeads, kEmbd)), "attn_out");
  }

  static TensorId feed_forward(TestBed& bed, const LayerCase& form, TensorId x) {
    GraphBuilder& b = bed.graph();
    const auto stack = [&](std::int64_t k, std::int64_t n) {
      return form.experts ? Shape(k, n, kExperts) : Shape(k, n);
    };
    std::vector<Slot> slots;
    if (form.fused_up) {
      slots.push_back(bed.slot(form.up, stack(kEmbd, 2 * kWidth)));
    } else {
      for (int i = 0; i < 2; ++i) slots.push_back(bed.slot(form.up, stack(kEmbd, kWidth)));
    }
    slots.push_back(bed.slot(form.down, stack(kWidth, kEmbd)));
    if (!form.experts) return b.ffn(x, slots, {.fused_gate_up = form.fused_up}, "ffn");
    MoeRouteParams route;
    route.n_expert = kExperts;
    route.n_used = kUsed;
    route.normalise = true;
    const Slot router = bed.slot(DType::f32, Shape(kEmbd, kExperts));
    const GraphBuilder::Route chosen = b.moe_route(x, {&router, 1}, route, "route");
    return b.moe_ffn(x, chosen, slots, {.n_expert = kExperts, .n_used = kUsed, .fused_gate_up = form.fused_up}, "moe");
  }
};

/// A layer as families build it. Roundings that meet a tie the other way round show as outliers.
TEST_P(FusedLayer, GivesWhatItsPrimitivesGive) {
  const LayerCase& form = GetParam();
  const std::vector<std::vector<SpanCase>> steps = {
      {{1, 0}}, {{1, 700}}, {{1, 130}, {1, 63}}, {{3, 200}}, {{1, 1}, {1, 64}, {2, 90}, {1, 0}, {1, 500}, {2, 3}}};
  for (const std::vector<SpanCase>& step : steps) {
    int rows = 0, bucket = 1;
    for (const SpanCase& s : step) rows += s.n_rows;
    while (bucket < rows) bucket *= 2;
    TestBed bed(bucket, 1, static_cast<std::uint32_t>(rows));
    GraphBuilder& b = bed.graph();
    const KvLayout kv{.k_type = form.kv, .v_type = form.kv, .n_head_kv = kHeadsKv, .dk = form.dk, .dv = form.dk};
    const Cache cache = make_cache(bed, kv, step);
    const TensorId x = bed.random_input("x", Shape(kEmbd, bucket), Rows::tokens);
    const TensorId branch = bed.random_input("branch", Shape(kEmbd, bucket), Rows::tokens);
    const auto weight = [&] {
      Slot slot;
      slot.weight = bed.weight_id(DType::f32, Shape(kEmbd), 1.0f);
      return slot;
    };
    const auto first = b.add_norm(branch, x, weight(), {}, "attn_norm");
    const TensorId attended = attention_of(bed, form, first.normed, bucket, cache);
    const auto second = b.add_norm(attended, first.sum, weight(), {}, "ffn_norm");
    bed.output(b.add(second.sum, feed_forward(bed, form, second.normed), "y"), "y");
    const StepCounts counts{rows, 0, cache.n_spans};
    const Outcome want = bed.run_cpu(counts, {.decompose_all = true}), got = bed.run_cpu(counts, {}),
                  again = bed.run_cpu(counts, {});
    const Tolerance tolerance{.row = 1e-4, .outlier_row = 5e-3, .outlier_share = 0.3};
    expect_close(got.values.at("y"), want.values.at("y"), kEmbd, kEmbd * rows, tolerance,
                 std::to_string(rows) + " rows");
    EXPECT_TRUE(
        std::equal(got.values.at("y").begin(), got.values.at("y").begin() + kEmbd * rows, again.values.at("y").begin()))
        << rows << " rows: another run gave other bytes";
    const bool fused = std::any_of(got.description.begin(), got.description.end(), [](const std::string& line) {
      return line.find("fused with the norms of q and k") != std::string::npos;
    });
    EXPECT_TRUE(fused) << rows << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, FusedLayer, testing::ValuesIn(kLayers), [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ggml::cpu::test
