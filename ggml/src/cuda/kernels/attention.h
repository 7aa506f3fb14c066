#pragma once

#include "cuda/kernels/activations.h"
#include "cuda/kernels/weights.h"
#include "ggml/kv_layout.h"
#include "ggml/op.h"

struct CUstream_st;

/// Attention over KV blocks in memory of the card (KvLayout: head-major planes in blocks of 64 tokens).
namespace ggml::cuda {

/// How the rows of one plane are coded (KvForm), worked out once. A value is scale * (code - center) + minimum.
struct KvCoding {
  DType type = DType::f16;
  int bits = 0;                            // of a code; 0: a float type
  int center = 0;                          // subtracted from codes
  float most = 0.0f;                       // bound of |code - center|
  bool chooses = false;                    // codes choose from the table of 16 values
  bool has_min = false;                    // per 32 elements a scale and a minimum (f16 each), else the scale alone
  bool row_scale = false;                  // instead, one f32 scale for all of the row
  int row_bytes = 0, scale_row_bytes = 0;  // from token to token
};

/// Where the planes of a block lie, worked out once.
struct KvPlanes {
  KvCoding k, v;
  int n_head_kv = 0, dk = 0, dv = 0;  // dv: how many elements of a row in the plane of values are used
  std::int64_t block_bytes = 0, k_scales = 0, v_values = 0, v_scales = 0;
  std::int64_t k_head = 0, k_head_scales = 0, v_head = 0, v_head_scales = 0;  // bytes from head to head
};

struct KvInputs {
  std::uint8_t* pool = nullptr;
  const AttnSpan* spans = nullptr;
  const std::int32_t* table = nullptr;
  const int* n_spans = nullptr;
};

struct AppendArgs {
  KvPlanes kv;
  KvInputs in;
  const float* k = nullptr;
  const float* v = nullptr;
  RowCount tokens;
};
void launch_kv_append(const AppendArgs& args, CUstream_st* stream);

struct AttentionArgs {
  KvPlanes kv;
  KvInputs in;
  const float* q = nullptr;
  const float* sinks = nullptr;
  float* y = nullptr;
  int n_head = 0;
  float scale = 1.0f, softcap = 0.0f, max_alibi_bias = 0.0f;
  bool causal = true;
  WindowKind window_kind = WindowKind::none;
  int window = 0;
  RowCount tokens;
  // Cells are split among blocks; each leaves its maximum, sum and weighted values.
  int n_splits = 1;
  float* partial = nullptr;  // [dv + 2] per (row, head, split)
  // Few rows only.
  int* arrived = nullptr;  // zeros, few_rows_attention_counters() of them
  RoundedOutput rounded;   // the result also in this form
};
/// How many splits fill the card; partial needs rows * n_head * splits * (dv + 2) floats when it is above 1.
[[nodiscard]] int attention_splits(int rows, int n_head_kv, int multiprocessors);
void launch_attention(const AttentionArgs& args, CUstream_st* stream);
/// The results of all splits (n_splits above 1, all of them in `partial`) as one.
void launch_join_splits(const AttentionArgs& args, CUstream_st* stream);

// The same for few rows, each a sequence of its own as a rule: cells are split finely, keys and values read once for
// all heads that share them. It takes any number of rows.
/// Whether head sizes allow it, and whether the result can be rounded at once.
[[nodiscard]] bool few_rows_attention_fits(const KvPlanes& kv);
[[nodiscard]] bool few_rows_attention_rounds(const KvPlanes& kv, int group);
[[nodiscard]] int few_rows_attention_splits(const KvPlanes& kv, int rows, int group, int multiprocessors);
[[nodiscard]] int few_rows_attention_counters(const KvPlanes& kv, int rows, int group);
void launch_few_rows_attention(const AttentionArgs& args, CUstream_st* stream);

/// From projected heads to attention: norms of q and k, rotation, and k and v into the cache.
struct HeadsArgs {
  KvPlanes kv;
  KvInputs in;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  float* q_rotated = nullptr;
  NormArgs q_norm, k_norm;  // weight (or null), heads and eps of each; rms
  RotateArgs rotate;        // without x, y and heads; n_rot 0: nothing is rotated
  int n_head = 0;
  RowCount tokens;
};
inline constexpr int kMostHeadValues = 256;  // dk and dv may not be larger
void launch_heads(const HeadsArgs& args, CUstream_st* stream);

}  // namespace ggml::cuda
