#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <string>

#include "ggml/graph.h"

namespace ggml {
namespace {

struct Live {
  int first = INT32_MAX, last = -1;
};

TensorId base_of(const Graph& g, TensorId id) {
  return g.at(id).role == TensorRole::view ? g.at(id).base : id;
}

std::vector<Live> lifetimes(const Graph& g) {
  std::vector<Live> live(g.tensors.size());
  for (int n = 0; n < static_cast<int>(g.nodes.size()); ++n) {
    const Node& node = g.nodes[static_cast<std::size_t>(n)];
    auto touch = [&](TensorId id) {
      Live& l = live[static_cast<std::size_t>(base_of(g, id).v)];
      l.first = std::min(l.first, n);
      l.last = std::max(l.last, n);
    };
    for (TensorId id : node.src) touch(id);
    for (TensorId id : node.dst) touch(id);
    for (const Slot& s : node.slots)
      for (TensorId id : {s.weight, s.bias, s.scale})
        if (id.valid()) touch(id);
  }
  return live;
}

bool may_share(const Graph& g, int node, std::size_t a, std::size_t b) {
  const Node& n = g.nodes[static_cast<std::size_t>(node)];
  const bool in_place = n.op == Op::add || n.op == Op::mul || n.op == Op::unary;
  const auto dst = static_cast<std::size_t>(base_of(g, n.dst[0]).v);
  const auto src = static_cast<std::size_t>(base_of(g, n.src[0]).v);
  return in_place && ((dst == b && src == a) || (dst == a && src == b));
}

// No two tensors that are alive at one time overlap, but for an elementwise result on top of its first operand.
void expect_sound(const Graph& g, const MemoryPlan& plan) {
  const std::vector<Live> live = lifetimes(g);
  auto bytes = [&](std::size_t i) { return tensor_bytes(g.tensors[i].type, g.tensors[i].shape); };
  for (std::size_t a = 0; a < g.tensors.size(); ++a) {
    if (plan.offsets[a] == kNotInArena || g.tensors[a].role == TensorRole::view) continue;
    EXPECT_EQ(plan.offsets[a] % kArenaAlignment, 0u);
    EXPECT_LE(plan.offsets[a] + bytes(a), plan.arena_bytes);
    for (std::size_t b = a + 1; b < g.tensors.size(); ++b) {
      if (plan.offsets[b] == kNotInArena || g.tensors[b].role == TensorRole::view) continue;
      const bool apart = plan.offsets[a] + bytes(a) <= plan.offsets[b] || plan.offsets[b] + bytes(b) <= plan.offsets[a];
      const Live &x = live[a], &y = live[b];
      if (apart || x.last < y.first || y.last < x.first) continue;
      const int meeting = std::max(x.first, y.first);
      EXPECT_TRUE(meeting == std::min(x.last, y.last) && may_share(g, meeting, a, b))
          << g.tensors[a].name << " and " << g.tensors[b].name;
    }
  }
  EXPECT_GE(plan.arena_bytes, plan.max_live_bytes);
}

MemoryPlan plan_of(const Graph& g, std::span<const std::size_t> scratch = {}) {
  std::vector<std::size_t> offsets;
  return plan_memory(g, scratch, offsets);
}

Graph random_graph(std::mt19937& random) {
  GraphBuilder b(8, 1);
  std::vector<TensorId> values{b.port(PortId(0), "x", DType::f32, Shape(64, 8), Rows::tokens)};
  std::vector<Weight> weights(1 + random() % 60);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const TensorId x = values[values.size() - 1 - random() % std::min<std::size_t>(values.size(), 5)];
    const Shape shape = b.graph().at(x).shape;
    const std::string name = "t" + std::to_string(i);
    switch (random() % 4) {
      case 0:
        values.push_back(b.unary(x, {UnaryKind::scale, Activation::none, 2.0f}, name));
        break;
      case 1:
        values.push_back(b.add(x, x, name));
        break;
      case 2:
        values.push_back(b.reshape(x, Shape(shape[0] / 2, 2, 8), name));
        break;
      default:
        weights[i] = {name + ".weight", DType::f32, Shape(shape[0], 2 * (1 + static_cast<int>(random() % 300))), {}};
        values.push_back(b.linear(x, {b.weight(weights[i]), {}, {}, false}, name));
        break;
    }
    const Shape made = b.graph().at(values.back()).shape;
    if (made[2] > 1 || made[0] % 2 != 0)
      values.back() = b.reshape(values.back(), Shape(made.elements() / 8, 8), name + ".flat");
  }
  return b.take();
}

TEST(MemoryPlan, NeverOverlapsLiveTensorsOfRandomGraphs) {
  std::mt19937 random(11);
  double worst = 1;
  for (int round = 0; round < 300; ++round) {
    const Graph g = random_graph(random);
    const MemoryPlan plan = plan_of(g);
    expect_sound(g, plan);
    if (plan.max_live_bytes > 0)
      worst = std::max(worst, static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.max_live_bytes));
  }
  RecordProperty("worst_percent", static_cast<int>(worst * 100));
  EXPECT_LE(worst, 1.15);
}

