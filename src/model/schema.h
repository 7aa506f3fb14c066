#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/gguf.h"
#include "model/hparams.h"
#include "model/weights.h"

namespace llama {

/// Symbols of tensor shapes; each has a value for a given layer and a name that error messages show.
enum class Dim : std::uint8_t {
  none,  // the shape ends here
  embd,
  vocab,
  q_rows,    // n_head * dk
  k_rows,    // n_head_kv * dk
  v_rows,    // n_head_kv * dv
  qkv_rows,  // all three
  attn_out,  // n_head * dv
  dk,
  dv,
  heads,    // n_head
  q_rows2,  // query and gate
  half_rot,
  ff,
  ff2,  // gate and up fused
  experts,
  expert_ff,
  expert_ff2,  // gate and up fused
  shared_ff,
  // Latent attention.
  q_rank,
  kv_rank,
  kv_rank_rot,   // kv_rank + rotated part
  nope,          // part of a key head that is not rotated
  kv_b_rows,     // n_head * (nope + dv)
  kv_rank_rows,  // n_head * kv_rank
  // Gated delta net.
  conv_kernel,
  conv_channels,
  ssm_inner,
  ssm_in_rows,  // conv_channels + ssm_inner
  ssm_heads,
  ssm_heads2,
  ssm_state,
  // Encoders.
  context,
  token_types,
};

enum class Scope : std::uint8_t { global, layer };
enum class Need : std::uint8_t { required, optional };
/// In which layers the row exists: all, those with a dense feed-forward or with experts, those with attention or with a
/// recurrent mixer.
enum class When : std::uint8_t { always, dense, moe, attention, recurrent };
enum class Bias : std::uint8_t { none, optional, required };  // whether a `.bias` of the last row dimension exists

/// One tensor that a family knows. The loader, the planner and file checks read the same rows.
struct TensorRow {
  Role role;
  std::string_view name;  // without "blk.N." and ".weight"
  Scope scope = Scope::layer;
  std::array<Dim, 3> shape{};
  Need need = Need::required;
  When when = When::always;
  Bias bias = Bias::none;
  Role instead = Role::count;  // not looked for where this (fused) tensor was found; fused rows come first
  Role with = Role::count;     // looked for only where this tensor was found
  Role unless = Role::count;   // not required where this tensor was found
  std::string_view suffix = ".weight";
  std::array<Dim, 3> flat_shape{};  // another shape of the same elements in the same order, which files may have
};

/// One tensor of a file matched to its role.
struct TensorMatch {
  const ggml::gguf::TensorInfo* info = nullptr;
  Role role = Role::count;
  int layer = -1;  // -1: global
  enum class Part : std::uint8_t { weight, bias, scale } part = Part::weight;
};

/// The outcome of holding a file against the rows of its family.
struct SchemaMatch {
  std::vector<TensorMatch> found;
  std::vector<std::string> problems;  // missing, mis-shaped and mis-typed tensors: what was expected, what is there
  std::vector<std::string> unused;    // names of tensors that no row asks for
  // Tensors of the next-token-prediction blocks, which are skipped on purpose.
  int n_skipped = 0;
  std::uint64_t skipped_bytes = 0;
};

[[nodiscard]] SchemaMatch match_schema(const ggml::gguf::File& file, std::span<const TensorRow> rows,
                                       const Hparams& hparams);

}  // namespace llama
