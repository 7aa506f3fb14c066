#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "op_def.h"

namespace ggml {

/// Where a decomposition writes: appends primitives to a graph whose tensors already include the node's results, so
/// that results keep their ids and names. New intermediates are named "<node>/<what>".
class Lowering {
 public:
  Lowering(Graph& to, const Node& node) : graph_(to), node_(node) {}

  /// Valid until the next tensor is added: what these functions take is copied for that reason.
  [[nodiscard]] const Tensor& at(TensorId id) const { return graph_.at(id); }

  /// Another shape over the bytes of `of` (from `offset_bytes` on); `of` itself when nothing would differ.
  TensorId view(TensorId of, Shape shape, std::int64_t offset_bytes = 0);
  /// Rows [begin, begin + n) of a matrix weight, or elements of a vector.
  TensorId rows(TensorId weight, std::int64_t begin, std::int64_t n);
  /// `slot` restricted to output rows [begin, begin + n): weight and bias are views.
  Slot rows(const Slot& slot, std::int64_t begin, std::int64_t n);

  struct Step {
    Op op = Op::copy;
    OpParams params;
    std::vector<TensorId> src;
    std::vector<Slot> slots;
  };
  /// Adds a primitive with a new result called "<node>/<what>".
  TensorId emit(Step step, std::string_view what);
  /// Adds a primitive that writes `dst`, through a view when the shapes differ but the number of elements agrees.
  void emit_into(TensorId dst, Step step);
  /// Adds a primitive without results.
  void emit_effect(Step step);

  /// x as a product with `weight` reads it: rounded to the activation partner of the weight's type. One rounding per
  /// (x, form), however many projections share it.
  TensorId rounded(TensorId x, TensorId weight);

 private:
  [[nodiscard]] std::string fresh_name(std::string_view what) const;
  [[nodiscard]] std::vector<TensorDesc> results(const Step& step) const;

  Graph& graph_;
  const Node& node_;
  struct Rounded {
    TensorId x;
    ActType act;
    TensorId result;
  };
  std::vector<Rounded> rounded_;
};

/// A row of primitives of which each reads the one before; only the last writes the decomposition's result.
class Chain {
 public:
  Chain(Lowering& to, std::string_view what, Lowering::Step first) : to_(to), what_(what), last_(std::move(first)) {}

  /// Then `op` on the value so far and on `others`.
  Chain& then(Op op, OpParams params, std::vector<TensorId> others = {});
  /// The value so far under another shape; something must follow.
  Chain& reshape(Shape shape);
  /// Ends with a new tensor, or in `dst`.
  TensorId finish();
  void finish_into(TensorId dst);

 private:
  TensorId value();

  Lowering& to_;
  std::string_view what_;
  Lowering::Step last_;
  TensorId value_;
};

/// W x * scale + adapters + bias of a slot; x is rounded to the weight's partner form. A tapped slot keeps its tap.
[[nodiscard]] Chain project(Lowering& to, const Slot& slot, TensorId x, std::string_view what);

/// The same for expert stacks: x [K, 1 or n_used, T], ids [n_used, T], experts [begin, end).
struct ExpertRange {
  TensorId ids;
  int begin = 0;
  int end = 0;
};
[[nodiscard]] Chain project_experts(Lowering& to, const Slot& slot, TensorId x, const ExpertRange& experts,
                                    std::string_view what);

/// The second half of an adapter: B (factor * narrow) for `narrow` [r, T], the product with A. `scales`: the adapter's,
/// or a view of them.
[[nodiscard]] TensorId widen(Lowering& to, const SlotAdapter& adapter, TensorId narrow, TensorId scales);

}  // namespace ggml
