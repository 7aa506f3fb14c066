#include "ggml/scheduler.h"

#include <algorithm>
#include <utility>

#include "core/graph_label.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "sched/assignment.h"
#include "sched/cut_schedule.h"
#include "sched/handed_run.h"
#include "sched/lanes.h"
#include "sched/scheduled_program.h"
#include "sched/staging.h"
#include "sched/streams.h"

namespace ggml {

using sched::BoundCopy;
using sched::CutSchedule;
using sched::Exchange;
using sched::ScheduledProgram;
using sched::Split;
using sched::Transfer;

namespace {

constexpr std::size_t kSmallestBuffer = 64;

std::vector<std::unique_ptr<Executor>> make_executors(const std::vector<Device*>& devices) {
  if (devices.empty() || devices.size() > static_cast<std::size_t>(sched::kMaxDevices))
    throw Error(ErrorCode::invalid_argument,
                strf("%zu devices: 1 to %d are possible", devices.size(), sched::kMaxDevices));
  if (devices.size() > 1 && !devices[0]->memory_is_host())
    throw Error(ErrorCode::invalid_argument,
                strf("%s is the first of several devices: that is the CPU's place", devices[0]->name().c_str()));
  std::vector<std::unique_ptr<Executor>> executors;
  executors.reserve(devices.size());
  for (Device* device : devices) executors.push_back(device->make_executor());
  return executors;
}

/// One split with everything in it: what a single device gets.
sched::Splits whole(const Graph& graph, int device) {
  sched::Splits splits;
  splits.all.emplace_back();
  splits.all.front().device = device;
  splits.all.front().graph = graph;
  return splits;
}

/// Bytes of a tensor, of all or for each row that counts.
BoundCopy sized(const Tensor& t, const Graph& graph) {
  BoundCopy copy;
  copy.rows = t.rows;
  copy.bytes = tensor_bytes(t.type, t.shape);
  if (t.rows == Rows::tokens) copy.bytes /= static_cast<std::size_t>(graph.token_bucket);
  if (t.rows == Rows::outputs) copy.bytes /= static_cast<std::size_t>(graph.output_bucket);
  return copy;
}

}  // namespace

std::uint64_t SchedulerStats::bytes() const {
  std::uint64_t sum = 0;
  for (const LinkUse& link : links) sum += link.bytes_in + link.bytes_out;
  return sum;
}

std::uint64_t SchedulerStats::copies() const {
  std::uint64_t sum = 0;
  for (const LinkUse& link : links) sum += link.copies_in + link.copies_out;
  return sum;
}

SchedulerStats& SchedulerStats::operator+=(const SchedulerStats& other) {
  splits += other.splits;
  nodes += other.nodes;
  programs += other.programs;
  if (links.size() < other.links.size()) links.resize(other.links.size());
  for (std::size_t d = 0; d < other.links.size(); ++d) {
    links[d].copies_in += other.links[d].copies_in;
    links[d].bytes_in += other.links[d].bytes_in;
    links[d].copies_out += other.links[d].copies_out;
    links[d].bytes_out += other.links[d].bytes_out;
    links[d].weight_copies += other.links[d].weight_copies;
    links[d].weight_bytes += other.links[d].weight_bytes;
  }
  return *this;
}

struct Scheduler::Impl {
  Impl(std::vector<Device*> list, Trace* trace)
      : devices(std::move(list)),
        lanes(make_executors(devices)),
        arenas(devices.size()),
        areas(devices.size()),
        handed(devices.size()) {
    stats.links.resize(devices.size());
    if (trace != nullptr) lanes.trace_to(*trace, devices);
  }

  [[nodiscard]] sched::Machine machine() {
    executors.clear();
    for (std::size_t d = 0; d < devices.size(); ++d) executors.push_back(&lanes.executor(static_cast<int>(d)));
    return {devices, executors};
  }
  bool grow(std::unique_ptr<Buffer>& buffer, std::size_t bytes, Device& device, BufferKind kind);
  [[nodiscard]] std::byte* address(const CutSchedule& schedule, std::span<const PlacedPort> ports, int exchange,
                                   int device);
  [[nodiscard]] std::vector<BoundCopy> bind(const CutSchedule& schedule, std::span<const PlacedPort> ports,
                                            const std::vector<Transfer>& transfers, bool to_device);
  [[nodiscard]] std::vector<PortBinding> bindings(const CutSchedule& schedule, std::span<const PlacedPort> ports,
                                                  int device);
  void bind_streams(CutSchedule& schedule, std::span<const PlacedPort> ports, ScheduledProgram& program);
  void run_part(ScheduledProgram& program, ScheduledProgram::Part& part, const StepCounts& counts);
  [[nodiscard]] sched::HandedRun* handed_run(const ScheduledProgram& program);
  [[nodiscard]] sched::Staging& staging_on(int device);
  void settle() noexcept;
  void count(const ScheduledProgram::Part& part) {
    ++stats.splits;
    stats.nodes += part.n_nodes;
  }

