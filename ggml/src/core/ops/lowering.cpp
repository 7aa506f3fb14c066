#include "lowering.h"

#include <algorithm>

namespace ggml {

TensorId Lowering::view(TensorId of, Shape shape, std::int64_t offset_bytes) {
  const Tensor& base = graph_.at(of);
  if (offset_bytes == 0 && base.shape == shape) return of;
  Tensor view;
  view.name = base.name + " (view)";
  view.type = base.type;
  view.shape = shape;
  view.role = TensorRole::view;
  view.rows = base.rows;
  view.base = base.role == TensorRole::view ? base.base : of;
  view.offset_bytes = offset_bytes + (base.role == TensorRole::view ? base.offset_bytes : 0);
  graph_.tensors.push_back(std::move(view));
  return TensorId(static_cast<std::int32_t>(graph_.tensors.size()) - 1);
}

TensorId Lowering::rows(TensorId weight, std::int64_t begin, std::int64_t n) {
  const Tensor& w = graph_.at(weight);
  const bool is_matrix = w.shape[1] > 1;
  const std::size_t stride = is_matrix ? row_bytes(w.type, w.shape[0]) : row_bytes(w.type, 1);
  const Shape shape = is_matrix ? Shape(w.shape[0], n) : Shape(n);
  return view(weight, shape, begin * static_cast<std::int64_t>(stride));
}

Slot Lowering::rows(const Slot& slot, std::int64_t begin, std::int64_t n) {
  Slot part = slot;
  part.weight = rows(slot.weight, begin, n);
  if (slot.bias.valid()) part.bias = rows(slot.bias, begin, n);
  for (SlotAdapter& adapter : part.adapters) adapter.b = rows(adapter.b, begin, n);
  return part;
}

std::string Lowering::fresh_name(std::string_view what) const {
  return node_.name + "/" + std::string(what);
}

std::vector<TensorDesc> Lowering::results(const Step& step) const {
  return op_def(step.op).shape({graph_, step.src, step.slots, step.params, node_.name});
}

TensorId Lowering::emit(Step step, std::string_view what) {
  const std::vector<TensorDesc> descs = results(step);
  Tensor tensor;
  tensor.name = fresh_name(what);
  tensor.type = descs.front().type;
  tensor.shape = descs.front().shape;
  tensor.rows = descs.front().rows;
  graph_.tensors.push_back(std::move(tensor));
  const TensorId dst(static_cast<std::int32_t>(graph_.tensors.size()) - 1);
  std::string name = fresh_name(what);
  graph_.nodes.push_back({step.op, step.params, std::move(step.src), std::move(step.slots), {dst}, std::move(name)});
  return dst;
}

void Lowering::emit_into(TensorId dst, Step step) {
  const std::vector<TensorDesc> descs = results(step);
  const TensorId target = view(dst, descs.front().shape);
  TANDEM_ASSERT(graph_.at(target).shape.elements() == graph_.at(dst).shape.elements(),
                "a decomposition writes another number of elements than its result has");
  std::string name = graph_.at(dst).name;
  graph_.nodes.push_back({step.op, step.params, std::move(step.src), std::move(step.slots), {target}, std::move(name)});
}

void Lowering::emit_effect(Step step) {
  (void)results(step);
  std::string name = fresh_name(op_name(step.op));
  graph_.nodes.push_back({step.op, step.params, std::move(step.src), std::move(step.slots), {}, std::move(name)});
}

TensorId Lowering::rounded(TensorId x, TensorId weight) {
  const ActType act = type_info(graph_.at(weight).type).act;
  if (act == ActType::f32) return x;
  for (const Rounded& r : rounded_)
    if (r.x == x && r.act == act) return r.result;
  const TensorId result = emit({Op::quantise_act, QuantiseActParams{act}, {x}, {}}, "rounded");
  rounded_.push_back({x, act, result});
  return result;
}

Chain& Chain::then(Op op, OpParams params, std::vector<TensorId> others) {
  others.insert(others.begin(), value());
  last_ = {op, params, std::move(others), {}};
  value_ = {};
  return *this;
}

Chain& Chain::reshape(Shape shape) {
  value_ = to_.view(value(), shape);
  return *this;
}

TensorId Chain::value() {
  if (!value_.valid()) value_ = to_.emit(std::move(last_), what_);
  return value_;
}

TensorId Chain::finish() {
  return value();
}

void Chain::finish_into(TensorId dst) {
  TANDEM_ASSERT(!value_.valid(), "a chain that ends in a result ends with an op");
  to_.emit_into(dst, std::move(last_));
}

TensorId widen(Lowering& to, const SlotAdapter& adapter, TensorId narrow, TensorId scales) {
  const TensorId scaled = to.emit({Op::mul, BinaryParams{}, {narrow, scales}, {}}, "adapter_scaled");
  return to.emit({Op::mul_mat, MulMatParams{}, {adapter.b, to.rounded(scaled, adapter.b)}, {}}, "adapter_b");
}

namespace {

/// B (factor * (A x)) of one adapter.
TensorId adapter_product(Lowering& to, const SlotAdapter& adapter, TensorId x) {
  const TensorId narrow =
      to.emit({Op::mul_mat, MulMatParams{}, {adapter.a, to.rounded(x, adapter.a)}, {}}, "adapter_a");
  return widen(to, adapter, narrow, adapter.scales);
}

/// The same for expert stacks.
TensorId adapter_product(Lowering& to, const SlotAdapter& adapter, TensorId x, const ExpertRange& experts) {
  const MulMatIdParams params{experts.begin, experts.end};
  const auto product = [&](TensorId w, TensorId in, std::string_view what) {
    return to.emit({Op::mul_mat_id, params, {w, to.rounded(in, w), experts.ids}, {}}, what);
  };
  const TensorId narrow = product(adapter.a, x, "adapter_a");
  const TensorId scales = to.view(adapter.scales, Shape(1, 1, to.at(adapter.scales).shape[1]));
  const TensorId scaled = to.emit({Op::mul, BinaryParams{}, {narrow, scales}, {}}, "adapter_scaled");
  return product(adapter.b, scaled, "adapter_b");
}

}  // namespace

Chain project(Lowering& to, const Slot& slot, TensorId x, std::string_view what) {
  Lowering::Step step{Op::mul_mat, MulMatParams{}, {slot.weight, to.rounded(x, slot.weight)}, {}};
  if (slot.tapped) {
    step.src.push_back(x);
    step.slots.push_back({slot.weight, {}, {}, true});
  }
  Chain chain(to, what, std::move(step));
  if (slot.scale.valid()) chain.then(Op::mul, BinaryParams{}, {slot.scale});
  for (const SlotAdapter& adapter : slot.adapters)
    chain.then(Op::add, BinaryParams{}, {adapter_product(to, adapter, x)});
  if (slot.bias.valid()) chain.then(Op::add, BinaryParams{}, {slot.bias});
  return chain;
}

Chain project_experts(Lowering& to, const Slot& slot, TensorId x, const ExpertRange& experts, std::string_view what) {
  Lowering::Step step{Op::mul_mat_id,
                      MulMatIdParams{experts.begin, experts.end},
                      {slot.weight, to.rounded(x, slot.weight), experts.ids},
                      {}};
  if (slot.tapped) {
    step.src.push_back(x);
    step.slots.push_back({slot.weight, {}, {}, true});
  }
  const Shape ids = to.at(experts.ids).shape;
  Chain chain(to, what, std::move(step));
  if (slot.scale.valid()) {
    TensorId scale = slot.scale;
    if (to.at(scale).shape.elements() > 1) {
      const TensorId each = to.emit({Op::gather, GatherParams{}, {scale, experts.ids}, {}}, "expert_scale");
      scale = to.view(each, Shape(1, ids[0], ids[1]));
    }
    chain.then(Op::mul, BinaryParams{}, {scale});
  }
  for (const SlotAdapter& adapter : slot.adapters)
    chain.then(Op::add, BinaryParams{}, {adapter_product(to, adapter, x, experts)});
  if (slot.bias.valid()) {
    const TensorId bias = to.emit({Op::get_rows, GetRowsParams{}, {slot.bias, experts.ids}, {}}, "expert_bias");
    chain.then(Op::add, BinaryParams{}, {bias});
  }
  return chain;
}

}  // namespace ggml
