#include "cuda/op_table.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "cuda/planes.h"
#include "cuda/program.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/sample_row.h"

namespace ggml::cuda {
namespace {

// Sizes that every type can have: rows of whole blocks, whole groups of rows.
constexpr int kWide = 256, kTokens = 4, kHeads = 2, kExperts = 16, kUsed = 2, kSpans = 2;

/// Builds graphs of one node.
class OneNode {
 public:
  [[nodiscard]] GraphBuilder& builder() { return b_; }
  TensorId floats(const Shape& shape) { return b_.port(PortId(n_ports_++), "x", DType::f32, shape, Rows::tokens); }
  TensorId integers(const Shape& shape, Rows rows = Rows::fixed) {
    return b_.port(PortId(n_ports_++), "n", DType::i32, shape, rows);
  }
  TensorId weight(DType type, const Shape& shape) {
    weights_.push_back({"w" + std::to_string(weights_.size()), type, shape, {}});
    return b_.weight(weights_.back());
  }
  Slot slot(DType type, const Shape& shape) {
    Slot s;
    s.weight = weight(type, shape);
    return s;
  }
  TensorId spans() { return integers(Shape(8, kSpans)); }
  GraphBuilder::AttentionInputs cache() { return {integers(Shape(1)), spans(), integers(Shape(16))}; }
  void add(Op op, const OpParams& params, std::initializer_list<TensorId> src, std::span<const Slot> slots = {}) {
    (void)b_.add(op, params, std::span(src.begin(), src.size()), slots, "y");
  }
  [[nodiscard]] const Graph& graph() const { return b_.graph(); }

