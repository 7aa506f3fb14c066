#include "cpu/program.h"

#include <atomic>
#include <limits>

#include "core/join_products.h"
#include "core/port_address.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace ggml::cpu {
namespace {

constexpr std::size_t kNotInArena = std::numeric_limits<std::size_t>::max();

struct LowerContext {
  const KernelTable& kernels;
  bool decompose_all;
};

/// The first implementation that takes the node; `why` collects the reasons of those before it.
const OpImpl* choose(const Graph& graph, const KernelTable& kernels, const Node& node, std::string* why) {
  for (const OpImpl* impl : implementations(node.op)) {
    const char* reason = impl->declines(graph, kernels, node);
    if (reason == nullptr) return impl;
    if (why != nullptr) *why += strf("%s%s: %s", why->empty() ? "" : "; ", impl->name, reason);
  }
  return nullptr;
}

std::byte* weight_address(const Tensor& tensor, DeviceId memory_of) {
  for (const Placement& p : tensor.weight->placements) {
    const bool on_device = p.kind == BufferKind::device;
    if (p.data == nullptr || on_device != memory_of.valid() || (on_device && p.device != memory_of)) continue;
    if (p.axis != PlacementAxis::whole) {
      throw Error(ErrorCode::unsupported,
                  strf("%s: the CPU device reads whole tensors only, this placement holds %lld to %lld of an axis",
                       tensor.name.c_str(), static_cast<long long>(p.begin), static_cast<long long>(p.end)));
    }
    // Weights are never written; the table of addresses is not const because activations share it.
    return const_cast<std::byte*>(p.data);
  }
  throw Error(ErrorCode::internal, strf("%s: the weight has no placement in %s", tensor.name.c_str(),
                                        memory_of.valid() ? "the device's memory" : "host memory"));
}

bool has_native_form(const Graph& graph, const Node& node, const void* user) {
  const auto& context = *static_cast<const LowerContext*>(user);
  if (context.decompose_all && !is_primitive(node.op)) return false;
  return choose(graph, context.kernels, node, nullptr) != nullptr;
}

}  // namespace

LiveRows BindContext::live_rows(TensorId id, std::int64_t width) const {
  const Tensor& t = graph_.at(id);
  Rows rows = t.rows;
  if (rows == Rows::fixed && t.role == TensorRole::view) rows = graph_.at(t.base).rows;
  const std::int64_t total = t.shape.elements() / width;
  switch (rows) {
    case Rows::tokens:
      return {rows, total / graph_.token_bucket, total};
    case Rows::outputs:
      return {rows, total / graph_.output_bucket, total};
    case Rows::fixed:
      break;
  }
  return {Rows::fixed, total, total};
}

bool has_implementation(const Graph& graph, const KernelTable& kernels, const Node& node) {
  return choose(graph, kernels, node, nullptr) != nullptr;
}

LoweredGraph lower(const Graph& graph, const KernelTable& kernels, const CompileOptions& options) {
  // Reasons are collected on the graph as it came; what remains afterwards are native nodes only.
  for (const Node& node : graph.nodes) {
    if (!log_enabled(LogLevel::debug)) break;
    std::string why;
    const OpImpl* impl = options.decompose_all ? nullptr : choose(graph, kernels, node, &why);
    if (options.decompose_all) why = "only primitives were asked for";
    if (why.empty()) why = "first choice";
    logf(LogLevel::debug, "cpu: node=%s op=%s form=%s reason=\"%s\"", node.name.c_str(), op_name(node.op),
         impl == nullptr ? "decomposed" : impl->name, why.c_str());
  }
  const LowerContext context{kernels, options.decompose_all};
  LoweredGraph lowered{decompose(graph, has_native_form, &context), {}, {}};
  // What was taken apart, for adapters above all, multiplies with the kernels of the coarse ops all the same.
  if (!options.decompose_all)
    join_products(lowered.graph, graph,
                  [&](const Graph& g, const Node& node) { return choose(g, kernels, node, nullptr) != nullptr; });
  lowered.impls.reserve(lowered.graph.nodes.size());
  lowered.notes.reserve(lowered.graph.nodes.size());
  for (const Node& node : lowered.graph.nodes) {
    std::string why;
    const OpImpl* impl = choose(lowered.graph, kernels, node, &why);
    if (options.decompose_all && impl != nullptr) impl = implementations(node.op).back();
    if (impl == nullptr) {
      throw Error(ErrorCode::unsupported, strf("%s: the CPU device cannot run op %s (%s)", node.name.c_str(),
                                               op_name(node.op), why.empty() ? "no implementation" : why.c_str()));
    }
    lowered.impls.push_back(impl);
    const char* form = is_primitive(node.op) ? "primitive" : "native";
    lowered.notes.push_back(strf("%s %s: %s %s%s%s%s", op_name(node.op), node.name.c_str(), form, impl->name,
                                 why.empty() ? "" : " (", why.c_str(), why.empty() ? "" : ")"));
  }
  return lowered;
}

std::vector<std::size_t> measure_scratch(const LoweredGraph& lowered, const KernelTable& kernels, int n_workers) {
  const BindContext context(lowered.graph, kernels, n_workers, {});
  std::vector<std::size_t> bytes;
  bytes.reserve(lowered.graph.nodes.size());
  for (std::size_t i = 0; i < lowered.graph.nodes.size(); ++i) {
    Carver carver(nullptr);
    const std::unique_ptr<BoundOp> op = lowered.impls[i]->bind(context, lowered.graph.nodes[i], carver);
    bytes.push_back(carver.used());
  }
  return bytes;
}

