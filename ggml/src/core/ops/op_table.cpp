#include <algorithm>
#include <array>

#include "op_def.h"

namespace ggml {

namespace {

constexpr std::array<const OpDef*, kOpCount> kTable{
#define OP(id, Params) &k_##id,
#include "ops.def"
#undef OP
};

}  // namespace

const OpDef& op_def(Op op) noexcept {
  return *kTable[static_cast<std::size_t>(op)];
}

const char* op_name(Op op) noexcept {
  return op_def(op).name.data();
}

bool is_primitive(Op op) noexcept {
  return op_def(op).decompose == nullptr;
}

ShardRule shard_rule(Op op) noexcept {
  return op_def(op).shard;
}

Cost node_cost(const Graph& graph, const Node& node, int tokens) {
  return op_def(node.op).cost(graph, node, tokens);
}

bool params_fit(Op op, const OpParams& params) noexcept {
  switch (op) {
#define OP(id, Params) \
  case Op::id:         \
    return std::holds_alternative<Params>(params);
#include "ops.def"
#undef OP
  }
  return false;
}

OpInputs inputs_of(const Graph& graph, const Node& node) {
  return {graph, node.src, node.slots, node.params, node.name};
}

Result<std::vector<TensorDesc>> infer_results(Op op, const OpInputs& in) {
  const OpDef& def = op_def(op);
  const bool adapted = std::any_of(in.slots.begin(), in.slots.end(), [](const Slot& s) { return !s.adapters.empty(); });
  if (adapted && !def.takes_adapters)
    return Error(ErrorCode::internal,
                 std::string(in.name) + ": slots of " + std::string(def.name) + " take no adapters");
  try {
    return def.shape(in);
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace ggml