  std::vector<Device*> devices;
  sched::Lanes lanes;
  std::vector<Executor*> executors;             // as machine() shows them
  std::vector<std::unique_ptr<Buffer>> arenas;  // per device: activations inside splits
  std::vector<std::unique_ptr<Buffer>> areas;   // per device: exchanges
  std::unique_ptr<sched::Staging> staging;      // of the one device that weights are sent to
  int staging_device = 0;
  std::vector<std::unique_ptr<sched::HandedRun>> handed;  // per device: made when it is first needed
  bool observed = false;
  SchedulerStats stats;
};

Scheduler::Scheduler(std::vector<Device*> devices, Trace* trace)
    : impl_(std::make_unique<Impl>(std::move(devices), trace)) {}

Scheduler::~Scheduler() {
  impl_->settle();
}

void Scheduler::Impl::settle() noexcept {
  lanes.settle();
  if (staging != nullptr) staging->settle();
}

sched::Staging& Scheduler::Impl::staging_on(int device) {
  TANDEM_ASSERT(staging == nullptr || staging_device == device, "weights are sent to one device");
  if (staging == nullptr)
    staging = std::make_unique<sched::Staging>(*devices[static_cast<std::size_t>(device)], lanes.executor(device));
  staging_device = device;
  return *staging;
}

std::unique_ptr<Schedule> Scheduler::cut(const Graph& graph, std::span<const PlacedPort> ports,
                                         const CompileOptions& options, const Streaming& streaming) {
  auto schedule = std::make_unique<CutSchedule>();
  const std::size_t n_devices = impl_->devices.size();
  if (n_devices == 1) {
    schedule->splits = whole(graph, 0);
    schedule->exchange.at.resize(1);
  } else {
    Graph streamed = graph;
    if (streaming.device > 0)
      schedule->streams =
          sched::take_streams(streamed, streaming, *impl_->devices[static_cast<std::size_t>(streaming.device)]);
    schedule->streaming = streaming;
    const sched::Assigned assigned = sched::assign(streamed, ports, impl_->machine());
    schedule->splits = sched::cut(assigned, ports, schedule->streams, !streaming.whole);
    schedule->mixed = assigned.n_mixed;
    const bool untouched = schedule->splits.all.size() == 1 && schedule->splits.exchanges.empty() &&
                           assigned.graph.nodes.size() == graph.nodes.size();
    if (untouched && schedule->streams.empty()) schedule->splits = whole(graph, assigned.device.front());
    schedule->exchange = sched::plan_exchange(schedule->splits, assigned.graph, n_devices);
    for (const Exchange& e : schedule->splits.exchanges) schedule->exchanged.push_back(assigned.graph.at(e.tensor));
  }
  schedule->arena_bytes.assign(n_devices, 0);
  for (const Split& split : schedule->splits.all) {
    std::size_t& bytes = schedule->arena_bytes[static_cast<std::size_t>(split.device)];
    bytes = std::max({bytes, kSmallestBuffer, impl_->lanes.executor(split.device).arena_bytes(split.graph, options)});
  }
  for (const Device* device : impl_->devices) schedule->device_names.push_back(device->name());
  return schedule;
}

bool Scheduler::Impl::grow(std::unique_ptr<Buffer>& buffer, std::size_t bytes, Device& device, BufferKind kind) {
  if (bytes == 0 || (buffer != nullptr && buffer->bytes() >= bytes)) return false;
  const bool moved = buffer != nullptr;
  if (moved) lanes.synchronise();
  buffer.reset();
  buffer = device.allocate(bytes, kind);
  return moved;
}

bool Scheduler::reserve(const Schedule& schedule) {
  const auto& cut = static_cast<const CutSchedule&>(schedule);
  bool moved = false;
  for (std::size_t d = 0; d < impl_->devices.size(); ++d) {
    moved |= impl_->grow(impl_->arenas[d], cut.arena_bytes[d], *impl_->devices[d], BufferKind::device);
    if (d >= cut.exchange.area_bytes.size()) continue;
    // Host memory that cards copy from and to is theirs to give.
    Device& owner = d == 0 ? *impl_->devices[1] : *impl_->devices[d];
    moved |= impl_->grow(impl_->areas[d], cut.exchange.area_bytes[d], owner,
                         d == 0 ? BufferKind::host_pinned : BufferKind::device);
  }
  if (cut.streams.empty()) return moved;
  sched::Staging& staging = impl_->staging_on(cut.streaming.device);
  if (cut.streams.bytes <= staging.half_bytes()) return moved;
  if (staging.half_bytes() > 0) impl_->lanes.synchronise();
  const bool had_none = staging.half_bytes() == 0;
  return (staging.reserve(cut.streams.bytes) && !had_none) || moved;
}

/// Where an exchange lies on a device.
std::byte* Scheduler::Impl::address(const CutSchedule& schedule, std::span<const PlacedPort> ports, int exchange,
                                    int device) {
  const std::size_t offset =
      schedule.exchange.offsets[static_cast<std::size_t>(exchange)][static_cast<std::size_t>(device)];
  if (offset == sched::kNowhere) return nullptr;
  if (offset != sched::kCallersPort) return areas[static_cast<std::size_t>(device)]->data() + offset;
  const PortId port = schedule.splits.exchanges[static_cast<std::size_t>(exchange)].port;
  for (const PlacedPort& p : ports)
    if (p.binding.port == port) return static_cast<std::byte*>(p.binding.data);
  return nullptr;
}

std::vector<BoundCopy> Scheduler::Impl::bind(const CutSchedule& schedule, std::span<const PlacedPort> ports,
                                             const std::vector<Transfer>& transfers, bool to_device) {
  std::vector<BoundCopy> copies;
  for (const Transfer& t : transfers) {
    BoundCopy copy = sized(schedule.exchanged[static_cast<std::size_t>(t.exchange)], schedule.splits.all.front().graph);
    std::byte* host = address(schedule, ports, t.exchange, 0);
    std::byte* there = address(schedule, ports, t.exchange, t.device);
    TANDEM_ASSERT(host != nullptr && there != nullptr, "a tensor that crosses has a place at both ends");
    copy.device = t.device;
    copy.to_device = to_device;
    copy.dst = to_device ? there : host;
    copy.src = to_device ? host : there;
    copies.push_back(copy);
  }
  return copies;
}

/// The ports that graphs on a device may have: the caller's that it reaches, and the exchanges that it has a place for.
std::vector<PortBinding> Scheduler::Impl::bindings(const CutSchedule& schedule, std::span<const PlacedPort> ports,
                                                   int device) {
  std::vector<PortBinding> list;
  for (const PlacedPort& p : ports)
    if (devices.size() == 1 || !p.home.valid() || p.home.v == device) list.push_back(p.binding);
  for (std::size_t e = 0; e < schedule.splits.exchanges.size(); ++e) {
    std::byte* data = address(schedule, ports, static_cast<int>(e), device);
    if (data == nullptr) continue;
    const Tensor& t = schedule.exchanged[e];
    list.push_back(
        {PortId(sched::kFirstExchangePort + static_cast<std::int32_t>(e)), data, tensor_bytes(t.type, t.shape)});
  }
  return list;
}

/// Gives the weights that are sent their addresses: the programs that are compiled next have them.
void Scheduler::Impl::bind_streams(CutSchedule& schedule, std::span<const PlacedPort> ports,
                                   ScheduledProgram& program) {
  if (schedule.streams.empty()) return;
  const Streaming& streaming = schedule.streaming;
  sched::Staging& memory = staging_on(streaming.device);
  program.streams.half = streaming.half;
  program.streams.bytes = schedule.streams.bytes;
  program.streams.ahead = streaming.ahead;
  for (const std::unique_ptr<sched::Stream>& stream : schedule.streams.all) {
    Placement& staged = stream->there.placements.front();
    staged.device = devices[static_cast<std::size_t>(streaming.device)]->id();
    staged.data = memory.at(streaming.half, stream->offset);
    sched::BoundStream bound{stream->source, sched::host_bytes(*stream->source), stream->offset, stream->n_experts};
    TANDEM_ASSERT(bound.src != nullptr, "a weight that is sent has bytes in host memory");
    for (std::size_t e = 0; e < schedule.exchanged.size(); ++e) {
      if (streaming.whole || stream->n_experts == 0 || schedule.splits.exchanges[e].tensor != stream->ids) continue;
      bound.ids = reinterpret_cast<const std::int32_t*>(address(schedule, ports, static_cast<int>(e), 0));
      bound.n_used = schedule.exchanged[e].shape[0];
      bound.rows = schedule.exchanged[e].rows;
    }
    program.streams.all.push_back(bound);
  }
  program.streamed = std::move(schedule.streams);
}

std::unique_ptr<Program> Scheduler::compile(Schedule& schedule, std::span<const PlacedPort> ports,
                                            const CompileOptions& options) {
  auto& cut = static_cast<CutSchedule&>(schedule);
  std::vector<std::vector<PortBinding>> bound;
  for (std::size_t d = 0; d < impl_->devices.size(); ++d)
    bound.push_back(impl_->bindings(cut, ports, static_cast<int>(d)));
  auto program = std::make_unique<ScheduledProgram>();
  program->token_bucket = cut.splits.all.front().graph.token_bucket;
  program->output_bucket = cut.splits.all.front().graph.output_bucket;
  impl_->bind_streams(cut, ports, *program);
  for (std::size_t s = 0; s < cut.splits.all.size(); ++s) {
    const Split& split = cut.splits.all[s];
    const auto d = static_cast<std::size_t>(split.device);
    ScheduledProgram::Part part;
    part.device = split.device;
    part.program = impl_->lanes.executor(split.device).compile(split.graph, bound[d], *impl_->arenas[d], options);
    part.label = label_of(split.graph);
    part.n_nodes = split.graph.nodes.size();
    part.in = impl_->bind(cut, ports, cut.exchange.at[s].in, true);
    part.out = impl_->bind(cut, ports, cut.exchange.at[s].out, false);
    part.writes_shared = split.writes_shared;
    part.reads_shared = split.reads_shared;
    part.streams = split.streams;
    for (const std::size_t stream : part.streams) part.looks_at_ids |= program->streams.all[stream].ids != nullptr;
    program->parts.push_back(std::move(part));
  }
  program->first_out = impl_->bind(cut, ports, cut.exchange.first_out, false);
  program->last_in = impl_->bind(cut, ports, cut.exchange.last_in, true);
  program->sum_memory();
  program->handed_with = sched::device_to_hand_over_with(*program);
  impl_->observed = options.observer != nullptr;
  return program;
}

void Scheduler::Impl::run_part(ScheduledProgram& program, ScheduledProgram::Part& part, const StepCounts& counts) {
  if (!part.streams.empty()) {
    if (part.looks_at_ids) lanes.wait_for_others(0);
    staging->fetch(program.streams, part.streams, counts, stats.links[static_cast<std::size_t>(part.device)]);
  }
  lanes.copy(part.in, counts, stats);
  if (part.device == 0 || part.reads_shared || part.writes_shared) lanes.wait_for_others(part.device);
  lanes.run(part.device, *part.program, part.label, counts, {});
  if (!part.streams.empty()) staging->used(program.streams.half);
  if (part.writes_shared) lanes.touched(part.device);
  lanes.copy(part.out, counts, stats);
  // Observers are called one at a time, in the order of the graph.
  if (observed) lanes.executor(part.device).synchronise();
  count(part);
}

/// Null: the program's parts are run one after another, and what crosses is copied between them.
sched::HandedRun* Scheduler::Impl::handed_run(const ScheduledProgram& program) {
  const int device = program.handed_with;
  if (device == 0 || observed || lanes.traced()) return nullptr;
  std::unique_ptr<sched::HandedRun>& run = handed[static_cast<std::size_t>(device)];
  if (run != nullptr) return run.get();
  HandOver* const hand_over = lanes.hand_over(device);
  if (hand_over != nullptr) run = std::make_unique<sched::HandedRun>(lanes, *hand_over, stats);
  return run.get();
}

void Scheduler::run(Program& program, const StepCounts& counts, const StopToken& stop) {
  auto& scheduled = static_cast<ScheduledProgram&>(program);
  ++impl_->stats.programs;
  if (impl_->devices.size() == 1) {
    impl_->count(scheduled.parts.front());
    return impl_->lanes.run(0, *scheduled.parts.front().program, scheduled.parts.front().label, counts, stop);
  }
  // Copies would go beyond their places before any device looks at the counts.
  if (counts.n_tokens < 0 || counts.n_tokens > scheduled.token_bucket || counts.n_outputs < 0 ||
      counts.n_outputs > scheduled.output_bucket) {
    throw Error(ErrorCode::internal,
                strf("a step of %d tokens and %d outputs was given to a program for %d and %d", counts.n_tokens,
                     counts.n_outputs, scheduled.token_bucket, scheduled.output_bucket));
  }
  try {
    if (sched::HandedRun* const handed = impl_->handed_run(scheduled)) return handed->run(scheduled, counts, stop);
    impl_->lanes.copy(scheduled.first_out, counts, impl_->stats);
    for (ScheduledProgram::Part& part : scheduled.parts) {
      if (stop.stop != nullptr && stop.stop(stop.user)) throw Error(ErrorCode::cancelled, "the step was cancelled");
      impl_->run_part(scheduled, part, counts);
    }
    impl_->lanes.copy(scheduled.last_in, counts, impl_->stats);
  } catch (...) {
    impl_->settle();
    throw;
  }
}

void Scheduler::send_ahead(Program& program) {
  auto& scheduled = static_cast<ScheduledProgram&>(program);
  if (scheduled.streams.empty()) return;
  impl_->staging->send_ahead(scheduled.streams, impl_->stats.links[static_cast<std::size_t>(impl_->staging_device)]);
}

void Scheduler::move(DeviceId device, std::byte* dst, const std::byte* src, std::size_t bytes) {
  if (device.v == 0) impl_->lanes.wait_for_others(0);
  impl_->lanes.executor(device.v).move(dst, src, bytes);
}

void Scheduler::synchronise() {
  impl_->lanes.synchronise();
}

void Scheduler::mark(int number) {
  impl_->lanes.mark(static_cast<std::size_t>(number));
}

void Scheduler::wait_for(int number) {
  impl_->lanes.wait_for_mark(static_cast<std::size_t>(number));
}

void Scheduler::settle() noexcept {
  impl_->settle();
}

std::size_t Scheduler::arena_bytes(DeviceId device) const {
  const auto d = static_cast<std::size_t>(device.v);
  const auto bytes = [](const std::unique_ptr<Buffer>& buffer) { return buffer == nullptr ? 0 : buffer->bytes(); };
  return bytes(impl_->arenas[d]) + bytes(impl_->areas[d]);
}

std::size_t Scheduler::staging_bytes() const {
  return impl_->staging == nullptr ? 0 : impl_->staging->bytes();
}

std::size_t Scheduler::arena_bytes() const {
  std::size_t sum = 0;
  for (std::size_t d = 0; d < impl_->devices.size(); ++d) sum += arena_bytes(DeviceId(static_cast<std::int32_t>(d)));
  return sum;
}

const SchedulerStats& Scheduler::stats() const {
  return impl_->stats;
}

void Scheduler::reset_stats() {
  impl_->stats.splits = impl_->stats.nodes = impl_->stats.programs = 0;
  std::fill(impl_->stats.links.begin(), impl_->stats.links.end(), LinkUse{});
}

std::string report(const SchedulerStats& stats, std::uint64_t n_steps, std::span<Device* const> devices) {
  const double steps = static_cast<double>(std::max<std::uint64_t>(n_steps, 1));
  const auto mean = [&](std::uint64_t sum) { return static_cast<double>(sum) / steps; };
  std::string text = strf("%llu steps, each: %.1f splits of %.0f nodes, %.1f copies, %.0f bytes",
                          static_cast<unsigned long long>(n_steps), mean(stats.splits), mean(stats.nodes),
                          mean(stats.copies()), mean(stats.bytes()));
  for (std::size_t d = 1; d < stats.links.size() && d < devices.size(); ++d) {
    const LinkUse& link = stats.links[d];
    text += strf("\n%s: %.1f copies in, %.0f bytes; %.1f copies out, %.0f bytes", devices[d]->name().c_str(),
                 mean(link.copies_in), mean(link.bytes_in), mean(link.copies_out), mean(link.bytes_out));
    if (link.weight_copies > 0)
      text += strf("; of weights %.1f copies in, %.0f bytes", mean(link.weight_copies), mean(link.weight_bytes));
  }
  return text;
}

}  // namespace ggml
