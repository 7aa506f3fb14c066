#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <string>

#include "ggml/error.h"
#include "ggml/graph.h"
#include "ggml/sample_row.h"

namespace ggml {
namespace {

class GraphBuilderTest : public ::testing::Test {
 protected:
  TensorId activation(const Shape& shape, Rows rows = Rows::tokens) {
    return b.port(PortId(n_ports_++), "x", DType::f32, shape, rows);
  }
  TensorId integers(const Shape& shape, Rows rows = Rows::tokens) {
    return b.port(PortId(n_ports_++), "ids", DType::i32, shape, rows);
  }
  Slot slot(const Shape& shape, DType type = DType::q4_0) {
    weights_.push_back({"w" + std::to_string(weights_.size()), type, shape, {}});
    return {b.weight(weights_.back()), {}, {}, false};
  }
  Slot vec(int n) { return slot(Shape(n), DType::f32); }

  template <class F>
  std::string refusal(F&& f, ErrorCode code = ErrorCode::invalid_file) {
    try {
      f();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      return error.message();
    }
    ADD_FAILURE() << "nothing was refused";
    return {};
  }

  std::vector<std::string> ops_of(const Graph& g) {
    std::vector<std::string> names;
    for (const Node& node : g.nodes) names.emplace_back(op_name(node.op));
    return names;
  }

  GraphBuilder b{4, 2};

