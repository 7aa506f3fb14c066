#include "cuda/ops/registry.h"

namespace ggml::cuda {
namespace {

struct Row {
  Op op;
  const OpImpl* impl;
};

// Ops without a row run as their decomposition.
constexpr Row kRows[] = {
    {Op::embed, &kEmbed},
    {Op::norm, &kNorm},
    {Op::linear, &kLinear},
    {Op::qkv, &kQkv},
    {Op::rope, &kRope},
    {Op::attention, &kAttention},
    {Op::ffn, &kFfn},
    {Op::moe_route, &kMoeRoute},
    {Op::moe_ffn, &kMoeFfn},
    {Op::sample, &kSample},
    {Op::mla, &kMla},
    {Op::delta_net, &kDeltaNet},
    {Op::get_rows, &kGetRows},
    {Op::quantise_act, &kQuantiseAct},
    {Op::mul_mat, &kMulMat},
    {Op::mul_mat_id, &kMulMatId},
    {Op::normalise, &kNormalise},
    {Op::add, &kAdd},
    {Op::mul, &kMul},
    {Op::unary, &kUnary},
    {Op::gated, &kGated},
    {Op::rotate, &kRotate},
    {Op::softmax, &kSoftmax},
    {Op::top_k, &kTopK},
    {Op::gather, &kGather},
    {Op::kv_append, &kKvAppend},
    {Op::attn_dense, &kAttnDense},
    {Op::weighted_sum, &kWeightedSum},
    {Op::pick, &kPick},
    {Op::copy, &kCopy},
    {Op::slice, &kSlice},
    {Op::concat, &kConcat},
    {Op::hadamard, &kHadamard},
    {Op::mul_mat_heads, &kMulMatHeads},
    {Op::conv1d, &kConv1d},
    {Op::delta_rule, &kDeltaRule},
    {Op::pool, &kPool},
};

}  // namespace

const OpImpl* implementation(Op op) noexcept {
  for (const Row& row : kRows) {
    if (row.op == op) return row.impl;
  }
  return nullptr;
}

}  // namespace ggml::cuda
