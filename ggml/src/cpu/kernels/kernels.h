#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ggml/type.h"

/// The CPU kernels: one table of functions per ISA level, chosen once at run time.
///
/// Everything in a table is noexcept, allocates nothing, keeps no state and may run on any thread. Shapes are checked
/// by the callers (shape rules, compile()); a kernel only asserts them in debug builds.
namespace ggml::cpu {

// ------------------------------------------------------------------------------------------------- activations

/// Activations that were rounded for a matrix product: `rows` rows of `k` elements in our private layout.
///
/// Integer forms are cut into pieces of 256 elements (the last one padded with zeros), piece p of row r lies at
/// data + p * piece_stride + r * row_stride: a GEMM walks all rows of one piece, so the rows of a piece are neighbours.
/// Float forms (f32, f16, bf16) hold f32 that has been rounded to the form, row after row; piece_stride is then the
/// 256 * 4 bytes from one piece to the next of the same row.
/// A view does not own its memory.
struct ActView {
  std::byte* data = nullptr;  // 64-byte aligned
  std::int64_t row_stride = 0;
  std::int64_t piece_stride = 0;
};

inline constexpr int kActPiece = 256;

/// Bytes of `rows` rows of `k` elements in form `type`; a multiple of 64. The same for every table.
[[nodiscard]] std::size_t act_bytes(ActType type, std::int64_t k, std::int64_t rows) noexcept;
/// The layout of such a buffer at `data` (64-byte aligned, act_bytes() long).
[[nodiscard]] ActView act_view(ActType type, void* data, std::int64_t k, std::int64_t rows) noexcept;

// ---------------------------------------------------------------------------------------------- matrix product

/// dst[row_of(m)][n] = sum over k of weights[n][k] * act[src_of(m)][k]   for 0 <= m < m_rows, n0 <= n < n1
///
/// Rounding is that of the spec's section 6 (mainline's pairing): integers inside a block are exact, sums are f32.
struct MatmulArgs {
  const std::byte* weights = nullptr;  // row n at weights + n * weight_row_bytes, in the GGUF layout
  std::int64_t weight_row_bytes = 0;
  std::int64_t k = 0;                      // a multiple of the type's block
  std::int64_t n0 = 0, n1 = 0;             // the rows of weights to do; any range, multiples of 32 are fastest
  ActView act;                             // in the form type_info(type).act
  std::int64_t m_rows = 0;                 // any number; one takes the GEMV path, a few may
  const std::int32_t* src_rows = nullptr;  // [m_rows] row of act for m; null: m itself (MoE gather)
  const std::int32_t* dst_rows = nullptr;  // [m_rows] row of dst for m; null: m itself (MoE scatter)
  float* dst = nullptr;                    // row r at dst + r * dst_row_stride, element n at [n]
  std::int64_t dst_row_stride = 0;         // in floats
  void* scratch = nullptr;                 // this thread's own, 64-byte aligned, matmul_scratch_bytes(m_rows) long
};

/// Scratch one thread needs for a product with up to `m_rows` activation rows. Grows up to m_rows = 512, then stays.
[[nodiscard]] std::size_t matmul_scratch_bytes(std::int64_t m_rows) noexcept;

using MatmulFn = void (*)(const MatmulArgs&) noexcept;

enum class GluOp : std::uint8_t { silu, gelu, relu };  // gelu: the tanh form

// ---------------------------------------------------------------------------------------------------- attention

/// Up to 64 tokens of one KV head: a contiguous run of a planar KV block, values plane and scales plane, rows as
/// KvForm (ggml/kv_layout.h) has them.
struct KvTile {
  const std::byte* values = nullptr;
  const std::uint16_t* scales = nullptr;  // null for float types
  int n_tokens = 0;
  int dim = 0;  // a multiple of 32 for quantised types; else any
};

/// scores[i * scores_stride + t] = sum over d of q[i * q_stride + d] * K[t][d], for i < n_q, t < k.n_tokens.
/// q is scaled by the caller. n_q: heads of a group times rows; 1..8 share each load of K.
struct QkArgs {
  const float* q = nullptr;
  std::int64_t q_stride = 0;
  int n_q = 0;
  KvTile k;
  float* scores = nullptr;
  std::int64_t scores_stride = 0;
};

/// acc[i * acc_stride + d] += sum over t of p[i * p_stride + t] * V[t][d], for i < n_q, d < v.dim.
struct PvArgs {
  const float* p = nullptr;
  std::int64_t p_stride = 0;
  int n_q = 0;
  KvTile v;
  float* acc = nullptr;
  std::int64_t acc_stride = 0;
};

using QkFn = void (*)(const QkArgs&) noexcept;
using PvFn = void (*)(const PvArgs&) noexcept;

/// Writes one KV row of `dim` floats: codes to the values plane, scales to the scales plane, by the rules of
/// ggml/kv_rows.h.
using KvStoreFn = void (*)(const float* src, int dim, std::byte* values, std::uint16_t* scales) noexcept;
/// The reverse (shifts, decompositions, spills).
using KvLoadFn = void (*)(const std::byte* values, const std::uint16_t* scales, int dim, float* dst) noexcept;

/// Null for types that hold no KV.
struct KvKernels {
  QkFn qk = nullptr;
  PvFn pv = nullptr;
  KvStoreFn store = nullptr;
  KvLoadFn load = nullptr;
};

// -------------------------------------------------------------------------------------------------- float vectors

struct RopeArgs {
  float* x = nullptr;          // one head, changed in place
  const float* cos = nullptr;  // [n_rot / 2], any scaling of magnitudes already in them
  const float* sin = nullptr;
  int n_rot = 0;  // even; elements from n_rot on are left alone
};

/// Row functions over f32; n is any count >= 0, dst may be the same as a source (not partly overlapping).
struct VecKernels {
  /// dst = x / sqrt(mean(x^2) + eps) * weight; weight may be null.
  void (*rms_norm)(const float* x, const float* weight, float eps, std::int64_t n, float* dst) noexcept;
  /// dst = (x - mean) / sqrt(var + eps) * weight + bias; weight and bias may be null.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, std::int64_t n,
                     float* dst) noexcept;
  /// dst = exp(x - max); returns the sum. A row of -inf alone gives zeros and 0.
  float (*exp_sub_max)(const float* x, float max, std::int64_t n, float* dst) noexcept;
  /// dst = softmax(x). A row of -inf alone gives zeros.
  void (*softmax)(const float* x, std::int64_t n, float* dst) noexcept;
  float (*max)(const float* x, std::int64_t n) noexcept;  // -inf for n = 0
  float (*sum)(const float* x, std::int64_t n) noexcept;
  float (*dot)(const float* a, const float* b, std::int64_t n) noexcept;
  void (*silu)(const float* x, std::int64_t n, float* dst) noexcept;
  void (*gelu)(const float* x, std::int64_t n, float* dst) noexcept;  // tanh form
  void (*sigmoid)(const float* x, std::int64_t n, float* dst) noexcept;
  void (*tanh)(const float* x, std::int64_t n, float* dst) noexcept;                      // for soft-caps
  void (*silu_mul)(const float* g, const float* u, std::int64_t n, float* dst) noexcept;  // silu(g) * u
  void (*gelu_mul)(const float* g, const float* u, std::int64_t n, float* dst) noexcept;  // gelu(g) * u
  void (*relu_mul)(const float* g, const float* u, std::int64_t n, float* dst) noexcept;  // max(g, 0) * u
  void (*add)(const float* a, const float* b, std::int64_t n, float* dst) noexcept;
  void (*mul)(const float* a, const float* b, std::int64_t n, float* dst) noexcept;
  void (*scale)(const float* a, float s, std::int64_t n, float* dst) noexcept;
  void (*axpy)(float s, const float* x, std::int64_t n, float* dst) noexcept;       // dst += s * x
  void (*rope_norm)(const RopeArgs&) noexcept;                                      // pairs (2i, 2i + 1)
  void (*rope_neox)(const RopeArgs&) noexcept;                                      // pairs (i, i + n_rot / 2)
  void (*f32_to_f16)(const float* x, std::int64_t n, std::uint16_t* dst) noexcept;  // ties to even
  void (*f16_to_f32)(const std::uint16_t* x, std::int64_t n, float* dst) noexcept;
  void (*f32_to_bf16)(const float* x, std::int64_t n, std::uint16_t* dst) noexcept;  // ties to even
  void (*bf16_to_f32)(const std::uint16_t* x, std::int64_t n, float* dst) noexcept;
};

