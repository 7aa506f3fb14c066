#include <gtest/gtest.h>

#include "cpu/test_bed.h"
#include "ggml/error.h"

namespace ggml::cpu::test {
namespace {

TEST(HadamardOp, MatchesTheEvaluatorOverRealRowsOnly) {
  for (const int dim : {1, 2, 16, 64, 128, 256}) {
    for (const int heads : {1, 3}) {
      TestBed bed(8, 1, 5);
      const TensorId x = bed.random_input("x", Shape(dim, heads, 8), Rows::tokens);
      bed.output(bed.graph().add(Op::hadamard, HadamardParams{}, {&x, 1}, {}, "y").front(), "y");
      const StepCounts counts{5, 0, 0};
      const Outcome want = bed.run_reference(counts);
      for (const int threads : {1, 3}) {
        const Outcome got = bed.run_cpu(counts, {.n_threads = threads});
        expect_close(got.values.at("y"), want.values.at("y"), dim, std::int64_t{5} * heads * dim, {.row = 1e-6},
                     std::to_string(dim) + " elements");
      }
    }
  }
}

TEST(HadamardOp, LeavesAttentionAsItIsWhenQueriesAndKeysAreBothRotated) {
  TestBed bed(16, 1, 6);
  AttentionParams p;
  p.kv = {.k_type = DType::f32, .v_type = DType::f32, .n_head_kv = 2, .dk = 64, .dv = 32};
  p.n_head = 4;
  p.scale = 0.125f;
  const auto rotated = [&](TensorId x, const char* name) {
    return bed.graph().add(Op::hadamard, HadamardParams{}, {&x, 1}, {}, name).front();
  };
  const TensorId q = bed.random_input("q", Shape(64, 4, 16), Rows::tokens);
  const TensorId k = bed.random_input("k", Shape(64, 2, 16), Rows::tokens);
  const TensorId v = bed.random_input("v", Shape(32, 2, 16), Rows::tokens);
  const TensorId spans =
      bed.input("spans", Shape(8, 1), Rows::fixed, std::vector<std::int32_t>{0, 16, 0, 0, 0, -1, 0, 0});
  const TensorId table = bed.input("table", Shape(1), Rows::fixed, std::vector<std::int32_t>{0});
  const std::vector<std::int32_t> empty(p.kv.block_bytes() / 4, 0);
  const TensorId plain_pool = bed.state("plain pool", empty), pool = bed.state("pool", empty);
  bed.output(bed.graph().attention({q, k, v}, {plain_pool, spans, table}, {}, p, "plain"), "plain");
  const TensorId heads = bed.graph().attention({rotated(q, "q_h"), rotated(k, "k_h"), rotated(v, "v_h")},
                                               {pool, spans, table}, {}, p, "heads");
  const TensorId apart = bed.graph().reshape(heads, Shape(32, 4, 16), "apart");
  bed.output(rotated(apart, "back"), "back");
  const Outcome got = bed.run_cpu({16, 0, 1}, {.n_threads = 2});
  expect_close(got.values.at("back"), got.values.at("plain"), 128, 128 * 16, {.row = 1e-6}, "rotated");
}

TEST(HadamardOp, RefusesSizesThatAreNoPowersOfTwo) {
  TestBed bed(4, 1, 7);
  const TensorId x = bed.random_input("x", Shape(96, 2, 4), Rows::tokens);
  try {
    (void)bed.graph().add(Op::hadamard, HadamardParams{}, {&x, 1}, {}, "y");
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("a Hadamard transform of 96 elements, expected a power of two"), std::string::npos)
        << error.message();
  }
}

}  // namespace
}  // namespace ggml::cpu::test
