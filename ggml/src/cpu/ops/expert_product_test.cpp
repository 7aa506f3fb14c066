#include <gtest/gtest.h>

#include "cpu/test_bed.h"

// Products of experts as single nodes: what is left of an expert feed-forward whose weights lie on several devices.

namespace ggml::cpu::test {
namespace {

struct Case {
  DType type;
  int tokens;
  bool row_per_pair;
};

Outcome run(const Case& c, bool decompose_all, int n_threads, bool reference) {
  constexpr int kK = 256, kN = 80, kExperts = 6, kUsed = 3;
  TestBed bed(c.tokens, 1, 21);
  GraphBuilder& b = bed.graph();
  const TensorId w = bed.weight_id(c.type, Shape(kK, kN, kExperts), 1.0f / 16);
  const TensorId x = bed.random_input("x", Shape(kK, c.row_per_pair ? kUsed : 1, c.tokens), Rows::tokens);
  std::vector<std::int32_t> ids;
  ids.reserve(std::size_t{kUsed} * static_cast<std::size_t>(c.tokens));
  for (int i = 0; i < kUsed * c.tokens; ++i) ids.push_back(i % 7 == 3 ? -1 : (i * 5) % kExperts);
  const TensorId chosen = bed.input("ids", Shape(kUsed, c.tokens), Rows::tokens, ids);
  const ActType form = type_info(c.type).act;
  const TensorId rounded = b.add(Op::quantise_act, QuantiseActParams{form}, std::vector<TensorId>{x}, {}, "r").front();
  bed.output(b.add(Op::mul_mat_id, MulMatIdParams{}, std::vector<TensorId>{w, rounded, chosen}, {}, "y").front(), "y");
  const StepCounts counts{.n_tokens = c.tokens, .n_outputs = 0, .n_spans = 1};
  if (reference) return bed.run_reference(counts);
  return bed.run_cpu(counts, {.n_threads = n_threads, .decompose_all = decompose_all});
}

TEST(ExpertProduct, GivesWhatThePrimitiveMeans) {
  for (const DType type : {DType::f32, DType::q8_0, DType::q4_k, DType::q6_k, DType::iq4_nl})
    for (const int tokens : {1, 3, 40})
      for (const bool row_per_pair : {false, true}) {
        const Case c{type, tokens, row_per_pair};
        const Outcome want = run(c, false, 1, true);
        for (const int n_threads : {1, 3}) {
          const Outcome got = run(c, false, n_threads, false);
          EXPECT_NE(got.description.back().find("expert_product"), std::string::npos) << got.description.back();
          expect_close(got.values.at("y"), want.values.at("y"), 80, std::int64_t{80} * 3 * tokens, {},
                       std::string(type_info(type).id) + ", " + std::to_string(tokens) + " tokens");
        }
        EXPECT_EQ(run(c, true, 1, false).description.back().find("expert_product"), std::string::npos);
      }
}

}  // namespace
}  // namespace ggml::cpu::test