 private:
  int n_ports_ = 0;
  std::deque<Weight> weights_;
};

using Names = std::vector<std::string>;

TEST_F(GraphBuilderTest, NamesNodeSlotAndShapesWhenAWeightDoesNotFit) {
  const Slot slots[] = {slot(Shape(4096, 1536)), slot(Shape(4096, 1536)), slot(Shape(1408, 4096))};
  const TensorId x = activation(Shape(4096, 4));
  EXPECT_EQ(refusal([&] { (void)b.ffn(x, slots, {}, "ffn-3"); }),
            "ffn-3: slot down is 1408 x 4096 (w2), expected 1536 x any");
  EXPECT_EQ(b.graph().nodes.size(), 0u) << "a refused node leaves nothing behind";
}

TEST_F(GraphBuilderTest, RefusesWrongBiasesScalesAndTypes) {
  const TensorId x = activation(Shape(64, 4));
  Slot w = slot(Shape(64, 32));
  w.bias = vec(31).weight;
  EXPECT_EQ(refusal([&] { (void)b.linear(x, w, "out-1"); }), "out-1: bias of slot weight is 31 (w1), expected 32");
  w.bias = {};
  w.scale = vec(3).weight;
  EXPECT_EQ(refusal([&] { (void)b.linear(x, w, "out-1"); }), "out-1: scale of slot weight is 3 (w2), expected 1");
  EXPECT_EQ(refusal([&] { (void)b.norm(x, slot(Shape(64), DType::f16), {}, "norm-1"); }),
            "norm-1: slot weight w3 is F16, expected F32");
  EXPECT_EQ(refusal([&] { (void)b.linear(x, slot(Shape(64, 8), DType::i32), "out"); }),
            "out: slot weight is I32 (w4): integers are no weights");
}

TEST_F(GraphBuilderTest, RefusesImpossibleParameters) {
  const TensorId x = activation(Shape(64, 4));
  const Slot proj[] = {slot(Shape(64, 64)), slot(Shape(64, 32)), slot(Shape(64, 32))};
  QkvParams qkv{5, 2, 16, 16};
  EXPECT_EQ(refusal([&] { (void)b.qkv(x, proj, qkv, "qkv-0"); }),
            "qkv-0: 5 query heads over 2 key heads of 16 and 16 elements");
  qkv.n_head = 6;
  EXPECT_EQ(refusal([&] { (void)b.qkv(x, proj, qkv, "qkv-0"); }), "qkv-0: slot q is 64 x 64 (w0), expected 64 x 96");
  MoeRouteParams route;
  route.n_expert = 4;
  route.n_used = 5;
  const Slot router = slot(Shape(64, 4));
  EXPECT_EQ(refusal([&] { (void)b.moe_route(x, {&router, 1}, route, "route-0"); }), "route-0: 5 of 4 experts used");
}

TEST_F(GraphBuilderTest, TellsACallersMistakeFromABadFile) {
  EXPECT_EQ(refusal([&] { (void)b.linear(TensorId(), slot(Shape(64, 8)), "out"); }, ErrorCode::internal),
            "out: x is missing (tensor -1 of 1)");
  const TensorId x = activation(Shape(64, 4));
  EXPECT_EQ(refusal([&] { (void)b.ffn(x, {}, {}, "ffn"); }, ErrorCode::internal), "ffn: 0 slots, expected 3");
}

TEST_F(GraphBuilderTest, GivesTheSameWeightTheSameId) {
  Weight w{"token_embd.weight", DType::f32, Shape(8, 16), {}};
  EXPECT_EQ(b.weight(w), b.weight(w));
}

TEST_F(GraphBuilderTest, NamesFurtherResultsByNumber) {
  const TensorId x = activation(Shape(64, 4));
  const auto r = b.add_norm(x, activation(Shape(64, 4)), vec(64), {}, "ffn_norm-7");
  EXPECT_EQ(b.graph().at(r.normed).name, "ffn_norm-7");
  EXPECT_EQ(b.graph().at(r.sum).name, "ffn_norm-7.1");
}

TEST_F(GraphBuilderTest, SelectedRowsCountAsOutputs) {
  const TensorId x = activation(Shape(64, 4));
  const TensorId y = b.select_rows(x, integers(Shape(2), Rows::outputs), "result_rows");
  EXPECT_EQ(b.graph().at(y).shape, Shape(64, 2));
  EXPECT_EQ(b.graph().at(y).rows, Rows::outputs);
  EXPECT_EQ(b.graph().at(b.linear(y, slot(Shape(64, 100)), "logits")).rows, Rows::outputs);
}

TEST_F(GraphBuilderTest, CopiesOutputsThatHaveNoBytesOfTheirOwn) {
  const TensorId x = activation(Shape(64, 4));
  const TensorId y = b.add(x, x, "y");
  b.output(b.reshape(y, Shape(8, 8, 4), "view"), PortId(10));
  EXPECT_EQ(b.graph().at(y).port, PortId(10)) << "a whole view is its base";
  EXPECT_EQ(b.graph().nodes.size(), 1u);
  b.output(y, PortId(11));
  b.output(x, PortId(12));
  EXPECT_EQ(ops_of(b.graph()), (Names{"add", "copy", "copy"}));
}

TEST_F(GraphBuilderTest, RoundsActivationsOncePerForm) {
  const TensorId x = activation(Shape(256, 4));
  const Slot proj[] = {slot(Shape(256, 64), DType::q4_k), slot(Shape(256, 32), DType::q4_k),
                       slot(Shape(256, 32), DType::q8_0)};
  (void)b.qkv(x, proj, QkvParams{4, 2, 16, 16}, "qkv");
  const Graph g = decompose(b.graph());
  EXPECT_EQ(ops_of(g), (Names{"quantise_act", "mul_mat", "mul_mat", "quantise_act", "mul_mat"}));
}

TEST_F(GraphBuilderTest, LeavesF32ProductsUnrounded) {
  (void)b.linear(activation(Shape(64, 4)), slot(Shape(64, 8), DType::f32), "y");
  EXPECT_EQ(ops_of(decompose(b.graph())), (Names{"mul_mat"}));
}

TEST_F(GraphBuilderTest, KeepsResultsNamesIdsAndPortsThroughDecomposition) {
  const TensorId x = activation(Shape(64, 4));
  const Slot fused = slot(Shape(64, 64 + 32 + 32));
  QkvParams params{4, 2, 16, 16, true};
  const auto qkv = b.qkv(x, {&fused, 1}, params, "qkv-0");
  const TensorId y = b.linear(b.reshape(qkv.q, Shape(64, 4), "q_flat"), slot(Shape(64, 64)), "out-0");
  b.output(y, PortId(9));
  b.observe(qkv.k);
  const Graph g = decompose(b.graph());
  for (std::size_t i = 0; i < b.graph().tensors.size(); ++i) {
    EXPECT_EQ(g.tensors[i].name, b.graph().tensors[i].name);
    EXPECT_EQ(g.tensors[i].port, b.graph().tensors[i].port);
    EXPECT_EQ(g.tensors[i].shape, b.graph().tensors[i].shape);
    EXPECT_EQ(g.tensors[i].observed, b.graph().tensors[i].observed);
  }
  // Rows of the fused matrix are views of the weight: q4_0 rows of 64 have 36 bytes.
  const Node& k = g.nodes[2];
  EXPECT_EQ(op_name(k.op), std::string("mul_mat"));
  EXPECT_EQ(g.at(k.src[0]).offset_bytes, 64 * 36);
  EXPECT_EQ(g.at(k.src[0]).shape, Shape(64, 32));
  EXPECT_EQ(g.at(k.dst[0]).base, qkv.k);
  for (const Node& node : g.nodes) EXPECT_TRUE(is_primitive(node.op));
}

TEST_F(GraphBuilderTest, DecomposesOnlyWhatTheDeviceDeclines) {
  const TensorId x = activation(Shape(64, 4));
  const Slot slots[] = {slot(Shape(64, 96)), slot(Shape(64, 96)), slot(Shape(96, 64))};
  (void)b.ffn(b.norm(x, vec(64), {}, "norm"), slots, {}, "ffn");
  const auto keep = [](const Graph&, const Node& node, const void*) { return node.op == Op::norm; };
  EXPECT_EQ(ops_of(decompose(b.graph(), keep, nullptr)),
            (Names{"norm", "quantise_act", "mul_mat", "mul_mat", "gated", "quantise_act", "mul_mat"}));
}

TEST_F(GraphBuilderTest, CountsWeightsOnceAndActivationsByRealRows) {
  const TensorId x = activation(Shape(64, 4));
  const TensorId y = b.linear(b.add(x, x, "a"), slot(Shape(64, 32)), "y");
  (void)y;
  const Node& node = b.graph().nodes.back();
  const Cost cost = node_cost(b.graph(), node, 2);
  EXPECT_DOUBLE_EQ(cost.weight_bytes, 32 * 36);
  EXPECT_DOUBLE_EQ(cost.act_bytes, 2 * (64 + 32) * 4);
  EXPECT_DOUBLE_EQ(cost.flops, 2.0 * 64 * 32 * 2);
}

TEST_F(GraphBuilderTest, ExpectsDistinctExpertsToBeReadOnce) {
  const TensorId x = activation(Shape(64, 4));
  const Slot stacks[] = {slot(Shape(64, 32, 8)), slot(Shape(64, 32, 8)), slot(Shape(32, 64, 8))};
  MoeFfnParams p;
  p.n_expert = 8;
  p.n_used = 2;
  (void)b.moe_ffn(x, {integers(Shape(2, 4)), activation(Shape(2, 4))}, stacks, p, "moe");
  const Cost one = node_cost(b.graph(), b.graph().nodes.back(), 1);
  const double stack = 8 * (32 * 36 + 32 * 36 + 64 * 18);
  EXPECT_NEAR(one.weight_bytes, stack * 2 / 8, 1e-6);
  EXPECT_DOUBLE_EQ(one.flops, 2.0 * 3 * 64 * 32 * 2);
  EXPECT_NEAR(node_cost(b.graph(), b.graph().nodes.back(), 4).weight_bytes, stack * (1 - std::pow(0.75, 4)), 1e-6);
}

TEST(OpTable, SaysHowOpsSplit) {
  EXPECT_EQ(shard_rule(Op::linear).result, ShardResult::slice);
  EXPECT_EQ(shard_rule(Op::attention).axis, PlacementAxis::heads);
  EXPECT_EQ(shard_rule(Op::moe_ffn).result, ShardResult::partial_sum);
  EXPECT_EQ(shard_rule(Op::norm).result, ShardResult::none);
  EXPECT_FALSE(is_primitive(Op::moe_ffn));
  EXPECT_TRUE(is_primitive(Op::attn_dense));
  EXPECT_STREQ(op_name(Op::quantise_act), "quantise_act");
}

TEST(SampleStructs, AreWholeWords) {
  static_assert(sizeof(SampleRow) % 4 == 0 && sizeof(SampleAdjust) == 16 && sizeof(SampleResult) % 4 == 0);
}

}  // namespace
}  // namespace ggml