CpuProgram::CpuProgram(LoweredGraph lowered, const CpuProgramInputs& inputs)
    : lowered_(std::move(lowered)), observer_(inputs.observer) {
  const std::vector<std::size_t> scratch = measure_scratch(lowered_, inputs.kernels, inputs.n_workers);
  std::vector<std::size_t> scratch_offsets;
  plan_ = plan_memory(lowered_.graph, scratch, scratch_offsets);
  if (plan_.arena_bytes > inputs.arena.bytes()) {
    throw Error(ErrorCode::internal,
                strf("CPU: the arena has %zu bytes, the program needs %zu", inputs.arena.bytes(), plan_.arena_bytes));
  }
  bind_addresses(inputs);
  bind_steps(inputs, scratch_offsets);
}

void CpuProgram::bind_addresses(const CpuProgramInputs& inputs) {
  const Graph& graph = lowered_.graph;
  addresses_.assign(graph.tensors.size(), nullptr);
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& t = graph.tensors[i];
    if (t.role == TensorRole::view) continue;
    if (t.role == TensorRole::weight) {
      addresses_[i] = weight_address(t, inputs.memory_of);
    } else if (t.port.valid()) {
      addresses_[i] = port_address(t, inputs.ports);
    } else if (plan_.offsets[i] != kNotInArena) {
      addresses_[i] = inputs.arena.data() + plan_.offsets[i];
    }
  }
  resolve_views(graph, addresses_);
}

void CpuProgram::bind_steps(const CpuProgramInputs& inputs, std::span<const std::size_t> scratch_offsets) {
  const Graph& graph = lowered_.graph;
  const BindContext context(graph, inputs.kernels, inputs.n_workers, addresses_);
  steps_.reserve(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const std::size_t offset = i < scratch_offsets.size() ? scratch_offsets[i] : kNotInArena;
    Carver carver(offset == kNotInArena ? inputs.arena.data() : inputs.arena.data() + offset);
    Step step;
    step.op = lowered_.impls[i]->bind(context, node, carver);
    if (inputs.observer != nullptr) {
      for (const TensorId id : node.dst) {
        const Tensor& t = graph.at(id);
        if (!t.observed) continue;
        // The last axis is the one the count limits: the rows along it are the elements per count.
        const LiveRows elements = context.live_rows(id, 1);
        const bool fixed = elements.rows == Rows::fixed;
        const std::int64_t last = t.shape[t.shape.dims() - 1];
        step.observed.push_back({id, context.address(id), {elements.rows, fixed ? last : 1, last}});
      }
      for (const Slot& slot : node.slots) step.tapped = step.tapped || slot.tapped;
    }
    steps_.push_back(std::move(step));
  }
}

/// What the workers of one run share. `stop_at` is the first step after which nobody goes on: it is compared with the
/// step just done, so that a worker that reads it late sees the same decision.
struct CpuProgram::RunState {
  const StepCounts& counts;
  const StopToken& stop;
  std::atomic<std::size_t> stop_at{std::numeric_limits<std::size_t>::max()};
  bool cancelled = false;
  std::exception_ptr failure;
};

void CpuProgram::show(const Step& step, const StepCounts& counts) const {
  if (step.tapped) step.op->report_taps(*observer_, counts);
  for (const Observed& o : step.observed) {
    observer_->on_tensor(lowered_.graph.at(o.id), o.data, o.rows.of(counts));
  }
}

void CpuProgram::run_steps(Team& team, RunState& state) noexcept {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    step.op->run(team, state.counts);
    if (step.tapped || !step.observed.empty()) {
      team.barrier();
      if (team.worker() == 0) {
        try {
          show(step, state.counts);
        } catch (...) {
          state.failure = std::current_exception();
          state.stop_at.store(i, std::memory_order_relaxed);
        }
      }
    }
    if (i + 1 == steps_.size()) return;  // the region ends with a barrier of its own
    if (team.worker() == 0 && state.stop.stop != nullptr && state.stop.stop(state.stop.user)) {
      state.cancelled = true;
      state.stop_at.store(i, std::memory_order_relaxed);
    }
    team.barrier();
    if (state.stop_at.load(std::memory_order_relaxed) <= i) return;
  }
}

void CpuProgram::check_counts(const StepCounts& counts) const {
  const Graph& graph = lowered_.graph;
  if (counts.n_tokens < 0 || counts.n_tokens > graph.token_bucket || counts.n_outputs < 0 ||
      counts.n_outputs > graph.output_bucket) {
    throw Error(ErrorCode::internal,
                strf("CPU: a step of %d tokens and %d outputs was given to a program for %d and %d", counts.n_tokens,
                     counts.n_outputs, graph.token_bucket, graph.output_bucket));
  }
}

void CpuProgram::run(ThreadPool& pool, int team_size, const StepCounts& counts, const StopToken& stop) {
  check_counts(counts);
  RunState state{.counts = counts,
                 .stop = stop,
                 .stop_at = std::numeric_limits<std::size_t>::max(),
                 .cancelled = false,
                 .failure = nullptr};
  auto body = [&](Team& team) noexcept { run_steps(team, state); };
  pool.parallel(team_size, body);
  if (state.failure) std::rethrow_exception(state.failure);
  if (state.cancelled) throw Error(ErrorCode::cancelled, "the step was cancelled");
}

}  // namespace ggml::cpu
