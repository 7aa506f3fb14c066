#include "cuda/program.h"

#include <algorithm>
#include <cstring>

#include "core/heads_tap.h"
#include "core/port_address.h"
#include "cuda/fusion.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace ggml::cuda {
namespace {

/// The implementation that takes the node, or null and the reason.
const OpImpl* choose(const Graph& graph, const Node& node, const char** why) {
  const char* reason = declines(graph, node);
  if (why != nullptr) *why = reason;
  return reason == nullptr ? implementation(node.op) : nullptr;
}

bool has_native_form(const Graph& graph, const Node& node, const void* user) {
  const auto& options = *static_cast<const CompileOptions*>(user);
  if (options.decompose_all && !is_primitive(node.op)) return false;
  // The inputs of projections are seen where the decomposition has them as tensors.
  const bool tapped = std::any_of(node.slots.begin(), node.slots.end(), [](const Slot& slot) { return slot.tapped; });
  if (tapped && !is_primitive(node.op)) return false;
  return choose(graph, node, nullptr) != nullptr;
}

std::byte* weight_address(const Tensor& tensor, DeviceId id) {
  for (const Placement& p : tensor.weight->placements) {
    if (p.device == id && p.kind == BufferKind::device && p.axis == PlacementAxis::whole) {
      return const_cast<std::byte*>(p.data);  // never written; the table of addresses is shared with activations
    }
  }
  throw Error(ErrorCode::internal, strf("%s: the weight has no placement on the card", tensor.name.c_str()));
}

/// Rows of a tensor that are real in a step; `all` where no count limits them.
std::int64_t live_of(const Tensor& t, const StepCounts& counts, std::int64_t all) {
  return t.rows == Rows::tokens ? counts.n_tokens : t.rows == Rows::outputs ? counts.n_outputs : all;
}

}  // namespace

const char* declines(const Graph& graph, const Node& node) {
  const OpImpl* impl = implementation(node.op);
  return impl == nullptr ? "no implementation" : impl->declines(graph, node);
}

LoweredGraph lower(const Graph& graph, const CompileOptions& options) {
  LoweredGraph lowered{decompose(graph, has_native_form, &options), {}, {}, {}};
  for (const Node& node : lowered.graph.nodes) {
    const char* why = nullptr;
    const OpImpl* impl = choose(lowered.graph, node, &why);
    if (impl == nullptr) {
      throw Error(ErrorCode::unsupported,
                  strf("%s: the CUDA device cannot run op %s (%s)", node.name.c_str(), op_name(node.op), why));
    }
    lowered.binders.emplace_back(impl->bind);
    lowered.notes.push_back(strf("%s %s: %s %s", op_name(node.op), node.name.c_str(),
                                 is_primitive(node.op) ? "primitive" : "native", impl->name));
  }
  if (options.decompose_all) return lowered;
  join_heads(lowered);
  fuse_single_rows(lowered);
  share_rounding(lowered);
  return lowered;
}

MemoryPlan plan(const LoweredGraph& lowered, int multiprocessors, std::vector<std::size_t>& scratch_offsets) {
  BindContext::Inputs inputs;
  inputs.multiprocessors = multiprocessors;
  inputs.rounded = lowered.rounded;
  const BindContext context(lowered.graph, inputs);
  std::vector<std::size_t> scratch;
  for (std::size_t i = 0; i < lowered.graph.nodes.size(); ++i) {
    Carver carver(nullptr);
    const std::unique_ptr<BoundOp> op = lowered.binders[i](context, lowered.graph.nodes[i], carver);
    scratch.push_back(carver.used());
  }
  return plan_memory(lowered.graph, scratch, scratch_offsets);
}

CudaProgram::CudaProgram(LoweredGraph lowered, const CudaProgramInputs& inputs)
    : lowered_(std::move(lowered)),
      observer_(inputs.observer),
      host_counts_(inputs.device, sizeof(DeviceCounts), BufferKind::host_pinned),
      device_counts_(inputs.device, sizeof(DeviceCounts), BufferKind::device),
      counters_(inputs.device) {
  std::vector<std::size_t> scratch_offsets;
  plan_ = plan(lowered_, inputs.multiprocessors, scratch_offsets);
  if (plan_.arena_bytes > inputs.arena.bytes()) {
    throw Error(ErrorCode::internal, strf("CUDA%d: the arena has %zu bytes, the program needs %zu", inputs.device,
                                          inputs.arena.bytes(), plan_.arena_bytes));
  }
  bind_addresses(inputs);
  bind_ops(inputs, scratch_offsets);
  cut_stretches();
}