 private:
  GraphBuilder b_{kTokens, kTokens};
  std::deque<Weight> weights_;
  int n_ports_ = 0;
};

/// "native", the primitives that the op is run as, or why it cannot be run.
struct Answer {
  bool native = false, runs = true;
  std::string text;
};

Answer ask(const Graph& graph) {
  if (declines(graph, graph.nodes.back()) == nullptr) return {true, true, "native"};
  try {
    const LoweredGraph lowered = lower(graph, {});
    std::vector<std::string> ops;
    for (const Node& node : lowered.graph.nodes) {
      if (std::find(ops.begin(), ops.end(), op_name(node.op)) == ops.end()) ops.emplace_back(op_name(node.op));
    }
    std::string text = "as";
    for (const std::string& op : ops) text += (op == ops.front() ? " " : ", ") + op;
    return {false, true, text};
  } catch (const Error& error) {
    return {false, false, error.message()};
  }
}

// Ops with weights, by the type of these.

using Build = void (*)(OneNode& node, DType type);

MlaParams mla_params(DType cache) {
  MlaParams p;
  p.kv = {.k_type = cache, .v_type = cache, .n_head_kv = 1, .dk = kWide + 64, .dv = 0};
  p.n_head = kHeads;
  p.nope = p.kv_rank = p.dv = p.k_up_rows = p.v_up_rows = kWide;
  p.n_rot = 64;
  return p;
}

void build_mla(OneNode& n, DType weights, DType cache) {
  const Slot slots[] = {n.slot(weights, Shape(kWide, kWide, kHeads)), n.slot(weights, Shape(kWide, kWide * kHeads)),
                        n.slot(weights, Shape(kWide, kWide * kHeads))};
  const GraphBuilder::MlaInputs inputs{n.floats(Shape(kWide + 64, kHeads, kTokens)), n.floats(Shape(kWide, kTokens)),
                                       n.floats(Shape(64, 1, kTokens)), n.cache()};
  (void)n.builder().mla(inputs, slots, mla_params(cache), "y");
}

void build_mla_expand(OneNode& n, DType type) {
  const MlaExpandParams p{.n_head = kHeads,
                          .nope = kWide,
                          .n_rot = 64,
                          .dv = kWide,
                          .k_up_rows = kWide,
                          .v_up_rows = kWide,
                          .v_up_begin = 0};
  const Slot slots[] = {n.slot(type, Shape(kWide, kWide * kHeads)), n.slot(type, Shape(kWide, kWide * kHeads))};
  n.add(Op::mla_expand, p, {n.floats(Shape(kWide, kTokens)), n.floats(Shape(64, 1, kTokens))}, slots);
}

void build_qkv(OneNode& n, DType type) {
  QkvParams p;
  p.n_head = p.n_head_kv = kHeads;
  p.dk = p.dv = kWide;
  const Slot slots[] = {n.slot(type, Shape(kWide, kWide * kHeads)), n.slot(type, Shape(kWide, kWide * kHeads)),
                        n.slot(type, Shape(kWide, kWide * kHeads))};
  (void)n.builder().qkv(n.floats(Shape(kWide, kTokens)), slots, p, "y");
}

void build_moe_ffn(OneNode& n, DType type) {
  const Slot stack = n.slot(type, Shape(kWide, kWide, kExperts));
  const Slot slots[] = {stack, stack, stack};
  const GraphBuilder::Route route{n.integers(Shape(kUsed, kTokens), Rows::tokens), n.floats(Shape(kUsed, kTokens))};
  (void)n.builder().moe_ffn(n.floats(Shape(kWide, kTokens)), route, slots, {.n_expert = kExperts, .n_used = kUsed},
                            "y");
}

void build_moe_route(OneNode& n, DType type) {
  const Slot router = n.slot(type, Shape(kWide, kExperts));
  (void)n.builder().moe_route(n.floats(Shape(kWide, kTokens)), {&router, 1}, {.n_expert = kExperts, .n_used = kUsed},
                              "y");
}

struct Column {
  const char* op;
  Build build;
};

const Column kWeightColumns[] = {
    {"embed",
     [](OneNode& n, DType t) {
       (void)n.builder().embed(n.integers(Shape(kTokens), Rows::tokens), n.slot(t, Shape(kWide, kWide)), {}, "y");
     }},
    {"linear",
     [](OneNode& n, DType t) {
       (void)n.builder().linear(n.floats(Shape(kWide, kTokens)), n.slot(t, Shape(kWide, kWide)), "y");
     }},
    {"qkv", build_qkv},
    {"ffn",
     [](OneNode& n, DType t) {
       const Slot matrix = n.slot(t, Shape(kWide, kWide));
       const Slot slots[] = {matrix, matrix, matrix};
       (void)n.builder().ffn(n.floats(Shape(kWide, kTokens)), slots, {}, "y");
     }},
    {"moe_route", build_moe_route},
    {"moe_ffn", build_moe_ffn},
    {"mla", [](OneNode& n, DType t) { build_mla(n, t, DType::f16); }},
    {"mla_expand", build_mla_expand},
    {"get_rows",
     [](OneNode& n, DType t) {
       n.add(Op::get_rows, GetRowsParams{},
             {n.weight(t, Shape(kWide, kWide)), n.integers(Shape(kTokens), Rows::tokens)});
     }},
    {"mul_mat",
     [](OneNode& n, DType t) {
       n.add(Op::mul_mat, MulMatParams{}, {n.weight(t, Shape(kWide, kWide)), n.floats(Shape(kWide, kTokens))});
     }},
    {"mul_mat_id",
     [](OneNode& n, DType t) {
       n.add(Op::mul_mat_id, MulMatIdParams{},
             {n.weight(t, Shape(kWide, kWide, kExperts)), n.floats(Shape(kWide, 1, kTokens)),
              n.integers(Shape(kUsed, kTokens), Rows::tokens)});
     }},
    {"mul_mat_heads",
     [](OneNode& n, DType t) {
       n.add(Op::mul_mat_heads, MulMatHeadsParams{.n_head = kHeads, .rows_per_head = kWide, .begin = 0, .count = kWide},
             {n.weight(t, Shape(kWide, kWide * kHeads)), n.floats(Shape(kWide, kHeads, kTokens))});
     }},
};

// Ops over the cache, by its types.

AttentionParams attention_params(DType k, DType v, bool flash) {
  AttentionParams p;
  p.kv = {.k_type = k, .v_type = v, .n_head_kv = kHeads, .dk = 64, .dv = 64};
  p.n_head = kHeads;
  p.flash = flash;
  return p;
}

using BuildCache = void (*)(OneNode& node, DType k, DType v);

struct CacheColumn {
  const char* op;
  BuildCache build;
};

void build_attention(OneNode& n, DType k, DType v, bool flash) {
  const auto heads = [&] { return n.floats(Shape(64, kHeads, kTokens)); };
  (void)n.builder().attention({heads(), heads(), heads()}, n.cache(), {}, attention_params(k, v, flash), "y");
}

const CacheColumn kCacheColumns[] = {
    {"attention", [](OneNode& n, DType k, DType v) { build_attention(n, k, v, true); }},
    {"attention, -fa off", [](OneNode& n, DType k, DType v) { build_attention(n, k, v, false); }},
    {"mla", [](OneNode& n, DType k, DType) { build_mla(n, DType::f16, k); }},
    {"kv_append",
     [](OneNode& n, DType k, DType v) {
       const auto c = n.cache();
       n.add(Op::kv_append, KvAppendParams{attention_params(k, v, true).kv},
             {n.floats(Shape(64, kHeads, kTokens)), n.floats(Shape(64, kHeads, kTokens)), c.pool, c.spans,
              c.block_table});
     }},
    {"attn_dense",
     [](OneNode& n, DType k, DType v) {
       const auto c = n.cache();
       n.add(Op::attn_dense, attention_params(k, v, true),
             {n.floats(Shape(64, kHeads, kTokens)), c.pool, c.spans, c.block_table});
     }},
};

// The others.

struct OtherOp {
  const char* op;
  void (*build)(OneNode& node);
};

void build_sample(OneNode& n, Op op) {
  constexpr int kRow = sizeof(SampleRow) / 4, kAdjust = sizeof(SampleAdjust) / 4;
  n.add(op, SampleParams{},
        {n.floats(Shape(kWide, kTokens)), n.integers(Shape(kRow, kTokens), Rows::outputs),
         n.integers(Shape(kAdjust, kTokens)), n.integers(Shape(kWide / 32, kTokens))});
}

DeltaNetParams delta_params() {
  DeltaNetParams p;
  p.head_dim = 64;
  p.n_head_k = p.n_head_v = kHeads;
  p.state = {.slot_floats = 64 * 64 * kHeads, .offset = 0};
  return p;
}

TensorId states(OneNode& n, std::int64_t floats) {
  return n.integers(Shape(floats));
}

void build_delta_net(OneNode& n) {
  Slot decay = n.slot(DType::f32, Shape(kHeads));
  decay.bias = n.weight(DType::f32, Shape(kHeads));
  const auto gates = [&] { return n.floats(Shape(kHeads, kTokens)); };
  n.add(Op::delta_net, delta_params(),
        {n.floats(Shape(64 * 3 * kHeads, kTokens)), gates(), gates(), states(n, 64 * 64 * kHeads), n.spans()},
        {&decay, 1});
}

void build_delta_rule(OneNode& n) {
  const auto heads = [&] { return n.floats(Shape(64, kHeads, kTokens)); };
  const auto gates = [&] { return n.floats(Shape(kHeads, kTokens)); };
  n.add(Op::delta_rule, delta_params(),
        {heads(), heads(), heads(), gates(), gates(), states(n, 64 * 64 * kHeads), n.spans()});
}

void build_conv1d(OneNode& n) {
  Conv1dParams p;
  p.kernel = 4;
  p.state = {.slot_floats = std::int64_t{3} * kWide, .offset = 0};
  const Slot filters = n.slot(DType::f32, Shape(4, kWide));
  n.add(Op::conv1d, p, {n.floats(Shape(kWide, kTokens)), states(n, p.state.slot_floats), n.spans()}, {&filters, 1});
}

void build_rotation(OneNode& n, Op op) {
  RopeParams p;
  p.n_rot = 64;
  n.add(op, p, {n.integers(Shape(kTokens), Rows::tokens), n.floats(Shape(64, kHeads, kTokens))});
}

const OtherOp kOthers[] = {
    {"norm",
     [](OneNode& n) {
       (void)n.builder().norm(n.floats(Shape(kWide, kTokens)), n.slot(DType::f32, Shape(kWide)), {}, "y");
     }},
    {"rope", [](OneNode& n) { build_rotation(n, Op::rope); }},
    {"delta_net", build_delta_net},
    {"sample", [](OneNode& n) { build_sample(n, Op::sample); }},
    {"quantise_act",
     [](OneNode& n) { n.add(Op::quantise_act, QuantiseActParams{ActType::q8_0}, {n.floats(Shape(kWide, kTokens))}); }},
    {"normalise", [](OneNode& n) { n.add(Op::normalise, NormaliseParams{}, {n.floats(Shape(kWide, kTokens))}); }},
    {"add",
     [](OneNode& n) {
       n.add(Op::add, BinaryParams{}, {n.floats(Shape(kWide, kTokens)), n.floats(Shape(kWide, kTokens))});
     }},
    {"mul",
     [](OneNode& n) {
       n.add(Op::mul, BinaryParams{}, {n.floats(Shape(kWide, kTokens)), n.floats(Shape(kWide, kTokens))});
     }},
    {"unary", [](OneNode& n) { n.add(Op::unary, UnaryParams{}, {n.floats(Shape(kWide, kTokens))}); }},
    {"gated", [](OneNode& n) { n.add(Op::gated, GatedParams{}, {n.floats(Shape(kWide, kTokens))}); }},
    {"rotate", [](OneNode& n) { build_rotation(n, Op::rotate); }},
    {"softmax", [](OneNode& n) { n.add(Op::softmax, SoftmaxParams{}, {n.floats(Shape(kWide, kTokens))}); }},
    {"top_k", [](OneNode& n) { n.add(Op::top_k, TopKParams{.k = kUsed}, {n.floats(Shape(kWide, kTokens))}); }},
    {"gather",
     [](OneNode& n) {
       n.add(Op::gather, GatherParams{},
             {n.floats(Shape(kWide, kTokens)), n.integers(Shape(kUsed, kTokens), Rows::tokens)});
     }},
    {"hadamard", [](OneNode& n) { n.add(Op::hadamard, HadamardParams{}, {n.floats(Shape(64, kHeads, kTokens))}); }},
    {"weighted_sum",
     [](OneNode& n) {
       n.add(Op::weighted_sum, WeightedSumParams{},
             {n.floats(Shape(kWide, kUsed, kTokens)), n.integers(Shape(kUsed, kTokens), Rows::tokens)});
     }},
    {"pick", [](OneNode& n) { build_sample(n, Op::pick); }},
    {"copy", [](OneNode& n) { n.add(Op::copy, CopyParams{}, {n.floats(Shape(kWide, kTokens))}); }},
    {"slice",
     [](OneNode& n) {
       n.add(Op::slice, SliceParams{0, 64}, {n.floats(Shape(kWide, kTokens))});
     }},
    {"concat",
     [](OneNode& n) {
       n.add(Op::concat, ConcatParams{}, {n.floats(Shape(64, kHeads, kTokens)), n.floats(Shape(64, 1, kTokens))});
     }},
    {"conv1d", build_conv1d},
    {"delta_rule", build_delta_rule},
    {"pool",
     [](OneNode& n) {
       n.add(Op::pool, PoolParams{}, {n.floats(Shape(kWide, kTokens)), n.spans()});
     }},
};

// The page.

/// How a type's weights lie on the card.
std::string planes_text(DType type) {
  const PlaneSpec spec = plane_spec(type);
  if (spec.form == ScaleForm::none) {
    return spec.stored == type ? "as they are" : "decoded to " + std::string(type_info(spec.stored).name);
  }
  if (spec.form == ScaleForm::wide) return "8-bit codes, f32 scales";
  return strf("%d-bit codes", spec.code_bits);
}

bool is_weight_type(DType type) {
  // Plain numbers cannot be multiplied.
  return type_info(type).block_weights > 1 || type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

std::string cell(const Answer& answer) {
  return answer.native ? "n" : answer.runs ? "d" : "-";
}

std::string weight_table() {
  std::string text = "| type | on the card |", line = "|---|---|";
  for (const Column& column : kWeightColumns) {
    text += strf(" %s |", column.op);
    line += "---|";
  }
  text += "\n" + line + "\n";
  for (int i = 0; i < kTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    if (!is_weight_type(type)) continue;
    text += strf("| %s | %s |", std::string(type_info(type).name).c_str(), planes_text(type).c_str());
    for (const Column& column : kWeightColumns) {
      OneNode node;
      column.build(node, type);
      text += " " + cell(ask(node.graph())) + " |";
    }
    text += "\n";
  }
  return text;
}

/// The worst answer over all types of values.
Answer ask_cache(const CacheColumn& column, DType keys) {
  Answer worst{true, true, {}};
  for (int i = 0; i < kTypeCount; ++i) {
    const auto values = static_cast<DType>(i);
    if (!type_info(values).kv_capable) continue;
    OneNode node;
    column.build(node, keys, values);
    const Answer answer = ask(node.graph());
    worst.native = worst.native && answer.native;
    worst.runs = worst.runs && answer.runs;
  }
  return worst;
}

std::string cache_table() {
  std::string text = "| keys |", line = "|---|";
  for (const CacheColumn& column : kCacheColumns) {
    text += strf(" %s |", column.op);
    line += "---|";
  }
  text += "\n" + line + "\n";
  for (int i = 0; i < kTypeCount; ++i) {
    const auto keys = static_cast<DType>(i);
    if (!type_info(keys).kv_capable) continue;
    text += strf("| %s |", std::string(type_info(keys).name).c_str());
    for (const CacheColumn& column : kCacheColumns) text += " " + cell(ask_cache(column, keys)) + " |";
    text += "\n";
  }
  return text;
}

std::string other_table() {
  std::string text = "| op | on the card |\n|---|---|\n";
  for (const OtherOp& other : kOthers) {
    OneNode node;
    other.build(node);
    text += strf("| %s | %s |\n", other.op, ask(node.graph()).text.c_str());
  }
  return text;
}

std::string latent_lines() {
  OneNode mla, expand;
  build_mla(mla, DType::f16, DType::f16);
  build_mla_expand(expand, DType::f16);
  return strf("`mla` runs %s; `mla_expand` %s.\n", ask(mla.graph()).text.c_str(), ask(expand.graph()).text.c_str());
}

}  // namespace

std::string op_table_document() {
  std::string text =
      "# Ops on CUDA\n\n"
      "Printed by `build-cuda/bin/cuda-ops-doc > docs/cuda-ops.md` (a build with -DGGML_CUDA=ON; no card is needed);\n"
      "`.ci/run` compares. n: kernels of the op's own. d: its decomposition into primitives that have kernels. -: the\n"
      "node runs on the CPU. A coarse op whose slots have LoRA adapters or are observed is decomposed in any case.\n\n"
      "## By type of the weights\n\n";
  text += weight_table();
  text += "\n" + latent_lines() + "\n## By type of the keys, over all types of values\n\n";
  text += cache_table();
  text += "\n## Others\n\n`sample` and `pick` run on the host, between graphs.\n\n";
  text += other_table();
  return text;
}

}  // namespace ggml::cuda