// --------------------------------------------------------------------------------------------------------- tables

/// What a table can do with one tensor type. Both are null for types that are no weights (i32).
struct TypeKernels {
  /// `k` weights of one row to f32. Bit for bit the spec's formula, but for a fused multiply-add in the last place.
  /// Null for interleaved types, whose rows are decoded by dequantise_row_of() of quant.h.
  void (*dequantise_row)(const std::byte* row, std::int64_t k, float* dst) noexcept = nullptr;
  MatmulFn mul_mat = nullptr;
};

/// Rounds row `row` of an activation view: `k` floats at `src`.
using QuantiseActFn = void (*)(const float* src, std::int64_t k, const ActView& dst, std::int64_t row) noexcept;

struct KernelTable {
  const char* name = "";         // as in GGML_CPU_ISA: scalar, avx2, avx512, avx512vnni, avx512vbmi
  const char* description = "";  // for logs
  TypeKernels types[kTypeCount] = {};
  QuantiseActFn quantise_act[kActTypeCount] = {};
  KvKernels kv[kTypeCount] = {};
  VecKernels vec = {};
  /// Runs `iterations` rounds of independent 8-bit multiply-accumulates as this level's GEMM uses them and returns a
  /// value that depends on all of them. One round is `int8_peak_ops` operations (a multiply and an add are two).
  std::int64_t (*int8_peak)(std::int64_t iterations) noexcept = nullptr;
  std::int64_t int8_peak_ops = 0;
  /// Forms of reading `bytes` (a multiple of 64) as fast as this level can; each returns a value that depends on all of
  /// them. Which one is the fastest is the machine's to say.
  std::array<std::uint64_t (*)(const std::byte* data, std::size_t bytes) noexcept, 3> stream_read{};