struct Sizes {
  int n_embd, n_head, n_head_kv, dk, n_ff, n_expert, n_used;
};

// Layers as a model builds them; weights live in `weights`.
Graph transformer(const Sizes& s, int tokens, int layers, std::deque<Weight>& weights) {
  GraphBuilder b(tokens, 1);
  auto slot = [&](const Shape& shape) {
    weights.push_back({"w" + std::to_string(weights.size()), DType::q4_0, shape, {}});
    return Slot{b.weight(weights.back()), {}, {}, false};
  };
  auto vec = [&](int n) {
    weights.push_back({"v" + std::to_string(weights.size()), DType::f32, Shape(n), {}});
    return Slot{b.weight(weights.back()), {}, {}, false};
  };
  TensorId x = b.port(PortId(0), "x", DType::f32, Shape(s.n_embd, tokens), Rows::tokens);
  const TensorId pos = b.port(PortId(1), "pos", DType::i32, Shape(tokens), Rows::tokens);
  const GraphBuilder::AttentionInputs cache{b.port(PortId(2), "pool", DType::i32, Shape(1024), Rows::fixed),
                                            b.port(PortId(3), "spans", DType::i32, Shape(8, 4), Rows::fixed),
                                            b.port(PortId(4), "table", DType::i32, Shape(64), Rows::fixed)};
  for (int il = 0; il < layers; ++il) {
    const std::string tag = "-" + std::to_string(il);
    const TensorId normed = b.norm(x, vec(s.n_embd), {}, "attn_norm" + tag);
    const Slot proj[] = {slot(Shape(s.n_embd, s.n_head * s.dk)), slot(Shape(s.n_embd, s.n_head_kv * s.dk)),
                         slot(Shape(s.n_embd, s.n_head_kv * s.dk)), vec(s.dk), vec(s.dk)};
    QkvParams qkv_params{s.n_head, s.n_head_kv, s.dk, s.dk, false, true};
    RopeParams rope_params;
    rope_params.n_rot = s.dk;
    const auto qkv = b.rope_qk(b.qkv(normed, proj, qkv_params, "qkv" + tag), pos, {}, rope_params, "rope" + tag);
    AttentionParams attn;
    attn.kv = {DType::f16, DType::f16, s.n_head_kv, s.dk, s.dk};
    attn.n_head = s.n_head;
    const TensorId o = b.attention(qkv, cache, {}, attn, "attn" + tag);
    const TensorId out = b.linear(o, slot(Shape(s.n_head * s.dk, s.n_embd)), "attn_out" + tag);
    const auto both = b.add_norm(out, x, vec(s.n_embd), {}, "ffn_norm" + tag);
    TensorId f;
    if (s.n_expert > 0) {
      const Slot router = slot(Shape(s.n_embd, s.n_expert));
      MoeRouteParams rp;
      rp.n_expert = s.n_expert;
      rp.n_used = s.n_used;
      const auto route = b.moe_route(both.normed, {&router, 1}, rp, "ffn_route" + tag);
      const Slot e[] = {slot(Shape(s.n_embd, s.n_ff, s.n_expert)), slot(Shape(s.n_embd, s.n_ff, s.n_expert)),
                        slot(Shape(s.n_ff, s.n_embd, s.n_expert))};
      MoeFfnParams mp;
      mp.n_expert = s.n_expert;
      mp.n_used = s.n_used;
      f = b.moe_ffn(both.normed, route, e, mp, "ffn_moe" + tag);
    } else {
      const Slot e[] = {slot(Shape(s.n_embd, s.n_ff)), slot(Shape(s.n_embd, s.n_ff)), slot(Shape(s.n_ff, s.n_embd))};
      f = b.ffn(both.normed, e, {}, "ffn" + tag);
    }
    x = b.add(f, both.sum, "l_out" + tag);
  }
  b.output(x, PortId(5));
  return b.take();
}

