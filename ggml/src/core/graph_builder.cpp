#include <string>

#include "ggml/log.h"
#include "ops/op_def.h"

namespace ggml {

GraphBuilder::GraphBuilder(int token_bucket, int output_bucket) {
  graph_.token_bucket = token_bucket;
  graph_.output_bucket = output_bucket;
}

TensorId GraphBuilder::append(Tensor tensor) {
  graph_.tensors.push_back(std::move(tensor));
  return TensorId(static_cast<std::int32_t>(graph_.tensors.size()) - 1);
}

TensorId GraphBuilder::weight(const Weight& weight) {
  const auto known = weights_.find(&weight);
  if (known != weights_.end()) return known->second;
  Tensor tensor;
  tensor.name = weight.name;
  tensor.type = weight.type;
  tensor.shape = weight.shape;
  tensor.role = TensorRole::weight;
  tensor.weight = &weight;
  const TensorId id = append(std::move(tensor));
  weights_.emplace(&weight, id);
  return id;
}

TensorId GraphBuilder::port(PortId port, std::string name, DType type, const Shape& shape, Rows rows) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.type = type;
  tensor.shape = shape;
  tensor.role = TensorRole::port;
  tensor.rows = rows;
  tensor.port = port;
  return append(std::move(tensor));
}

TensorId GraphBuilder::reshape(TensorId src, const Shape& shape, std::string name) {
  const Tensor& of = graph_.at(src);
  TANDEM_ASSERT(of.shape.elements() == shape.elements(), "a reshape keeps the number of elements");
  Tensor view;
  view.name = std::move(name);
  view.type = of.type;
  view.shape = shape;
  view.role = TensorRole::view;
  view.rows = of.rows;
  view.base = of.role == TensorRole::view ? of.base : src;
  view.offset_bytes = of.role == TensorRole::view ? of.offset_bytes : 0;
  return append(std::move(view));
}

void GraphBuilder::output(TensorId tensor, PortId port) {
  TensorId target = tensor;
  const Tensor& wanted = graph_.at(tensor);
  if (wanted.role == TensorRole::view && wanted.shape.elements() == graph_.at(wanted.base).shape.elements())
    target = wanted.base;
  const Tensor& t = graph_.at(target);
  if (t.role != TensorRole::activation || t.port.valid())
    target = add_one(Op::copy, CopyParams{}, {tensor}, {}, t.name + " (output)");
  graph_.at(target).port = port;
}

void GraphBuilder::observe(TensorId tensor) {
  graph_.at(tensor).observed = true;
}

std::vector<TensorId> GraphBuilder::add(Op op, OpParams params, std::span<const TensorId> src,
                                        std::span<const Slot> slots, std::string name) {
  TANDEM_ASSERT(params_fit(op, params), "the parameters are those of another op");
  const std::vector<TensorDesc> results = infer_results(op, {graph_, src, slots, params, name}).take();
  Node node{op, params, {src.begin(), src.end()}, {slots.begin(), slots.end()}, {}, std::move(name)};
  for (std::size_t i = 0; i < results.size(); ++i) {
    Tensor tensor;
    tensor.name = i == 0 ? node.name : node.name + "." + std::to_string(i);
    tensor.type = results[i].type;
    tensor.shape = results[i].shape;
    tensor.rows = results[i].rows;
    node.dst.push_back(append(std::move(tensor)));
  }
  std::vector<TensorId> dst = node.dst;
  graph_.nodes.push_back(std::move(node));
  return dst;
}

TensorId GraphBuilder::add_one(Op op, OpParams params, std::vector<TensorId> src, std::span<const Slot> slots,
                               std::string name) {
  return add(op, params, src, slots, std::move(name)).front();
}

TensorId GraphBuilder::embed(TensorId ids, const Slot& table, const EmbedParams& params, std::string name) {
  return add_one(Op::embed, params, {ids}, {&table, 1}, std::move(name));
}

TensorId GraphBuilder::norm(TensorId x, const Slot& weight, const NormParams& params, std::string name) {
  return add_one(Op::norm, params, {x}, {&weight, params.has_weight ? 1u : 0u}, std::move(name));
}

GraphBuilder::NormSum GraphBuilder::add_norm(TensorId x, TensorId residual, const Slot& weight,
                                             const NormParams& params, std::string name) {
  const TensorId src[] = {x, residual};
  const auto dst = add(Op::norm, params, src, {&weight, params.has_weight ? 1u : 0u}, std::move(name));
  return {dst[0], dst[1]};
}

