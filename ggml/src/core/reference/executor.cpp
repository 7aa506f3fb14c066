#include <string>

#include "../heads_tap.h"
#include "../ops/op_def.h"
#include "ggml/error.h"
#include "ggml/reference.h"
#include "ops.h"

namespace ggml {

namespace {

using Evaluate = void (*)(reference::Memory&, const Node&);

Evaluate evaluator(Op op) {
  switch (op) {
    case Op::get_rows:
      return reference::get_rows;
    case Op::quantise_act:
      return reference::quantise_act;
    case Op::mul_mat:
      return reference::mul_mat;
    case Op::mul_mat_id:
      return reference::mul_mat_id;
    case Op::normalise:
      return reference::normalise;
    case Op::add:
      return reference::add;
    case Op::mul:
      return reference::mul;
    case Op::unary:
      return reference::unary;
    case Op::gated:
      return reference::gated;
    case Op::rotate:
      return reference::rotate;
    case Op::softmax:
      return reference::softmax;
    case Op::top_k:
      return reference::top_k;
    case Op::gather:
      return reference::gather;
    case Op::kv_append:
      return reference::kv_append;
    case Op::attn_dense:
      return reference::attn_dense;
    case Op::weighted_sum:
      return reference::weighted_sum;
    case Op::pick:
      return reference::pick;
    case Op::copy:
      return reference::copy;
    case Op::hadamard:
      return reference::hadamard;
    case Op::slice:
      return reference::slice;
    case Op::concat:
      return reference::concat;
    case Op::mul_mat_heads:
      return reference::mul_mat_heads;
    case Op::conv1d:
      return reference::conv1d;
    case Op::delta_rule:
      return reference::delta_rule;
    case Op::pool:
      return reference::pool;
    default:
      return nullptr;  // coarse: never left after decompose()
  }
}

class ReferenceProgram final : public Program {
 public:
  ReferenceProgram(const Graph& graph, std::span<const PortBinding> ports, Observer* observer)
      : graph_(decompose(graph)), memory_(graph_, ports), observer_(observer) {
    for (const Node& node : graph_.nodes) TANDEM_ASSERT(evaluator(node.op) != nullptr, "a primitive has no reference");
  }

  [[nodiscard]] const MemoryPlan& memory() const noexcept override { return plan_; }

  [[nodiscard]] std::vector<std::string> describe() const override {
    std::vector<std::string> lines;
    for (const Node& node : graph_.nodes) lines.push_back(node.name + ": " + op_name(node.op) + " reference");
    return lines;
  }

  void run(const StepCounts& counts, const StopToken& stop) {
    memory_.set_counts(counts);
    for (const Node& node : graph_.nodes) {
      if (stop.stop != nullptr && stop.stop(stop.user)) throw Error(ErrorCode::cancelled, "the step was cancelled");
      evaluator(node.op)(memory_, node);
      if (observer_ != nullptr) show_tap(node);
      for (TensorId id : node.dst) finish(memory_.base(id));
    }
  }

 private:
  void finish(TensorId id) {
    memory_.flush(id);
    const Tensor& t = graph_.at(id);
    if (observer_ == nullptr || !t.observed) return;
    const std::vector<float> values = memory_.to_float(id);
    const std::int64_t rows = t.rows == Rows::tokens    ? memory_.counts().n_tokens
                              : t.rows == Rows::outputs ? memory_.counts().n_outputs
                                                        : t.shape.rows();
    observer_->on_tensor(t, values.data(), rows);
  }

  // Products whose slot is tapped carry the unrounded input as their last source.
  void show_tap(const Node& node) {
    if (node.slots.empty() || !node.slots[0].tapped) return;
    const Tensor& weight = graph_.at(memory_.base(node.slots[0].weight));
    const std::vector<float> rows = memory_.to_float(node.src.back());
    if (node.op == Op::mul_mat) {
      observer_->on_slot(*weight.weight, rows, {});
      return;
    }
    if (const auto* heads = std::get_if<MulMatHeadsParams>(&node.params)) {
      const bool each_shares = graph_.at(node.src.back()).shape[1] == 1;
      return show_heads_tap(*observer_, *weight.weight, rows, heads->n_head, each_shares);
    }
    const std::int64_t k = graph_.at(node.src.back()).shape[0], used = graph_.at(node.src[2]).shape[0];
    const bool shared = graph_.at(node.src.back()).shape[1] == 1;
    const auto& p = std::get<MulMatIdParams>(node.params);
    const int end = p.expert_end == 0 ? INT32_MAX : p.expert_end;
    const double* ids = memory_.read(node.src[2]);
    std::vector<float> seen;
    std::vector<std::int32_t> experts;
    for (std::int64_t pair = 0; pair < memory_.live(node.src[2]); ++pair) {
      if (ids[pair] < p.expert_begin || ids[pair] >= end) continue;
      const auto row = rows.begin() + (shared ? pair / used : pair) * k;
      seen.insert(seen.end(), row, row + k);
      experts.push_back(static_cast<std::int32_t>(ids[pair]));
    }
    observer_->on_slot(*weight.weight, seen, experts);
  }

  Graph graph_;
  reference::Memory memory_;
  Observer* observer_;
  MemoryPlan plan_;
};

class Done final : public Event {
 public:
  void wait() override {}
  [[nodiscard]] bool ready() override { return true; }
};

}  // namespace

std::size_t ReferenceExecutor::arena_bytes(const Graph&, const CompileOptions&) {
  return 0;
}

std::unique_ptr<Program> ReferenceExecutor::compile(const Graph& graph, std::span<const PortBinding> ports, Buffer&,
                                                    const CompileOptions& options) {
  return compile(graph, ports, options);
}

std::unique_ptr<Program> ReferenceExecutor::compile(const Graph& graph, std::span<const PortBinding> ports,
                                                    const CompileOptions& options) {
  return std::make_unique<ReferenceProgram>(graph, ports, options.observer);
}

std::unique_ptr<Event> ReferenceExecutor::submit(Program& program, const StepCounts& counts, const StopToken& stop) {
  run(program, counts, stop);
  return std::make_unique<Done>();
}

void ReferenceExecutor::run(Program& program, const StepCounts& counts, const StopToken& stop) {
  static_cast<ReferenceProgram&>(program).run(counts, stop);
}

}  // namespace ggml