TEST(MemoryPlan, NeedsAtMostATenthMoreThanLiveOnTransformers) {
  const Sizes shapes[] = {{4096, 32, 8, 128, 14336, 0, 0},
                          {2048, 32, 4, 128, 768, 128, 8},
                          {576, 9, 3, 64, 1536, 0, 0},
                          {640, 4, 1, 256, 2048, 0, 0}};
  for (const Sizes& s : shapes)
    for (int tokens : {1, 4, 512})
      for (bool primitives : {false, true}) {
        std::deque<Weight> weights;
        Graph g = transformer(s, tokens, 3, weights);
        if (primitives) g = decompose(g);
        std::vector<std::size_t> scratch;
        for (std::size_t i = 0; i < g.nodes.size(); ++i) scratch.push_back(i % 3 == 0 ? 64 * (i % 7) * 1024 : 0);
        const MemoryPlan plan = plan_of(g, scratch);
        expect_sound(g, plan);
        EXPECT_LE(static_cast<double>(plan.arena_bytes), 1.1 * static_cast<double>(plan.max_live_bytes))
            << s.n_embd << " x " << tokens;
      }
}

TEST(MemoryPlan, KeepsTheBaseOfAViewAlive) {
  GraphBuilder b(1, 1);
  const TensorId x = b.port(PortId(0), "x", DType::f32, Shape(64), Rows::fixed);
  const TensorId a = b.add(x, x, "a");
  const TensorId view = b.reshape(a, Shape(8, 8), "view");
  const TensorId c = b.add(x, x, "c");
  const TensorId d = b.add(view, b.reshape(c, Shape(8, 8), "c8"), "d");
  const Graph& g = b.graph();
  const MemoryPlan plan = plan_of(g);
  EXPECT_EQ(plan.offsets[static_cast<std::size_t>(view.v)], plan.offsets[static_cast<std::size_t>(a.v)]);
  EXPECT_NE(plan.offsets[static_cast<std::size_t>(c.v)], plan.offsets[static_cast<std::size_t>(a.v)]);
  EXPECT_EQ(plan.arena_bytes, 512u);
  (void)d;
}

TEST(MemoryPlan, ReusesTheFirstOperandOfElementwiseOps) {
  GraphBuilder b(1, 1);
  const TensorId x = b.port(PortId(0), "x", DType::f32, Shape(64), Rows::fixed);
  const TensorId a = b.add(x, x, "a");
  const TensorId c = b.unary(a, {UnaryKind::scale, Activation::none, 2.0f}, "c");
  const TensorId d = b.add(c, c, "d");
  const MemoryPlan plan = plan_of(b.graph());
  EXPECT_EQ(plan.offsets[static_cast<std::size_t>(d.v)], plan.offsets[static_cast<std::size_t>(a.v)]);
  EXPECT_EQ(plan.arena_bytes, 256u);
}

TEST(MemoryPlan, LeavesPortsAndOutputsOutsideTheArena) {
  GraphBuilder b(1, 1);
  const TensorId x = b.port(PortId(0), "x", DType::f32, Shape(64), Rows::fixed);
  const TensorId y = b.add(x, x, "y");
  b.output(y, PortId(1));
  const MemoryPlan plan = plan_of(b.graph());
  EXPECT_EQ(plan.offsets[static_cast<std::size_t>(x.v)], kNotInArena);
  EXPECT_EQ(plan.offsets[static_cast<std::size_t>(y.v)], kNotInArena);
  EXPECT_EQ(plan.arena_bytes, 0u);
}

TEST(MemoryPlan, ScratchLivesOnlyDuringItsNode) {
  GraphBuilder b(1, 1);
  const TensorId x = b.port(PortId(0), "x", DType::f32, Shape(64), Rows::fixed);
  const TensorId a = b.add(x, x, "a");
  b.output(b.add(a, a, "y"), PortId(1));
  const std::size_t scratch[] = {1000, 2000};
  std::vector<std::size_t> offsets;
  const MemoryPlan plan = plan_memory(b.graph(), scratch, offsets);
  EXPECT_EQ(plan.arena_bytes, 256u + 2048u);
  EXPECT_NE(offsets[0], kNotInArena);
  EXPECT_EQ(offsets[0] % kArenaAlignment, 0u);
}

}  // namespace
}  // namespace ggml