TensorId GraphBuilder::linear(TensorId x, const Slot& weight, std::string name) {
  return add_one(Op::linear, LinearParams{}, {x}, {&weight, 1}, std::move(name));
}

GraphBuilder::Qkv GraphBuilder::qkv(TensorId x, std::span<const Slot> slots, const QkvParams& params,
                                    std::string name) {
  const auto dst = add(Op::qkv, params, {&x, 1}, slots, std::move(name));
  return {dst[0], dst[1], dst[2]};
}

GraphBuilder::Qkv GraphBuilder::rope_qk(const Qkv& qkv, TensorId positions, TensorId factors, const RopeParams& params,
                                        std::string name) {
  std::vector<TensorId> src{positions};
  if (params.has_factors) src.push_back(factors);
  src.push_back(qkv.q);
  src.push_back(qkv.k);
  const auto dst = add(Op::rope, params, src, {}, std::move(name));
  return {dst[0], dst[1], qkv.v};
}

TensorId GraphBuilder::attention(const Qkv& qkv, const AttentionInputs& inputs, const Slot& sinks,
                                 const AttentionParams& params, std::string name) {
  return add_one(Op::attention, params, {qkv.q, qkv.k, qkv.v, inputs.pool, inputs.spans, inputs.block_table},
                 {&sinks, params.has_sinks ? 1u : 0u}, std::move(name));
}

TensorId GraphBuilder::ffn(TensorId x, std::span<const Slot> slots, const FfnParams& params, std::string name) {
  return add_one(Op::ffn, params, {x}, slots, std::move(name));
}

GraphBuilder::Route GraphBuilder::moe_route(TensorId x, std::span<const Slot> slots, const MoeRouteParams& params,
                                            std::string name) {
  const auto dst = add(Op::moe_route, params, {&x, 1}, slots, std::move(name));
  return {dst[0], dst[1]};
}

TensorId GraphBuilder::moe_ffn(TensorId x, const Route& route, std::span<const Slot> slots, const MoeFfnParams& params,
                               std::string name) {
  return add_one(Op::moe_ffn, params, {x, route.ids, route.weights}, slots, std::move(name));
}

TensorId GraphBuilder::add(TensorId a, TensorId b, std::string name) {
  return add_one(Op::add, BinaryParams{}, {a, b}, {}, std::move(name));
}

TensorId GraphBuilder::mul(TensorId a, TensorId b, std::string name) {
  return add_one(Op::mul, BinaryParams{}, {a, b}, {}, std::move(name));
}

TensorId GraphBuilder::unary(TensorId x, const UnaryParams& params, std::string name) {
  return add_one(Op::unary, params, {x}, {}, std::move(name));
}

TensorId GraphBuilder::mla(const MlaInputs& inputs, std::span<const Slot> slots, const MlaParams& params,
                           std::string name) {
  const AttentionInputs& cache = inputs.cache;
  return add_one(Op::mla, params, {inputs.q, inputs.latent, inputs.k_rot, cache.pool, cache.spans, cache.block_table},
                 slots, std::move(name));
}

TensorId GraphBuilder::slice(TensorId x, int begin, int count, std::string name) {
  return add_one(Op::slice, SliceParams{begin, count}, {x}, {}, std::move(name));
}

TensorId GraphBuilder::concat(TensorId a, TensorId b, std::string name) {
  return add_one(Op::concat, ConcatParams{}, {a, b}, {}, std::move(name));
}

TensorId GraphBuilder::conv1d(TensorId x, const StateInputs& state, const Slot& filters, const Conv1dParams& params,
                              std::string name) {
  return add_one(Op::conv1d, params, {x, state.pool, state.spans}, {&filters, 1}, std::move(name));
}

TensorId GraphBuilder::delta_net(const DeltaNetInputs& inputs, const StateInputs& state, const Slot& decay,
                                 const DeltaNetParams& params, std::string name) {
  return add_one(Op::delta_net, params, {inputs.qkv, inputs.beta, inputs.alpha, state.pool, state.spans}, {&decay, 1},
                 std::move(name));
}

TensorId GraphBuilder::pool(TensorId x, TensorId spans, const PoolParams& params, std::string name) {
  return add_one(Op::pool, params, {x, spans}, {}, std::move(name));
}

TensorId GraphBuilder::select_rows(TensorId x, TensorId row_ids, std::string name) {
  return add_one(Op::get_rows, GetRowsParams{}, {x, row_ids}, {}, std::move(name));
}

}  // namespace ggml
