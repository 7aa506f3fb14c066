#pragma once

#include <array>
#include <cstdint>
#include <variant>

#include "ggml/kv_layout.h"
#include "ggml/tensor.h"

/// Parameters of the ops. A node's sources, slots and results are positional; each struct documents their order.
/// Optional sources at the end of the order are left out. Norm weights, biases and scales are f32.
/// `T` is the token bucket (the capacity), the real number of rows is a run-time input.
namespace ggml {

enum class NormKind : std::uint8_t { rms, layer, l2 };
enum class Activation : std::uint8_t { none, silu, gelu, relu2, sigmoid, softplus, swiglu_oai };
enum class RopeLayout : std::uint8_t { none, norm, neox };
enum class WindowKind : std::uint8_t { none, standard, chunked, symmetric };
enum class Gating : std::uint8_t { softmax, sigmoid, softmax_selected, sqrt_softplus };

/// Token ids to rows. src: ids [T] i32. slot 0: table [n_embd, n_vocab]. dst: [n_embd, T] = row * scale.
struct EmbedParams {
  float scale = 1.0f;
};

/// Normalisation with optional residual add: s = x + residual; y = norm(s) * weight + bias.
/// src: x [n, ..., T], then the residual (same shape) if there is one. slot 0 (when has_weight): weight in `weight`,
/// bias in `bias`. dst: y, and s when a residual is given. Norms run over axis 0 (`n`), so a per-head norm is a norm of
/// [head_dim, n_head, T].
struct NormParams {
  NormKind kind = NormKind::rms;
  float eps = 1e-5f;
  bool has_weight = true;
};

/// y = scale * (W x) + bias. src: x [K, T]. slot 0: W [K, N]. dst: [N, T].
struct LinearParams {};

/// Query, key and value projections of one layer, with optional per-head or full-row norms of q and k.
/// src: x [n_embd, T]. slots: {q, k, v} or {fused qkv: rows Q, K, V}; then {q_norm, k_norm} weights if has_qk_norm.
/// dst: q [dk, n_head, T], k [dk, n_head_kv, T], v [dv, n_head_kv, T].
struct QkvParams {
  int n_head = 0;
  int n_head_kv = 0;
  int dk = 0;
  int dv = 0;
  bool fused = false;
  bool has_qk_norm = false;
  bool norm_full_row = false;  // normalise all heads as one vector instead of each head
  float norm_eps = 1e-6f;
  float clamp = 0.0f;  // > 0: clamp q, k, v to +-clamp after the bias
};

/// Rotary position embedding (arXiv:2104.09864) with YaRN (arXiv:2309.00071) scaling of the angles.
/// src: positions [T] i32, then factors [n_rot/2] f32 (weight) when has_factors, then the tensors [d, heads, T] to
/// rotate. dst: as many tensors. `rotate` is the same for exactly one tensor.
struct RopeParams {
  RopeLayout layout = RopeLayout::norm;
  int n_rot = 0;
  float base = 10000.0f;
  float freq_scale = 1.0f;
  float ext_factor = 0.0f;
  float attn_factor = 1.0f;
  float beta_fast = 32.0f;
  float beta_slow = 1.0f;
  int n_ctx_orig = 0;
  bool has_factors = false;
  int first = 0;  // element of a head from which on n_rot elements are rotated
};

/// Appends k and v to the cache, then softmax(scale * q k^T) v over the cells each row may see (FlashAttention,
/// arXiv:2205.14135). src: q [dk, n_head, T], k [dk, n_head_kv, T], v [dv, n_head_kv, T], pool (state: base of this
/// layer's blocks, u8 as i32),
///      spans [8, n_spans] i32 (AttnSpan), block_table [capacity] i32. slot 0 (when has_sinks): sinks [n_head] f32.
/// dst: [dv * n_head, T]. Rows outside all spans are not written. A row that sees no cell gives zeros.
/// Causality is by cell: a row at cell c sees cells <= c (all cells of its sequence when not causal).
struct AttentionParams {
  KvLayout kv;
  int n_head = 0;
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: off
  bool causal = true;
  bool has_sinks = false;
  bool flash = true;  // false: the checked decomposition (kv_append + attn_dense)
  WindowKind window_kind = WindowKind::none;
  int window = 0;
  float max_alibi_bias = 0.0f;
  int v_of_k = 0;  // attn_dense only. > 0: the cache has no V plane (kv.dv 0); values are the first so many elements
                   // of the keys
};

/// Multi-head latent attention (arXiv:2405.04434, 2.1): the cache holds one latent and one rotated part per token,
/// which all heads share. Either the query is brought into the latent space ("absorbed"), or keys and values are
/// computed from the latent ("expanded"): the results are equal but for rounding, the cost is not. src: q [nope +
/// n_rot, n_head, T] (its last n_rot elements rotated), latent [kv_rank, T], k_rot [n_rot, 1, T]
///      (rotated), pool, spans, block_table.
/// slots: k_b [nope, kv_rank, n_head] absorbs the query; k_up [kv_rank, k_up_rows * n_head] whose first `nope` rows of
///        each head give its key; v_up [kv_rank, v_up_rows * n_head] whose rows [v_up_begin, v_up_begin + dv) of each
///        head give its value.
/// dst: [dv * n_head, T].
struct MlaParams {
  KvLayout kv;  // one head of kv_rank + n_rot elements; dv 0, or kv_rank: the latent is kept again in the V plane
  int n_head = 0;
  int nope = 0;
  int n_rot = 0;
  int kv_rank = 0;
  int dv = 0;
  int k_up_rows = 0;
  int v_up_rows = 0;
  int v_up_begin = 0;
  float scale = 1.0f;
  bool flash = true;
  int expand_from = 0;           // spans of at least so many rows take the expanded form; 0: none does
  std::int64_t max_scratch = 0;  // bytes that the queries in latent space may take at a time; 0: no bound
};

/// Keys and values of all heads from the latent. src: latent [kv_rank, T], k_rot [n_rot, 1, T]. slots: k_up, v_up as in
/// mla. dst: k [nope + n_rot, n_head, T], v [dv, n_head, T].
struct MlaExpandParams {
  int n_head = 0;
  int nope = 0;
  int n_rot = 0;
  int dv = 0;
  int k_up_rows = 0;
  int v_up_rows = 0;
  int v_up_begin = 0;
};

/// Where a recurrent layer keeps one of its states: slot s begins s * slot_floats floats into the layer's pool, the
/// state `offset` floats further on.
struct StateLayout {
  std::int64_t slot_floats = 0;
  std::int64_t offset = 0;
};

/// Causal convolution along the tokens of each span, one filter per channel, then an activation (none or silu).
/// src: x [channels, T], pool (state, as in attention), spans. slot 0: filters [kernel, channels] f32, the last tap for
/// the row itself. dst: [channels, T]. State: the last kernel - 1 rows of x, oldest first, [channels, kernel - 1].
struct Conv1dParams {
  int kernel = 0;
  Activation act = Activation::none;
  StateLayout state;
};

/// Gated delta rule (arXiv:2412.06464). src: qkv [2 * head_dim * n_head_k + head_dim * n_head_v, T] (q of all key
/// heads, k, then v), beta [n_head_v, T] and alpha [n_head_v, T] as projected, pool, spans. slot 0: `weight` a
/// [n_head_v], f32 (minus the exponential of the file's A_log), `bias` dt [n_head_v]. q and k are normalised (l2, eps),
/// q divided by sqrt(head_dim); beta = sigmoid(beta), g = a softplus(alpha + dt). dst: [head_dim * n_head_v, T]. State:
/// head_dim x head_dim per value head, [key element, value element, n_head_v].
struct DeltaNetParams {
  int head_dim = 0;
  int n_head_k = 0;
  int n_head_v = 0;
  bool tiled = false;  // value head h uses key head h mod n_head_k, else h / (n_head_v / n_head_k)
  float eps = 1e-6f;
  StateLayout state;
};

enum class PoolKind : std::uint8_t { mean, first, last };
/// One row for each span. src: x [n, T], spans [8, n_spans]. dst: [n, n_spans], of which the real spans' are written
/// (Rows::outputs, as many as spans).
struct PoolParams {
  PoolKind kind = PoolKind::mean;
};

/// Feed-forward. src: x [n_embd, T]. slots: gated: {gate, up, down}; fused_gate_up: {gate_up, down}; else {up, down}.
/// dst: [n_embd, T] = down(act(gate x) * (up x)) or down(act(up x)).
struct FfnParams {
  Activation act = Activation::silu;
  bool gated = true;
  bool fused_gate_up = false;
  float limit = 0.0f;  // > 0: SwiGLU-limited
};

/// Chooses the experts of each token and their weights.
/// src: x [n_embd, T]. slots: {router [n_embd, n_expert]}, then {selection bias in `weight`: [n_expert] f32} when
/// has_selection_bias. dst: ids [n_used, T] i32 by falling score (ties to the lower id), weights [n_used, T] f32.
struct MoeRouteParams {
  int n_expert = 0;
  int n_used = 0;
  Gating gating = Gating::softmax;
  bool has_selection_bias = false;
  bool normalise = false;
  float scale = 1.0f;
  int n_groups = 1;
  int n_groups_used = 1;
  int min_used = 0;         // of the chosen experts those of rank min_used on are kept only where their score is at
  float keep_ratio = 0.0f;  // least keep_ratio * the best one's; the others get the id -1. 0: all are kept
};

/// Sum over the chosen experts of weight * FFN_e(x). An id of -1 is skipped and reads nothing; experts outside
/// [expert_begin, expert_end) count as -1, so that two devices can each give a partial sum.
/// src: x [n_embd, T], ids [n_used, T] i32, weights [n_used, T] f32. slots: {gate, up, down} stacks [.., .., n_expert],
/// or {gate_up, down}. dst: [n_embd, T].
/// Not summed: without weights, dst: [n_embd, n_used, T], what each expert gave, zeros for skipped ones.
struct MoeFfnParams {
  int n_expert = 0;
  int n_used = 0;
  Activation act = Activation::silu;
  bool gated = true;
  bool fused_gate_up = false;
  bool weight_on_input = false;  // llama4: the weight multiplies x instead of the result
  float limit = 0.0f;
  int expert_begin = 0;
  int expert_end = 0;  // 0: all
  bool summed = true;
};

/// The sampler chain. src: logits [n_vocab, n_outputs], rows (SampleRow) [sizeof/4, n] i32, adjust (SampleAdjust) [4,
/// n] i32, masks [ceil(n_vocab/32), n] i32 (bit set: allowed; bit i of word w is token 32 w + i).
/// dst: results (SampleResult) [sizeof/4, n] i32. A row whose logits_row is negative is not sampled (token -1).
struct SampleParams {};

// Primitives. All values are f32 unless said otherwise, computed as if in exact arithmetic. Real rows only: rows beyond
// the run-time count are neither read nor written. A primitive's result may be a *view* (Tensor::role view): then it
// writes the bytes of the view's base. add, mul and unary may be given a result that lies on top of src[0] (the memory
// plan does so when src[0] is not read again), so element i must be read before element i is written.

/// src: table [n, rows] (weight of any type, or f32 activation), ids [m] or [m0, m1] i32. dst: [n, m(, m1)] f32.
/// An id outside [0, rows) gives a row of zeros and reads nothing.
struct GetRowsParams {};
/// src: x. dst: the same shape, f32 values after rounding each row to the form (q8_0: blocks of 32, q8_k: of 256).
struct QuantiseActParams {
  ActType act = ActType::f32;
};
/// src: W [K, N], x [K, ...], and optionally tap [K, ...]. dst: [N, ...]. W may be a view of whole rows of a weight.
/// With slots {W} marked tapped the Observer gets the rows of `tap` (x before its rounding; nothing else reads it).
struct MulMatParams {};
/// src: W [K, N, n_expert], x [K, 1 or n_used, T], ids [n_used, T] i32, and optionally tap (as in mul_mat).
/// dst: [N, n_used, T]. An id outside [expert_begin, expert_end) gives a row of zeros and reads nothing.
struct MulMatIdParams {
  int expert_begin = 0;
  int expert_end = 0;  // 0: all
};
/// src: x [n, ...]. dst: the same shape, each row normalised; no weight.
struct NormaliseParams {
  NormKind kind = NormKind::rms;
  float eps = 1e-5f;
};
/// src: a, b (f32 activations or f32 weights). Each axis of the two is equal, or 1 in one of them and then repeated.
struct BinaryParams {};
enum class UnaryKind : std::uint8_t { scale, softcap, clamp, activation, sqrt };
/// src: x. dst: the same shape: a x | a tanh(x / a) | min(max(x, -a), a) | act(x) | sqrt(x).
struct UnaryParams {
  UnaryKind kind = UnaryKind::scale;
  Activation act = Activation::none;
  float a = 1.0f;  // factor, cap or bound
};
/// src: gate [F, ...], up [F, ...]; or gate_up [2 F, ...] whose first half is the gate. dst: [F, ...].
/// act(gate) * up; limit > 0: min(silu(gate), limit) * clamp(up, -limit, limit); Activation::swiglu_oai: a = min(gate,
/// 7), u = clamp(up, -7, 7), a sigmoid(1.702 a) (u + 1).
struct GatedParams {
  Activation act = Activation::silu;
  float limit = 0.0f;
};
/// src: x [n, ...]. dst: softmax over axis 0.
struct SoftmaxParams {};
/// src: x [n, T]. dst: ids [k, T] i32 by falling value, ties to the lower id. n_groups > 1: groups of n / n_groups
/// consecutive ids, scored by the sum of their two largest values; only the n_groups_used best take part (ties to the
/// lower group). keep_ratio > 0: an id of rank min_kept or later whose value is below keep_ratio * the largest is -1.
struct TopKParams {
  int k = 0;
  int n_groups = 1;
  int n_groups_used = 1;
  int min_kept = 0;
  float keep_ratio = 0.0f;
};
/// src: x [n, T] or [n] (the same for each token), ids [k, T] i32. dst: [k, T] = x[ids], 0 for an id outside [0, n).
/// In this order: softmax over the k values (of ids inside), normalise, scale.
struct GatherParams {
  bool normalise = false;  // divide by max(sum, 6.103515625e-5)
  bool softmax = false;    // softmax over the gathered values
  float scale = 1.0f;
};
/// src: k [dk, n_head_kv, T], v [dv, n_head_kv, T], pool, spans, block_table (see AttentionParams). No dst.
/// Values are rounded to the types of the layout; q8_0: d = amax / 127, q = round(x / d), d stored as f16.
struct KvAppendParams {
  KvLayout kv;
};
/// Each head times the orthonormal Hadamard matrix, its own inverse: H[i][j] = (-1)^popcount(i & j) / sqrt(d). Scores
/// stay as they are when q and k are both rotated; what stands out in single elements is spread over all of them, which
/// makes rows easier to quantise. src: x [d, heads, T], d a power of two. dst: the same shape.
struct HadamardParams {};
/// src: y [N, n_used, T], ids [n_used, T] i32, and optionally weights [n_used, T] (else 1). dst: [N, T], the sum over
/// the used experts inside [expert_begin, expert_end) (0: all) in the order of `ids`; ids of -1 are skipped.
struct WeightedSumParams {
  int expert_begin = 0;
  int expert_end = 0;
};
/// src: x. dst: the same type and shape.
struct CopyParams {};
/// Elements [begin, begin + count) of axis 0. src: x [n, ...]. dst: [count, ...].
struct SliceParams {
  int begin = 0;
  int count = 0;
};
/// Joins along axis 0. src: a [n, h, T], b [m, h or 1, T] (1: repeated). dst: [n + m, h, T].
struct ConcatParams {};
/// One matrix per head. src: W [K, rows_per_head * n_head] (or 3-D), x [K, 1 or n_head, T], optionally tap (mul_mat).
/// dst: [count, n_head, T]: rows [begin, begin + count) of each head's matrix.
struct MulMatHeadsParams {
  int n_head = 0;
  int rows_per_head = 0;
  int begin = 0;
  int count = 0;
};
/// The recurrence of delta_net. src: q, k [head_dim, n_head_k, T], v [head_dim, n_head_v, T], g, beta [n_head_v, T],
/// pool, spans. For each value head, M [value j, key i]: M *= exp(g); d_j = beta (v_j - M_j k); M_j += d_j k;
/// dst_j = M_j q. dst: [head_dim * n_head_v, T].
// rotate: src positions [T] i32, then factors [n_rot/2] when has_factors, then x [d, heads, T]; dst as x.
// attn_dense: src q, pool, spans, block_table, slot 0 sinks; otherwise as attention without the append.
// delta_rule: parameters as delta_net.
// pick: as sample.

enum class Op : std::uint8_t {
#define OP(id, Params) id,
#include "../../src/core/ops/ops.def"
#undef OP
};

inline constexpr int kOpCount = 0
#define OP(id, Params) +1
#include "../../src/core/ops/ops.def"
#undef OP
    ;

using OpParams =
    std::variant<EmbedParams, NormParams, LinearParams, QkvParams, RopeParams, AttentionParams, FfnParams,
                 MoeRouteParams, MoeFfnParams, SampleParams, GetRowsParams, QuantiseActParams, MulMatParams,
                 MulMatIdParams, NormaliseParams, BinaryParams, UnaryParams, GatedParams, SoftmaxParams, TopKParams,
                 GatherParams, KvAppendParams, WeightedSumParams, CopyParams, MlaParams, MlaExpandParams, Conv1dParams,
                 DeltaNetParams, PoolParams, SliceParams, ConcatParams, MulMatHeadsParams, HadamardParams>;

[[nodiscard]] const char* op_name(Op op) noexcept;

}  // namespace ggml
