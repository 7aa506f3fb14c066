#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "cpu/test_bed.h"
#include "ggml/quant.h"

namespace ggml::cpu::test {
namespace {

struct SpanCase {
  int n_rows, first_cell;
};

struct MlaCase {
  const char* name;
  int n_head, nope, n_rot, kv_rank, dv;
  DType cache, weights;
  int expand_from;
  bool split;  // separate matrices for keys and values, else one of both
  std::int64_t max_scratch;
  std::vector<SpanCase> spans;
};

const std::vector<SpanCase> kSpans{{1, 200}, {40, 30}, {2, 0}, {70, 100}};

const MlaCase kCases[] = {
    {"absorbed_f32", 4, 32, 32, 64, 32, DType::f32, DType::f32, 0, true, 0, kSpans},
    {"absorbed_f16", 3, 32, 16, 48, 24, DType::f16, DType::f32, 0, false, 0, kSpans},
    {"absorbed_q8_cache", 4, 32, 32, 64, 32, DType::q8_0, DType::f32, 0, false, 0, kSpans},
    {"absorbed_q8_weights", 4, 32, 32, 64, 32, DType::f16, DType::q8_0, 0, true, 0, kSpans},
    {"absorbed_in_many_passes", 4, 32, 32, 64, 32, DType::f16, DType::f32, 0, false, 4 * 96 * 4 * 7, kSpans},
    {"absorbed_in_splits", 8, 32, 16, 32, 32, DType::f16, DType::f32, 0, true, 0, {{1, 2900}, {2, 1500}, {9, 600}}},
    {"expanded_f32", 4, 32, 32, 64, 32, DType::f32, DType::f32, 1, true, 0, kSpans},
    {"expanded_f16", 3, 32, 16, 48, 24, DType::f16, DType::f32, 1, false, 0, kSpans},
    {"expanded_q8_cache", 4, 32, 32, 64, 32, DType::q8_0, DType::f32, 1, true, 0, kSpans},
    {"by_rows", 4, 32, 32, 64, 32, DType::f16, DType::f32, 40, false, 0, kSpans},
    {"released_size", 2, 128, 64, 512, 128, DType::f16, DType::f32, 60, false, 0, {{1, 130}, {70, 20}}},
};

class MlaForm : public testing::TestWithParam<MlaCase> {};

TEST_P(MlaForm, MatchesItsDecompositionInDoublePrecision) {
  const MlaCase& form = GetParam();
  constexpr int kTokens = 128, kTable = 120;
  TestBed bed(kTokens, 1, 23);
  MlaParams p;
  p.kv = {.k_type = form.cache, .v_type = form.cache, .n_head_kv = 1, .dk = form.kv_rank + form.n_rot, .dv = 0};
  p.n_head = form.n_head;
  p.nope = form.nope;
  p.n_rot = form.n_rot;
  p.kv_rank = form.kv_rank;
  p.dv = form.dv;
  p.scale = 1.0f / std::sqrt(static_cast<float>(form.nope + form.n_rot));
  p.expand_from = form.expand_from;
  p.max_scratch = form.max_scratch;
  p.k_up_rows = form.split ? form.nope : form.nope + form.dv;
  p.v_up_rows = form.split ? form.dv : form.nope + form.dv;
  p.v_up_begin = form.split ? 0 : form.nope;
  // Keys that the query absorbs and keys that are computed must be the same matrix, one the other's transpose.
  const Slot key_up = bed.slot(DType::f32, Shape(form.kv_rank, std::int64_t{p.k_up_rows} * form.n_head));
  const Slot value_up =
      form.split ? bed.slot(form.weights, Shape(form.kv_rank, std::int64_t{p.v_up_rows} * form.n_head)) : key_up;
  const Weight& up = *bed.graph().graph().at(key_up.weight).weight;
  const auto* up_values = reinterpret_cast<const float*>(up.placements.front().data);
  std::vector<float> absorbing;
  for (std::int64_t head = 0; head < form.n_head; ++head)
    for (std::int64_t l = 0; l < form.kv_rank; ++l)
      for (std::int64_t n = 0; n < form.nope; ++n)
        absorbing.push_back(up_values[(head * p.k_up_rows + n) * form.kv_rank + l]);
  const Weight& k_b = bed.weight_of(form.weights, Shape(form.nope, form.kv_rank, form.n_head), absorbing);

  int rows = 0;
  std::vector<std::int32_t> table, spans;
  for (const SpanCase& s : form.spans) {
    const int blocks = (s.first_cell + s.n_rows + kKvBlockTokens - 1) / kKvBlockTokens;
    spans.insert(spans.end(), {rows, s.n_rows, s.first_cell, static_cast<int>(table.size()), 0, -1, -1, -1});
    for (int b = 0; b < blocks; ++b) table.push_back(static_cast<std::int32_t>(table.size()));
    rows += s.n_rows;
  }
  spans.resize(8 * 6, -1);
  ASSERT_LE(table.size(), static_cast<std::size_t>(kTable));
  table.resize(kTable, -1);
  // Blocks of real values: encoded rows of noise.
  std::vector<std::int32_t> pool(p.kv.block_bytes() / 4 * kTable);
  {
    auto* bytes = reinterpret_cast<std::byte*>(pool.data());
    for (std::size_t b = 0; b < kTable; ++b) {
      std::byte* block = bytes + b * p.kv.block_bytes();
      const std::size_t n = std::size_t{kKvBlockTokens} * static_cast<std::size_t>(p.kv.dk);
      if (form.cache == DType::q8_0) {
        for (std::size_t i = 0; i < n; ++i) block[i] = static_cast<std::byte>(bed.random()() % 255);
        auto* scales = reinterpret_cast<std::uint16_t*>(block + p.kv.k_scales());
        for (std::size_t i = 0; i < n / 32; ++i) scales[i] = f32_to_f16(0.01f);
      } else {
        quantise_row(form.cache, bed.normal(static_cast<std::int64_t>(n), 1.0f), {}, block);
      }
    }
  }
  const TensorId q = bed.random_input("q", Shape(form.nope + form.n_rot, form.n_head, kTokens), Rows::tokens);
  const TensorId latent = bed.random_input("latent", Shape(form.kv_rank, kTokens), Rows::tokens);
  const TensorId k_rot = bed.random_input("k_rot", Shape(form.n_rot, 1, kTokens), Rows::tokens);
  const TensorId pool_port = bed.state("pool", pool);
  const TensorId span_port = bed.input("spans", Shape(8, 6), Rows::fixed, spans);
  const TensorId table_port = bed.input("table", Shape(kTable), Rows::fixed, table);
  const Slot slots[] = {
      {.weight = bed.graph().weight(k_b), .bias = {}, .scale = {}, .tapped = false}, key_up, value_up};
  bed.output(bed.graph().mla({q, latent, k_rot, {pool_port, span_port, table_port}}, slots, p, "y"), "y");

  const StepCounts counts{rows, 0, static_cast<int>(form.spans.size())};
  const Outcome want = bed.run_reference(counts);
  const std::int64_t width = std::int64_t{form.dv} * form.n_head;
  Tolerance tolerance{.row = 2e-5};
  if (form.weights == DType::q8_0) tolerance = {.row = 2e-5, .outlier_row = 0.02, .outlier_share = 0.3};
  for (const std::string& isa : isa_names())
    for (const bool primitives : {false, true}) {
      const Outcome got = bed.run_cpu(counts, {.isa = isa, .n_threads = 3, .decompose_all = primitives});
      const std::string what = isa + (primitives ? " primitives" : " native");
      expect_close(got.values.at("y"), want.values.at("y"), width, width * rows, tolerance, what);
      EXPECT_TRUE(got.words.at("pool") == want.words.at("pool")) << what << ": other bytes in the cache";
    }
  const Outcome one = bed.run_cpu(counts, {.n_threads = 1});
  const Outcome four = bed.run_cpu(counts, {.n_threads = 4});
  EXPECT_TRUE(
      std::equal(one.values.at("y").begin(), one.values.at("y").begin() + width * rows, four.values.at("y").begin()))
      << "results depend on the number of threads";
}

INSTANTIATE_TEST_SUITE_P(Forms, MlaForm, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(MlaExpand, MatchesItsDecompositionInDoublePrecision) {
  TestBed bed(8, 1, 3);
  const MlaExpandParams p{
      .n_head = 3, .nope = 32, .n_rot = 16, .dv = 24, .k_up_rows = 56, .v_up_rows = 56, .v_up_begin = 32};
  const TensorId latent = bed.random_input("latent", Shape(64, 8), Rows::tokens);
  const TensorId k_rot = bed.random_input("k_rot", Shape(16, 1, 8), Rows::tokens);
  const Slot up = bed.slot(DType::f32, Shape(64, 56 * 3));
  const TensorId src[] = {latent, k_rot};
  const Slot slots[] = {up, up};
  const std::vector<TensorId> dst = bed.graph().add(Op::mla_expand, p, src, slots, "kv");
  bed.output(dst[0], "k");
  bed.output(dst[1], "v");
  const StepCounts counts{5, 0, 0};
  const Outcome want = bed.run_reference(counts);
  const Outcome got = bed.run_cpu(counts, {.n_threads = 2});
  expect_close(got.values.at("k"), want.values.at("k"), 48 * 3, 48 * 3 * 5, {.row = 1e-5}, "k");
  expect_close(got.values.at("v"), want.values.at("v"), 24 * 3, 24 * 3 * 5, {.row = 1e-5}, "v");
}

}  // namespace
}  // namespace ggml::cpu::test
