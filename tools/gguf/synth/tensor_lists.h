#pragma once

#include <span>

#include "preset.h"
#include "tensor_plan.h"

namespace gguf_tool {

using Extent = std::int64_t (*)(const Preset&);
using Condition = bool (*)(const Preset&);

/// Which type of the mix a tensor gets.
enum class Role : std::uint8_t {
  f32,
  base,
  high,  // the better type in the layers that get more bits, else base
  head,
  embedding,  // that of the head when the two are one tensor
  exact,      // small matrices that are kept at 8 bits or more
  expert,
  expert_down,  // as `high`, unless the experts have a type of their own
};

/// One tensor of a group: "blk.N." is put before the name within a layer.
struct TensorRow {
  const char* name;
  Role role;
  Fill fill;
  Extent extents[3];         // fastest axis first; null: 1
  Condition when = nullptr;  // null: always
  double spread = 0;         // for Fill::fixed
};

/// The groups that models are put together from.
struct TensorLists {
  std::span<const TensorRow> model;        // outside the layers
  std::span<const TensorRow> norms;        // of each layer
  std::span<const TensorRow> attention;    // grouped-query attention
  std::span<const TensorRow> latent;       // multi-head latent attention
  std::span<const TensorRow> delta;        // gated delta net
  std::span<const TensorRow> attn_output;  // after grouped-query or latent attention
  std::span<const TensorRow> dense_ffn;
  std::span<const TensorRow> moe_ffn;
  std::span<const TensorRow> mtp;  // next-token prediction, after the last layer
};

[[nodiscard]] const TensorLists& tensor_lists();

}  // namespace gguf_tool