CudaProgram::~CudaProgram() = default;

std::size_t CudaProgram::launches() const noexcept {
  std::size_t n = 0;
  for (const Stretch& stretch : stretches_) n += stretch.launches;
  return n;
}

/// Nothing is left that the host does between graphs, and all graphs are there: making one could wait for the card.
bool CudaProgram::runs_ahead() const noexcept {
  return std::all_of(stretches_.begin(), stretches_.end(), [](const Stretch& s) {
    return s.graph && s.host == nullptr && s.tapped == nullptr && s.observed.empty();
  });
}

void CudaProgram::bind_addresses(const CudaProgramInputs& inputs) {
  const Graph& graph = lowered_.graph;
  addresses_.assign(graph.tensors.size(), nullptr);
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& t = graph.tensors[i];
    if (t.role == TensorRole::view) continue;
    if (t.role == TensorRole::weight) {
      addresses_[i] = weight_address(t, inputs.id);
    } else if (t.port.valid()) {
      addresses_[i] = port_address(t, inputs.ports);
    } else if (plan_.offsets[i] != kNotInArena) {
      addresses_[i] = inputs.arena.data() + plan_.offsets[i];
    }
  }
  ports_ = PortsOnCard(graph, inputs.device, addresses_);
  ports_.add(host_counts_.data(), device_counts_.data(), sizeof(DeviceCounts));
  resolve_views(graph, addresses_);
}

void CudaProgram::bind_ops(const CudaProgramInputs& inputs, std::span<const std::size_t> scratch_offsets) {
  BindContext::Inputs in;
  in.device = inputs.device;
  in.multiprocessors = inputs.multiprocessors;
  in.counts = reinterpret_cast<const DeviceCounts*>(device_counts_.data());
  in.addresses = addresses_;
  in.constants = &constants_;
  in.counters = &counters_;
  in.rounded = lowered_.rounded;
  const BindContext context(lowered_.graph, in);
  for (std::size_t i = 0; i < lowered_.graph.nodes.size(); ++i) {
    const std::size_t offset = i < scratch_offsets.size() ? scratch_offsets[i] : kNotInArena;
    Carver carver(inputs.arena.data() + (offset == kNotInArena ? 0 : offset));
    ops_.push_back(lowered_.binders[i](context, lowered_.graph.nodes[i], carver));
  }
}

void CudaProgram::cut_stretches() {
  Stretch now;
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const bool host = ops_[i]->runs_on_host();
    now.end = host ? i : i + 1;
    if (host) now.host = ops_[i].get();
    if (observer_ != nullptr) {
      const Node& node = lowered_.graph.nodes[i];
      for (const TensorId id : node.dst) {
        if (lowered_.graph.at(id).observed) now.observed.push_back(id);
      }
      if (!node.slots.empty() && node.slots[0].tapped) now.tapped = &node;
    }
    if (!host && now.observed.empty() && now.tapped == nullptr) continue;
    stretches_.push_back(std::move(now));
    now = {};
    now.begin = now.end = i + 1;
  }
  if (now.end > now.begin) stretches_.push_back(std::move(now));
}

void CudaProgram::capture(Stretch& stretch, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    if (&stretch == &stretches_.front()) ports_.launch_fetch(stream);
    for (std::size_t i = stretch.begin; i < stretch.end; ++i) ops_[i]->launch(stream);
    ports_.launch_results(stretch.begin, stretch.end, reinterpret_cast<const DeviceCounts*>(device_counts_.data()),
                          stream);
  } catch (...) {
    (void)cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    throw;
  }
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  stretch.graph = GraphExec(graph);
  CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &stretch.launches));
  logf(LogLevel::debug, "cuda graph nodes=%zu launches=%zu", stretch.end - stretch.begin, stretch.launches);
  CUDA_CHECK(cudaGraphDestroy(graph));
}

