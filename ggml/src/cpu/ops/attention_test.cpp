#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cpu/test_bed.h"
#include "ggml/kv_rows.h"

namespace ggml::cpu::test {
namespace {

struct SpanCase {
  int n_rows, first_cell;
};

struct AttentionCase {
  std::string name;
  AttentionParams params;
  std::vector<SpanCase> spans;
  int freed_blocks = 0;   // of the first span
  float key_size = 1.0f;  // deviation of the keys
};

AttentionParams params(DType k, DType v, int n_head, int n_head_kv, int dk, int dv) {
  AttentionParams p;
  p.kv = {.k_type = k, .v_type = v, .n_head_kv = n_head_kv, .dk = dk, .dv = dv};
  p.n_head = n_head;
  p.scale = 1.0f / std::sqrt(static_cast<float>(dk));
  return p;
}

AttentionParams with(AttentionParams p, const std::function<void(AttentionParams&)>& change) {
  change(p);
  return p;
}

/// Blocks filled with rows as the cache keeps them.
std::vector<std::int32_t> random_pool(TestBed& bed, const KvLayout& kv, int n_blocks, float key_size) {
  std::vector<std::int32_t> words(kv.block_bytes() / 4 * static_cast<std::size_t>(n_blocks));
  auto* bytes = reinterpret_cast<std::byte*>(words.data());
  const auto fill = [&](std::byte* values, std::byte* scales, DType type, int dim, float size) {
    const KvForm form = kv_form(type);
    const std::vector<float> x = bed.normal(std::int64_t{kKvBlockTokens} * kv.n_head_kv * dim, size);
    for (std::size_t row = 0; row < std::size_t{kKvBlockTokens} * static_cast<std::size_t>(kv.n_head_kv); ++row)
      encode_kv_row(type, x.data() + row * static_cast<std::size_t>(dim), dim, values + row * form.value_bytes(dim),
                    scales + row * form.scale_bytes(dim));
  };
  for (int b = 0; b < n_blocks; ++b) {
    std::byte* block = bytes + static_cast<std::size_t>(b) * kv.block_bytes();
    fill(block + kv.k_values(), block + kv.k_scales(), kv.k_type, kv.dk, key_size);
    fill(block + kv.v_values(), block + kv.v_scales(), kv.v_type, kv.dv, 1.0f);
  }
  return words;
}

std::vector<AttentionCase> cases() {
  const AttentionParams base = params(DType::f16, DType::f16, 8, 2, 64, 64);
  std::vector<AttentionCase> all;
  std::vector<DType> types;
  for (int i = 0; i < kTypeCount; ++i)
    if (type_info(static_cast<DType>(i)).kv_capable) types.push_back(static_cast<DType>(i));
  for (const DType k : types)
    for (const DType v : types)
      all.push_back({std::string(type_info(k).id) + "_and_" + std::string(type_info(v).id),
                     params(k, v, 6, 3, 64, 32),
                     {{1, 200}, {5, 0}, {2, 63}, {40, 100}}});
  all.push_back({"other_head_sizes", params(DType::q8_0, DType::f16, 4, 4, 32, 96), {{3, 130}, {70, 5}}});
  all.push_back({"quantised_keys_of_odd_values", params(DType::q4_0, DType::bf16, 4, 2, 96, 20), {{3, 130}, {70, 5}}});
  all.push_back({"quantised_long_split", params(DType::q5_1, DType::q4_0, 8, 2, 128, 128), {{1, 1500}, {2, 700}}});
  all.push_back({"odd_sizes", params(DType::f32, DType::f32, 5, 5, 20, 12), {{1, 70}, {9, 3}}});
  all.push_back({"long_split", base, {{1, 1500}, {2, 700}, {1, 0}, {4, 2000}}});
  all.push_back({"wide_group", params(DType::f16, DType::f16, 40, 1, 32, 32), {{1, 90}, {6, 90}}});
  all.push_back({"softcap", with(base, [](auto& p) { p.softcap = 2.0f; }), {{1, 100}, {20, 64}}});
  all.push_back({"sinks", with(base, [](auto& p) { p.has_sinks = true; }), {{1, 600}, {20, 64}}});
  all.push_back({"alibi", with(base, [](auto& p) { p.max_alibi_bias = 8.0f; }), {{1, 100}, {20, 64}}});
  const auto window = [](WindowKind kind, int w, bool causal) {
    return [=](AttentionParams& p) {
      p.window_kind = kind;
      p.window = w;
      p.causal = causal;
    };
  };
  all.push_back({"window", with(base, window(WindowKind::standard, 100, true)), {{1, 700}, {30, 250}, {9, 0}}});
  all.push_back({"window_freed", with(base, window(WindowKind::standard, 100, true)), {{1, 700}, {30, 250}}, 9});
  all.push_back({"chunked", with(base, window(WindowKind::chunked, 96, true)), {{1, 700}, {50, 170}}});
  all.push_back({"symmetric", with(base, window(WindowKind::symmetric, 40, false)), {{150, 0}, {9, 0}}});
  all.push_back({"many_heads", params(DType::f16, DType::f16, 64, 64, 40, 24), {{70, 150}, {130, 0}, {3, 9}}});
  const AttentionParams wide = params(DType::f16, DType::f16, 16, 2, 128, 128);
  all.push_back({"wide_heads", wide, {{33, 700}, {17, 0}, {100, 64}}});
  all.push_back({"wide_heads_window", with(wide, window(WindowKind::standard, 70, true)), {{1, 700}, {130, 250}}});
  all.push_back({"widest_heads", params(DType::f16, DType::f16, 4, 1, 256, 256), {{30, 300}, {90, 0}}});
  all.push_back({"widest_heads_q8_0", params(DType::q8_0, DType::q8_0, 4, 2, 256, 160), {{30, 300}, {90, 0}}});
  // Keys far beyond what halves can sum, and far below what they can hold.
  const auto sized = [&](const std::string& name, DType type, float size) {
    AttentionParams p = params(type, type, 8, 2, 64, 64);
    p.scale /= size;
    all.push_back({name, p, {{1, 100}, {100, 64}}, 0, size});
  };
  sized("large_keys", DType::f16, 9000.0f);
  sized("large_keys_bf16", DType::bf16, 1e15f);
  sized("large_keys_q8_0", DType::q8_0, 1e5f);
  sized("small_keys_bf16", DType::bf16, 1e-15f);
  all.push_back({"not_causal", with(base, [](auto& p) { p.causal = false; }), {{130, 0}, {1, 0}, {3, 0}}});
  return all;
}

class AttentionForm : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionForm, MatchesItsDecompositionAndAppendsTheSameBytes) {
  const AttentionCase& form = GetParam();
  int rows = 0, n_blocks = 0;
  std::vector<std::int32_t> table, spans;
  int cells = 0;
  for (const SpanCase& s : form.spans) cells += s.first_cell + s.n_rows + kKvBlockTokens;
  const int pool_blocks = cells / kKvBlockTokens + 4;
  std::vector<std::int32_t> free_ids(static_cast<std::size_t>(pool_blocks));
  std::iota(free_ids.begin(), free_ids.end(), 0);
  TestBed bed(256, 1, 17);
  std::shuffle(free_ids.begin(), free_ids.end(), bed.random());
  for (const SpanCase& s : form.spans) {
    const int freed = spans.empty() ? form.freed_blocks : 0;
    const int blocks = (s.first_cell + s.n_rows + kKvBlockTokens - 1) / kKvBlockTokens - freed;
    spans.insert(spans.end(), {rows, s.n_rows, s.first_cell, static_cast<int>(table.size()), freed, -1, 0, 0});
    for (int b = 0; b < blocks; ++b) table.push_back(free_ids[static_cast<std::size_t>(n_blocks++)]);
    rows += s.n_rows;
  }
  spans.resize(8 * 6, -1);
  table.resize(160, -1);
  const AttentionParams& p = form.params;
  const TensorId q = bed.random_input("q", Shape(p.kv.dk, p.n_head, 256), Rows::tokens);
  const TensorId k = bed.random_input("k", Shape(p.kv.dk, p.kv.n_head_kv, 256), Rows::tokens, form.key_size);
  const TensorId v = bed.random_input("v", Shape(p.kv.dv, p.kv.n_head_kv, 256), Rows::tokens);
  const TensorId pool = bed.state("pool", random_pool(bed, p.kv, pool_blocks, form.key_size));
  const TensorId span_port = bed.input("spans", Shape(8, 6), Rows::fixed, spans);
  const TensorId table_port = bed.input("table", Shape(160), Rows::fixed, table);
  Slot sinks;
  if (p.has_sinks) sinks.weight = bed.weight_id(DType::f32, Shape(p.n_head), 1.0f);
  bed.output(bed.graph().attention({q, k, v}, {pool, span_port, table_port}, sinks, p, "y"), "y");
  const StepCounts counts{rows, 0, static_cast<int>(form.spans.size())};
  const Outcome want = bed.run_reference(counts);
  const std::int64_t width = std::int64_t{p.kv.dv} * p.n_head;
  for (const std::string& isa : isa_names()) {
    for (const bool primitives : {false, true}) {
      const Outcome got = bed.run_cpu(counts, {.isa = isa, .n_threads = 3, .decompose_all = primitives});
      const std::string what = isa + (primitives ? " primitives" : " native");
      expect_close(got.values.at("y"), want.values.at("y"), width, width * rows, {.row = 1e-5}, what);
      EXPECT_TRUE(got.words.at("pool") == want.words.at("pool")) << what << ": other bytes in the cache";
    }
  }
  const Outcome one = bed.run_cpu(counts, {.n_threads = 1});
  const Outcome four = bed.run_cpu(counts, {.n_threads = 4});
  EXPECT_TRUE(
      std::equal(one.values.at("y").begin(), one.values.at("y").begin() + width * rows, four.values.at("y").begin()))
      << "results depend on the number of threads";
}

INSTANTIATE_TEST_SUITE_P(Forms, AttentionForm, testing::ValuesIn(cases()),
                         [](const auto& row) { return row.param.name; });

// One-hot keys: the softmax is known by hand.
TEST(Attention, PicksTheValueOfTheKeyThatAnswers) {
  TestBed bed(4, 1, 1);
  AttentionParams p = params(DType::f32, DType::f32, 1, 1, 4, 4);
  p.scale = 100.0f;
  std::vector<float> eye(16, 0.0f), values(16);
  for (std::size_t i = 0; i < 4; ++i) eye[5 * i] = 1.0f;
  std::iota(values.begin(), values.end(), 0.0f);
  const TensorId q = bed.input("q", Shape(4, 1, 4), Rows::tokens, eye);
  const TensorId k = bed.input("k", Shape(4, 1, 4), Rows::tokens, eye);
  const TensorId v = bed.input("v", Shape(4, 1, 4), Rows::tokens, values);
  const TensorId pool = bed.state("pool", std::vector<std::int32_t>(p.kv.block_bytes() / 4, 0));
  const TensorId spans =
      bed.input("spans", Shape(8, 1), Rows::fixed, std::vector<std::int32_t>{0, 4, 0, 0, 0, -1, 0, 0});
  const TensorId table = bed.input("table", Shape(1), Rows::fixed, std::vector<std::int32_t>{0});
  bed.output(bed.graph().attention({q, k, v}, {pool, spans, table}, {}, p, "y"), "y");
  const Outcome got = bed.run_cpu({4, 0, 1}, {.n_threads = 2});
  expect_close(got.values.at("y"), values, 4, 16, {.row = 1e-6}, "one-hot");
}

TEST(Attention, RunsItsPrimitivesWhenFlashIsOff) {
  TestBed bed(2, 1, 1);
  AttentionParams p = params(DType::f16, DType::f16, 2, 1, 8, 8);
  p.flash = false;
  const TensorId q = bed.random_input("q", Shape(8, 2, 2), Rows::tokens);
  const TensorId k = bed.random_input("k", Shape(8, 1, 2), Rows::tokens);
  const TensorId v = bed.random_input("v", Shape(8, 1, 2), Rows::tokens);
  const TensorId pool = bed.state("pool", std::vector<std::int32_t>(p.kv.block_bytes() / 4, 0));
  const TensorId spans =
      bed.input("spans", Shape(8, 1), Rows::fixed, std::vector<std::int32_t>{0, 2, 0, 0, 0, -1, 0, 0});
  const TensorId table = bed.input("table", Shape(1), Rows::fixed, std::vector<std::int32_t>{0});
  bed.output(bed.graph().attention({q, k, v}, {pool, spans, table}, {}, p, "y"), "y");
  const Outcome got = bed.run_cpu({2, 0, 1}, {.n_threads = 2});
  ASSERT_EQ(got.description.size(), 2u);
  EXPECT_EQ(got.description[0].rfind("kv_append", 0), 0u) << got.description[0];
  EXPECT_EQ(got.description[1].rfind("attn_dense", 0), 0u) << got.description[1];
}

}  // namespace
}  // namespace ggml::cpu::test
