#include "cuda/kernels/attention.h"

#include "cuda/kernels/latent_attention.h"
#include "cuda/kernels/prompt_attention.h"
#include "cuda/ops/attend.h"
#include "cuda/ops/heads.h"
#include "cuda/ops/projection.h"
#include "cuda/ops/registry.h"
#include "cuda/ops/rotation.h"

namespace ggml::cuda {
namespace {

/// Above so many rows the kernel for prompts is taken where it fits.
constexpr int kFewRows = kMinPromptTokens - 1;

KvCoding coding_of(DType type, int dim) {
  const KvForm form = kv_form(type);
  KvCoding c;
  c.type = type;
  c.row_bytes = static_cast<int>(form.value_bytes(dim));
  c.scale_row_bytes = static_cast<int>(form.scale_bytes(dim));
  if (!form.quantised) return c;
  constexpr float kMostChosen = 127.0f;
  c.bits = form.bits;
  c.chooses = kv_codes_choose(type);
  c.has_min = form.has_min();
  c.row_scale = form.row_bytes > 0;
  const int half = 1 << (c.bits - 1);
  if (c.bits < 8 && !c.has_min && !c.chooses) c.center = half;
  c.most = c.chooses ? kMostChosen : static_cast<float>(c.has_min ? 2 * half - 1 : half);
  return c;
}

AppendArgs append_args(const BindContext& c, const Node& node, std::size_t k, const KvLayout& kv) {
  AppendArgs a;
  a.kv = planes_of(kv);
  a.in = cache_inputs(c, node, k + 2);
  a.k = c.data<const float>(node.src[k]);
  a.v = c.data<const float>(node.src[k + 1]);
  a.tokens = c.rows(node.src[k], static_cast<std::int64_t>(kv.dk) * kv.n_head_kv);
  return a;
}

class KvAppend final : public BoundOp {
 public:
  KvAppend(const BindContext& c, const Node& node, Carver&)
      : a_(append_args(c, node, 0, std::get<KvAppendParams>(node.params).kv)) {}
  void launch(cudaStream_t stream) const override { launch_kv_append(a_, stream); }

 private:
  AppendArgs a_;
};

/// Attention of a node whose pool is its source `pool`.
Attend attend_of(const BindContext& c, const Node& node, std::size_t pool, Carver& carver) {
  const auto& p = std::get<AttentionParams>(node.params);
  const int width = planes_read(p).dv * p.n_head;
  Attend::Tensors t;
  t.q = c.data<const float>(node.src[0]);
  t.sinks = p.has_sinks ? c.data<const float>(node.slots[0].weight) : nullptr;
  t.y = c.data<float>(node.dst[0]);
  t.tokens = c.rows(node.dst[0], width);
  t.in = cache_inputs(c, node, pool);
  t.max_spans = static_cast<int>(c.tensor(node.src[pool + 1]).shape[1]);
  Attend attend(c, p, t, carver);
  RoundedOutput rounded[1];
  set_rounded_outputs(c, node.dst[0], width, t.tokens, rounded);
  attend.set_rounded(rounded[0]);
  return attend;
}

/// Norms of q and k, rotation and the cache's new cells in one launch.
class Heads final : public BoundOp {
 public:
  Heads(const BindContext& c, const HeadsParams& p, const Node& node) {
    const std::size_t q = p.rope.has_factors ? 2 : 1;
    a_.kv = planes_of(p.kv);
    a_.in = cache_inputs(c, node, q + 3);
    a_.q = c.data<const float>(node.src[q]);
    a_.k = c.data<const float>(node.src[q + 1]);
    a_.v = c.data<const float>(node.src[q + 2]);
    a_.q_rotated = c.data<float>(node.dst[0]);
    a_.rotate = rotation(c, p.rope, node.src);
    a_.n_head = p.n_head;
    a_.tokens = c.rows(node.src[q], static_cast<std::int64_t>(p.kv.dk) * p.n_head);
    if (node.slots.empty()) return;
    a_.q_norm = norm_of(c, node.slots[0], p);
    a_.k_norm = norm_of(c, node.slots[1], p);
  }
  void launch(cudaStream_t stream) const override { launch_heads(a_, stream); }

 private:
  static NormArgs norm_of(const BindContext& c, const Slot& slot, const HeadsParams& p) {
    NormArgs a;
    a.weight = c.data<const float>(slot.weight);
    a.bias = c.data<const float>(slot.bias);
    a.heads = static_cast<int>(c.tensor(slot.weight).shape[1]);
    a.eps = p.norm_eps;
    return a;
  }

  HeadsArgs a_;
};

class AttnDense final : public BoundOp {
 public:
  AttnDense(const BindContext& c, const Node& node, Carver& carver) : attend_(attend_of(c, node, 1, carver)) {}
  void launch(cudaStream_t stream) const override { attend_.launch(stream); }

 private:
  Attend attend_;
};

class Attention final : public BoundOp {
 public:
  Attention(const BindContext& c, const Node& node, Carver& carver)
      : append_(append_args(c, node, 1, std::get<AttentionParams>(node.params).kv)),
        attend_(attend_of(c, node, 3, carver)) {}
  void launch(cudaStream_t stream) const override {
    launch_kv_append(append_, stream);
    attend_.launch(stream);
  }

