#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ggml/error.h"
#include "ggml/graph.h"

namespace ggml {

class Lowering;

/// What a result looks like, before it is a tensor of a graph.
struct TensorDesc {
  DType type = DType::f32;
  Shape shape;
  Rows rows = Rows::fixed;
};

/// A node that is about to be added (or is there already), as the rules see it. Borrows everything.
struct OpInputs {
  const Graph& graph;
  std::span<const TensorId> src;
  std::span<const Slot> slots;
  const OpParams& params;
  std::string_view name;

  template <class P>
  [[nodiscard]] const P& get() const {
    return std::get<P>(params);
  }
};
[[nodiscard]] OpInputs inputs_of(const Graph& graph, const Node& node);

/// One row of the op table: everything the core knows about an op. Kernels are the devices' business.
struct OpDef {
  std::string_view name;
  /// The results. All validation of shapes and types happens here. Throws Error(invalid_file) naming node and shapes
  /// when a weight does not fit, Error(internal) when sources or slots are missing (the caller's fault).
  std::vector<TensorDesc> (*shape)(const OpInputs& in);
  /// The meaning in primitives: writes nodes that fill node.dst. Null for a primitive.
  void (*decompose)(Lowering& to, const Node& node);
  /// Bytes and arithmetic at `tokens` real rows.
  Cost (*cost)(const Graph& graph, const Node& node, int tokens);
  ShardRule shard;
  /// Element i of the result depends on element i of src[0] and is written after it was read.
  bool in_place = false;
  /// Slots may have adapters: the decomposition adds their products.
  bool takes_adapters = false;
};

#define OP(id, Params) extern const OpDef k_##id;
#include "ops.def"
#undef OP

[[nodiscard]] const OpDef& op_def(Op op) noexcept;
/// Whether `params` is the struct that the op's row names.
[[nodiscard]] bool params_fit(Op op, const OpParams& params) noexcept;
/// The shape rule as a value: the results, or the Error that says what does not fit.
[[nodiscard]] Result<std::vector<TensorDesc>> infer_results(Op op, const OpInputs& in);

}  // namespace ggml
