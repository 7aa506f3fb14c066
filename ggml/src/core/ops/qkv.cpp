#include <array>

#include "cost.h"
#include "ggml/log.h"
#include "lowering.h"
#include "shape_check.h"

namespace ggml {

namespace {

namespace check = shape_check;

struct Part {
  const char* name;
  std::int64_t heads;
  std::int64_t dim;
};

std::array<Part, 3> parts(const QkvParams& p) {
  return {{{"q", p.n_head, p.dk}, {"k", p.n_head_kv, p.dk}, {"v", p.n_head_kv, p.dv}}};
}

std::vector<TensorDesc> shape(const OpInputs& in) {
  const auto& p = in.get<QkvParams>();
  const std::size_t n_proj = p.fused ? 1 : 3;
  check::expect_counts(in, 1, 1, n_proj + (p.has_qk_norm ? 2 : 0));
  check::require(in, p.n_head > 0 && p.n_head_kv > 0 && p.dk > 0 && p.dv > 0 && p.n_head % p.n_head_kv == 0,
                 strf("%d query heads over %d key heads of %d and %d elements", p.n_head, p.n_head_kv, p.dk, p.dv));
  const Tensor& x = check::values(in, 0, "x");
  std::vector<TensorDesc> results;
  std::int64_t all_rows = 0;
  const auto all = parts(p);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t n = all[i].heads * all[i].dim;
    if (!p.fused) (void)check::matrix(in, i, all[i].name, {.k = x.shape[0], .n = n});
    all_rows += n;
    results.push_back({DType::f32, Shape(all[i].dim, all[i].heads, x.shape[1]), x.rows});
  }
  if (p.fused) (void)check::matrix(in, 0, "qkv", {.k = x.shape[0], .n = all_rows});
  if (p.has_qk_norm) {
    const char* names[] = {"q_norm", "k_norm"};
    for (std::size_t i = 0; i < 2; ++i) {
      const Shape row(all[i].dim * all[i].heads);
      const Shape head[] = {Shape(all[i].dim), Shape(all[i].dim, all[i].heads)};
      check::vector(in, n_proj + i, names[i], p.norm_full_row ? std::span(&row, 1) : std::span(head, 2));
    }
  }
  return results;
}

void project_part(Lowering& to, const Node& node, std::size_t i, const Slot& slot) {
  const auto& p = std::get<QkvParams>(node.params);
  Chain chain = project(to, slot, node.src[0], parts(p)[i].name);
  if (p.clamp > 0) chain.then(Op::unary, UnaryParams{UnaryKind::clamp, Activation::none, p.clamp});
  if (p.has_qk_norm && i < 2) {
    const Slot& norm = node.slots[(p.fused ? 1 : 3) + i];
    if (!p.norm_full_row) chain.reshape(to.at(node.dst[i]).shape);
    chain.then(Op::normalise, NormaliseParams{NormKind::rms, p.norm_eps});
    chain.then(Op::mul, BinaryParams{}, {norm.weight});
    if (norm.bias.valid()) chain.then(Op::add, BinaryParams{}, {norm.bias});
  }
  chain.finish_into(node.dst[i]);
}

void decompose(Lowering& to, const Node& node) {
  const auto& p = std::get<QkvParams>(node.params);
  std::int64_t begin = 0;
  const auto all = parts(p);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t n = all[i].heads * all[i].dim;
    Slot slot = p.fused ? to.rows(node.slots[0], begin, n) : node.slots[i];
    if (p.fused && i > 0) slot.tapped = false;  // one input, seen once
    project_part(to, node, i, slot);
    begin += n;
  }
}

}  // namespace

const OpDef k_qkv{.name = "qkv",
                  .shape = shape,
                  .decompose = decompose,
                  .cost = cost::matmul,
                  .shard = {PlacementAxis::heads, ShardResult::slice},
                  .takes_adapters = true};

}  // namespace ggml