 private:
  AppendArgs append_;
  Attend attend_;
};

// Shape rules have refused what no cache can hold; kernels take every type that may.

const char* attn_dense_declines(const Graph& graph, const Node& node) {
  const auto& p = std::get<AttentionParams>(node.params);
  return p.has_sinks && graph.at(node.slots[0].weight).type != DType::f32 ? "sinks that are not F32" : nullptr;
}

const char* attention_declines(const Graph& graph, const Node& node) {
  if (!std::get<AttentionParams>(node.params).flash) return "the decomposition was asked for";
  return attn_dense_declines(graph, node);
}

}  // namespace

KvInputs cache_inputs(const BindContext& context, const Node& node, std::size_t first) {
  return {context.data<std::uint8_t>(node.src[first]), context.data<const AttnSpan>(node.src[first + 1]),
          context.data<const std::int32_t>(node.src[first + 2]), context.n_spans()};
}

Attend::Attend(const BindContext& context, const AttentionParams& params, const Tensors& tensors, Carver& carver)
    : max_spans_(tensors.max_spans) {
  a_.kv = planes_read(params);
  a_.in = tensors.in;
  a_.q = tensors.q;
  a_.sinks = tensors.sinks;
  a_.y = tensors.y;
  a_.n_head = params.n_head;
  a_.scale = params.scale;
  a_.softcap = params.softcap;
  a_.max_alibi_bias = params.max_alibi_bias;
  a_.causal = params.causal;
  a_.window_kind = params.window_kind;
  a_.window = params.window;
  a_.tokens = tensors.tokens;
  choose_kernel(context, params.has_sinks);
  if (a_.n_splits > 1) {
    a_.partial = carver.array<float>(static_cast<std::int64_t>(a_.tokens.capacity) * params.n_head * a_.n_splits *
                                     (a_.kv.dv + 2));
  }
}

void Attend::choose_kernel(const BindContext& context, bool has_sinks) {
  const int rows = a_.tokens.capacity, n_kv = a_.kv.n_head_kv, group = a_.n_head / n_kv;
  const int multiprocessors = context.multiprocessors();
  if (rows > kFewRows && has_prompt_attention(a_.kv)) {
    kernel_ = Kernel::prompt;
    a_.n_splits = prompt_attention_splits(rows, a_.n_head, n_kv, multiprocessors);
  } else if (rows > kFewRows && !has_sinks && has_latent_attention(a_)) {
    kernel_ = Kernel::latent_prompt;
    a_.n_splits = latent_attention_splits(rows, a_.n_head, n_kv, multiprocessors);
  } else if (few_rows_attention_fits(a_.kv)) {
    kernel_ = Kernel::few_rows;
    a_.n_splits = few_rows_attention_splits(a_.kv, rows, group, multiprocessors);
    if (a_.n_splits > 1) a_.arrived = context.counters(few_rows_attention_counters(a_.kv, rows, group));
  } else {
    a_.n_splits = attention_splits(rows, n_kv, multiprocessors);
  }
}

void Attend::launch(cudaStream_t stream) const {
  switch (kernel_) {
    case Kernel::few_rows:
      return launch_few_rows_attention(a_, stream);
    case Kernel::prompt:
      return launch_prompt_attention(a_, max_spans_, stream);
    case Kernel::latent_prompt:
      return launch_latent_attention(a_, max_spans_, stream);
    case Kernel::any:
      return launch_attention(a_, stream);
  }
}

KvPlanes planes_of(const KvLayout& kv) {
  KvPlanes p;
  p.k = coding_of(kv.k_type, kv.dk);
  p.v = coding_of(kv.v_type, kv.dv);
  p.n_head_kv = kv.n_head_kv;
  p.dk = kv.dk;
  p.dv = kv.dv;
  p.block_bytes = static_cast<std::int64_t>(kv.block_bytes());
  p.k_scales = static_cast<std::int64_t>(kv.k_scales());
  p.v_values = static_cast<std::int64_t>(kv.v_values());
  p.v_scales = static_cast<std::int64_t>(kv.v_scales());
  p.k_head = static_cast<std::int64_t>(KvLayout::head_value_bytes(kv.k_type, kv.dk));
  p.k_head_scales = static_cast<std::int64_t>(KvLayout::head_scale_bytes(kv.k_type, kv.dk));
  p.v_head = static_cast<std::int64_t>(KvLayout::head_value_bytes(kv.v_type, kv.dv));
  p.v_head_scales = static_cast<std::int64_t>(KvLayout::head_scale_bytes(kv.v_type, kv.dv));
  return p;
}

KvPlanes planes_read(const AttentionParams& params) {
  KvPlanes p = planes_of(params.kv);
  if (params.v_of_k == 0) return p;
  p.v = p.k;
  p.dv = params.v_of_k;
  p.v_values = 0;
  p.v_scales = p.k_scales;
  p.v_head = p.k_head;
  p.v_head_scales = p.k_head_scales;
  return p;
}

std::unique_ptr<BoundOp> bind_heads(const BindContext& context, const HeadsParams& params, const Node& node) {
  return std::make_unique<Heads>(context, params, node);
}

bool attention_rounds_result(const AttentionParams& params, int rows) {
  const KvPlanes kv = planes_read(params);
  return rows <= kFewRows && few_rows_attention_fits(kv) &&
         few_rows_attention_rounds(kv, params.n_head / params.kv.n_head_kv);
}

bool has_cache_kernels(DType type) noexcept {
  return type_info(type).kv_capable;
}

const OpImpl kKvAppend{"kv_append", accepts_always, bind_as<KvAppend>};
const OpImpl kAttnDense{"attn_dense", attn_dense_declines, bind_as<AttnDense>};
const OpImpl kAttention{"attention", attention_declines, bind_as<Attention>};

}  // namespace ggml::cuda