  [[nodiscard]] const TypeKernels& of(DType type) const { return types[static_cast<std::size_t>(type)]; }
  [[nodiscard]] const KvKernels& kv_of(DType type) const { return kv[static_cast<std::size_t>(type)]; }
  [[nodiscard]] QuantiseActFn act_of(ActType type) const { return quantise_act[static_cast<std::size_t>(type)]; }
};

/// The tables this CPU can run, best first; the scalar reference, which tests trust, is last.
[[nodiscard]] std::span<const KernelTable* const> available_tables() noexcept;
/// The table called `forced` (the value of GGML_CPU_ISA), or the best one when it is empty.
/// Throws Error(invalid_argument) for a name that does not exist or that this CPU cannot run; it lists what it can.
[[nodiscard]] const KernelTable& select_table(std::string_view forced);

/// Rounds rows [row0, row1) of a [n_rows][src_stride] f32 matrix into `dst`.
void quantise_act_rows(const KernelTable& table, ActType type, const float* src, std::int64_t src_stride,
                       std::int64_t k, const ActView& dst, std::int64_t row0, std::int64_t row1) noexcept;

/// dst[m][n] = glu(gate[m][n]) * up[m][n] in one pass: both products of a few columns at a time, so that the halves
/// never leave the cache. `product` describes the gate's weights and everything else; `up` has the same shape.
struct GateUpArgs {
  MatmulArgs product;  // weights: the gate's; scratch: gate_up_scratch_bytes() long
  DType gate_type = DType::f32;
  const std::byte* up = nullptr;  // weights of the same k and rows
  std::int64_t up_row_bytes = 0;
  DType up_type = DType::f32;  // same activation form as gate_type
  GluOp op = GluOp::silu;
};
[[nodiscard]] std::size_t gate_up_scratch_bytes(std::int64_t m_rows) noexcept;
void gate_up(const KernelTable& table, const GateUpArgs& args) noexcept;

}  // namespace ggml::cpu
