#include "cuda/kernels/attention.h"

#include "cuda/kernels/latent_attention.h"
#include "cuda/kernels/prompt_attention.h"
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

/// pool, spans and block table are consecutive sources from `first` on.
KvInputs inputs_of(const BindContext& c, const Node& node, std::size_t first) {
  return {c.data<std::uint8_t>(node.src[first]), c.data<const AttnSpan>(node.src[first + 1]),
          c.data<const std::int32_t>(node.src[first + 2]), c.n_spans()};
}

AppendArgs append_args(const BindContext& c, const Node& node, std::size_t k, const KvLayout& kv) {
  AppendArgs a;
  a.kv = planes_of(kv);
  a.in = inputs_of(c, node, k + 2);
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

/// Softmax attention over the blocks, split over the card.
class Attend {
 public:
  Attend(const BindContext& c, const Node& node, std::size_t pool, Carver& carver) {
    const auto& p = std::get<AttentionParams>(node.params);
    a_.kv = planes_read(p);
    a_.in = inputs_of(c, node, pool);
    a_.q = c.data<const float>(node.src[0]);
    a_.sinks = p.has_sinks ? c.data<const float>(node.slots[0].weight) : nullptr;
    a_.y = c.data<float>(node.dst[0]);
    a_.n_head = p.n_head;
    a_.scale = p.scale;
    a_.softcap = p.softcap;
    a_.max_alibi_bias = p.max_alibi_bias;
    a_.causal = p.causal;
    a_.window_kind = p.window_kind;
    a_.window = p.window;
    const int width = a_.kv.dv * p.n_head;
    a_.tokens = c.rows(node.dst[0], width);
    max_spans_ = static_cast<int>(c.tensor(node.src[pool + 1]).shape[1]);
    choose_kernel(c, p.has_sinks);
    RoundedOutput rounded[1];
    set_rounded_outputs(c, node.dst[0], width, a_.tokens, rounded);
    a_.rounded = rounded[0];
    if (a_.n_splits > 1) {
      a_.partial =
          carver.array<float>(static_cast<std::int64_t>(a_.tokens.capacity) * p.n_head * a_.n_splits * (a_.kv.dv + 2));
    }
  }
  void launch(cudaStream_t stream) const {
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

 private:
  enum class Kernel : std::uint8_t { few_rows, prompt, latent_prompt, any };

  void choose_kernel(const BindContext& c, bool has_sinks) {
    const int rows = a_.tokens.capacity, n_kv = a_.kv.n_head_kv, group = a_.n_head / n_kv;
    if (rows > kFewRows && has_prompt_attention(a_.kv)) {
      kernel_ = Kernel::prompt;
      a_.n_splits = prompt_attention_splits(rows, a_.n_head, n_kv, c.multiprocessors());
    } else if (rows > kFewRows && !has_sinks && has_latent_attention(a_)) {
      kernel_ = Kernel::latent_prompt;
      a_.n_splits = latent_attention_splits(rows, a_.n_head, n_kv, c.multiprocessors());
    } else if (few_rows_attention_fits(a_.kv)) {
      kernel_ = Kernel::few_rows;
      a_.n_splits = few_rows_attention_splits(a_.kv, rows, group, c.multiprocessors());
      if (a_.n_splits > 1) a_.arrived = c.counters(few_rows_attention_counters(a_.kv, rows, group));
    } else {
      a_.n_splits = attention_splits(rows, n_kv, c.multiprocessors());
    }
  }

  AttentionArgs a_;
  Kernel kernel_ = Kernel::any;
  int max_spans_ = 0;
};

/// Norms of q and k, rotation and the cache's new cells in one launch.
class Heads final : public BoundOp {
 public:
  Heads(const BindContext& c, const HeadsParams& p, const Node& node) {
    const std::size_t q = p.rope.has_factors ? 2 : 1;
    a_.kv = planes_of(p.kv);
    a_.in = inputs_of(c, node, q + 3);
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
  AttnDense(const BindContext& c, const Node& node, Carver& carver) : attend_(c, node, 1, carver) {}
  void launch(cudaStream_t stream) const override { attend_.launch(stream); }

 private:
  Attend attend_;
};

class Attention final : public BoundOp {
 public:
  Attention(const BindContext& c, const Node& node, Carver& carver)
      : append_(append_args(c, node, 1, std::get<AttentionParams>(node.params).kv)), attend_(c, node, 3, carver) {}
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