std::vector<std::byte> CudaProgram::fetch(TensorId id, cudaStream_t stream) const {
  const Tensor& t = lowered_.graph.at(id);
  std::vector<std::byte> host(tensor_bytes(t.type, t.shape));
  CUDA_CHECK(
      cudaMemcpyAsync(host.data(), addresses_[static_cast<std::size_t>(id.v)], host.size(), cudaMemcpyDefault, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  return host;
}

void CudaProgram::show(const Stretch& stretch, const StepCounts& counts, cudaStream_t stream) const {
  for (const TensorId id : stretch.observed) {
    const Tensor& t = lowered_.graph.at(id);
    const std::vector<std::byte> host = fetch(id, stream);
    observer_->on_tensor(t, host.data(), live_of(t, counts, t.shape[t.shape.dims() - 1]));
  }
}

/// mul_mat, mul_mat_heads: src W, x, tap. mul_mat_id: src W, x, ids, tap; a row per pair whose expert is inside.
void CudaProgram::show_tap(const Node& node, const StepCounts& counts, cudaStream_t stream) const {
  const TensorId tap = node.src.back();
  const Tensor& t = lowered_.graph.at(tap);
  const std::vector<std::byte> bytes = fetch(tap, stream);
  const auto* rows = reinterpret_cast<const float*>(bytes.data());
  const auto k = static_cast<std::size_t>(t.shape[0]);
  const Weight& weight = *lowered_.graph.at(node.slots[0].weight).weight;
  if (node.op == Op::mul_mat) {
    const std::int64_t n = live_of(t, counts, t.shape.rows());
    return observer_->on_slot(weight, {rows, k * static_cast<std::size_t>(n)}, {});
  }
  if (const auto* heads = std::get_if<MulMatHeadsParams>(&node.params)) {
    const bool each_shares = t.shape[1] == 1;
    const auto n = static_cast<std::size_t>(live_of(t, counts, t.shape[2]) * t.shape[1]);
    return show_heads_tap(*observer_, weight, {rows, k * n}, heads->n_head, each_shares);
  }
  const auto& p = std::get<MulMatIdParams>(node.params);
  const Tensor& ids_tensor = lowered_.graph.at(node.src[2]);
  const std::vector<std::byte> ids_bytes = fetch(node.src[2], stream);
  const auto* ids = reinterpret_cast<const std::int32_t*>(ids_bytes.data());
  const auto n_used = static_cast<std::size_t>(ids_tensor.shape[0]);
  const auto n_pairs = static_cast<std::size_t>(live_of(ids_tensor, counts, ids_tensor.shape[1])) * n_used;
  const bool shared = t.shape[1] == 1;
  const int end = p.expert_end == 0 ? static_cast<int>(weight.shape[2]) : p.expert_end;
  std::vector<float> used;
  std::vector<std::int32_t> experts;
  for (std::size_t pair = 0; pair < n_pairs; ++pair) {
    if (ids[pair] < p.expert_begin || ids[pair] >= end) continue;
    const float* row = rows + (shared ? pair / n_used : pair) * k;
    used.insert(used.end(), row, row + k);
    experts.push_back(ids[pair]);
  }
  observer_->on_slot(weight, used, experts);
}

void CudaProgram::run(cudaStream_t stream, const StepCounts& counts, const StopToken& stop) {
  const Graph& graph = lowered_.graph;
  if (counts.n_tokens < 0 || counts.n_tokens > graph.token_bucket || counts.n_outputs < 0 ||
      counts.n_outputs > graph.output_bucket) {
    throw Error(ErrorCode::internal,
                strf("CUDA: a step of %d tokens and %d outputs was given to a program for %d and %d", counts.n_tokens,
                     counts.n_outputs, graph.token_bucket, graph.output_bucket));
  }
  const DeviceCounts now{counts.n_tokens, counts.n_outputs, counts.n_spans};
  std::memcpy(host_counts_.data(), &now, sizeof now);
  ports_.begin_run();
  for (Stretch& stretch : stretches_) {
    if (stop.stop != nullptr && stop.stop(stop.user)) throw Error(ErrorCode::cancelled, "the step was cancelled");
    if (stretch.end > stretch.begin || &stretch == &stretches_.front()) {
      if (!stretch.graph) capture(stretch, stream);
      CUDA_CHECK(cudaGraphLaunch(stretch.graph.get(), stream));
    }
    if (stretch.host != nullptr) {
      CUDA_CHECK(cudaStreamSynchronize(stream));
      stretch.host->run_on_host(counts);
    }
    if (stretch.tapped != nullptr) show_tap(*stretch.tapped, counts, stream);
    if (!stretch.observed.empty()) show(stretch, counts, stream);
  }
}

}  // namespace ggml::cuda
