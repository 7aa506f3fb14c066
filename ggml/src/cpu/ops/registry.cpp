#include "cpu/ops/registry.h"

#include <array>

namespace ggml::cpu {
namespace {

// One row per op, as in ops.def; an op that is missing here does not build. Of a primitive the last one shares no
// kernel with the coarse ops: it is what runs when only primitives are asked for.
constexpr const OpImpl* k_embed[] = {&kEmbed};
constexpr const OpImpl* k_norm[] = {&kNorm};
constexpr const OpImpl* k_linear[] = {&kLinear};
constexpr const OpImpl* k_qkv[] = {&kQkv};
constexpr const OpImpl* k_rope[] = {&kRope};
constexpr const OpImpl* k_attention[] = {&kAttention};
constexpr const OpImpl* k_ffn[] = {&kFfn};
constexpr const OpImpl* k_moe_route[] = {&kMoeRoute};
constexpr const OpImpl* k_moe_ffn[] = {&kMoeFfn};
constexpr const OpImpl* k_sample[] = {&kSample};
constexpr const OpImpl* k_mla[] = {&kMla};
constexpr std::array<const OpImpl*, 0> k_mla_expand{};  // its decomposition is two products and a join
constexpr const OpImpl* k_delta_net[] = {&kDeltaNet};
constexpr const OpImpl* k_get_rows[] = {&kGetRows};
constexpr const OpImpl* k_quantise_act[] = {&kQuantiseAct};
constexpr const OpImpl* k_mul_mat[] = {&kMulMat};
constexpr const OpImpl* k_mul_mat_id[] = {&kExpertProduct, &kMulMatId};
constexpr const OpImpl* k_normalise[] = {&kNormalise};
constexpr const OpImpl* k_add[] = {&kAdd};
constexpr const OpImpl* k_mul[] = {&kMul};
constexpr const OpImpl* k_unary[] = {&kUnary};
constexpr const OpImpl* k_gated[] = {&kGated};
constexpr const OpImpl* k_rotate[] = {&kRotate};
constexpr const OpImpl* k_softmax[] = {&kSoftmax};
constexpr const OpImpl* k_top_k[] = {&kTopK};
constexpr const OpImpl* k_gather[] = {&kGather};
constexpr const OpImpl* k_kv_append[] = {&kKvAppend};
constexpr const OpImpl* k_hadamard[] = {&kHadamard};
constexpr const OpImpl* k_attn_dense[] = {&kAttnDense};
constexpr const OpImpl* k_weighted_sum[] = {&kWeightedSum};
constexpr const OpImpl* k_pick[] = {&kPick};
constexpr const OpImpl* k_copy[] = {&kCopy};
constexpr const OpImpl* k_slice[] = {&kSlice};
constexpr const OpImpl* k_concat[] = {&kConcat};
constexpr const OpImpl* k_mul_mat_heads[] = {&kMulMatHeads};
constexpr const OpImpl* k_conv1d[] = {&kConv1d};
constexpr const OpImpl* k_delta_rule[] = {&kDeltaRule};
constexpr const OpImpl* k_pool[] = {&kPool};

const std::array<std::span<const OpImpl* const>, kOpCount> kImplementations{{
#define OP(id, Params) std::span<const OpImpl* const>(k_##id),
#include "core/ops/ops.def"
#undef OP
}};

}  // namespace

std::span<const OpImpl* const> implementations(Op op) noexcept {
  return kImplementations[static_cast<std::size_t>(op)];
}

}  // namespace ggml::cpu
