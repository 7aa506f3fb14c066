#include "common/setup/machine.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "common/setup/measured_devices.h"
#include "common/setup/numa.h"
#include "common/setup/output_file.h"
#include "common/setup/setup.h"
#include "ggml/cuda.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/simulated.h"

namespace common {
namespace {

using ggml::DeviceId;
using ggml::Error;
using ggml::ErrorCode;

// What a device is taken to be able to do where nobody measured or said it. Only the ratios count, and they hardly
// change a plan: any card reads its memory many times faster than the host's.
constexpr double kHostBandwidth = 60e9, kCardBandwidth = 1e12, kLink = 25e9;
constexpr double kHostArithmetic = 4e12, kCardArithmetic = 2e14;
// Streams, events, captured graphs and library workspaces of a card; its context is there when free memory is asked.
constexpr std::uint64_t kCardOverhead = std::uint64_t{96} << 20;

constexpr const char* kSimulatedDescription = "simulated device";

llama::PlanDevice describe(const ggml::Device& device) {
  llama::PlanDevice description;
  description.name = device.name();
  const ggml::DeviceMemory memory = device.memory();
  description.total_bytes = memory.total;
  description.free_bytes = memory.free;
  return description;
}

llama::PlanDevice describe_cpu(const ggml::Device& device, const PlacementSettings& placement) {
  llama::PlanDevice description = describe(device);
  description.bandwidth = kHostBandwidth;
  description.arithmetic = kHostArithmetic;
  for (const SimulatedDevice& given : placement.simulated) {
    if (given.name != description.name) continue;
    if (placement.dry_run == DryRun::off)
      throw Error(ErrorCode::invalid_argument, "error: --sim-device CPU: the CPU is there and cannot be simulated",
                  "With --dry-run, and in llama-fit-params, it says how much host memory to plan for.");
    description.total_bytes = description.free_bytes = given.bytes;
    description.bandwidth = given.bandwidth.value_or(kHostBandwidth);
    if (given.bandwidth) description.speeds = llama::SpeedSource::given;
  }
  return description;
}

bool is_simulated(const PlacementSettings& placement, const std::string& name) {
  return std::any_of(placement.simulated.begin(), placement.simulated.end(),
                     [&](const SimulatedDevice& given) { return given.name == name; });
}

llama::PlanDevice describe_gpu(const ggml::Device& device, const SimulatedDevice* simulated) {
  llama::PlanDevice description = describe(device);
  description.bandwidth = kCardBandwidth;
  description.arithmetic = kCardArithmetic;
  if (simulated != nullptr) {
    description.bandwidth = simulated->bandwidth.value_or(kCardBandwidth);
    description.link = simulated->link.value_or(kLink);
    if (simulated->bandwidth || simulated->link) description.speeds = llama::SpeedSource::given;
  } else {
    description.overhead_bytes = kCardOverhead;  // its link is not known until it is measured
  }
  description.weight_bytes = [&device](ggml::DType type, const ggml::Shape& shape) {
    return device.weight_bytes(type, shape);
  };
  description.streams = [&device](ggml::DType type) { return device.streams_weights(type); };
  return description;
}

/// A GPU that could be used; its device once it is.
struct Candidate {
  std::string name;
  std::unique_ptr<ggml::Device> card;
  const SimulatedDevice* simulated = nullptr;
};

std::string list_names(const std::vector<Candidate>& candidates) {
  std::string names;
  for (const Candidate& candidate : candidates) names += (names.empty() ? "" : ", ") + candidate.name;
  return names.empty() ? "(none)" : names;
}

std::vector<Candidate> find_candidates(const PlacementSettings& placement, std::string& problem) {
  std::vector<Candidate> candidates;
  ggml::CudaDevices cuda = ggml::find_cuda_devices(placement.cuda_per_card);
  problem = cuda.problem;
  if (placement.cuda_per_card > 1 && cuda.devices.empty())
    throw Error(ErrorCode::invalid_argument,
                ggml::strf("error: --cuda-logical-devices %d: no card to divide: ", placement.cuda_per_card) + problem,
                "Leave the option out, or use --sim-device for devices that compute on the CPU.");
  for (std::unique_ptr<ggml::Device>& card : cuda.devices)
    candidates.push_back({card->name(), std::move(card), nullptr});
  for (const SimulatedDevice& simulated : placement.simulated) {
    if (simulated.name == "CPU") continue;
    for (const Candidate& other : candidates)
      if (other.name == simulated.name)
        throw Error(ErrorCode::invalid_argument,
                    "error: --sim-device " + simulated.name + ": the machine has a device of that name",
                    "Choose another name, or hide the card with CUDA_VISIBLE_DEVICES.");
    candidates.push_back({simulated.name, nullptr, &simulated});
  }
  return candidates;
}

/// The positions of the devices that -dev names.
std::vector<std::size_t> chosen(const PlacementSettings& placement, const std::vector<Candidate>& candidates) {
  std::vector<std::size_t> order;
  if (!placement.devices) {
    for (std::size_t i = 0; i < candidates.size(); ++i) order.push_back(i);
    return order;
  }
  for (const std::string& name : *placement.devices) {
    const auto found = std::find_if(candidates.begin(), candidates.end(),
                                    [&](const Candidate& candidate) { return candidate.name == name; });
    if (found == candidates.end())
      throw Error(ErrorCode::invalid_argument,
                  "error: -dev: invalid device: " + name + "; known GPU devices: " + list_names(candidates));
    const auto position = static_cast<std::size_t>(found - candidates.begin());
    if (std::find(order.begin(), order.end(), position) != order.end())
      throw Error(ErrorCode::invalid_argument, "error: -dev: " + name + " is named twice");
    order.push_back(position);
  }
  return order;
}

std::unique_ptr<ggml::Device> open_simulated(const SimulatedDevice& simulated, DeviceId id,
                                             std::shared_ptr<ggml::SimulatedTime> time) {
  ggml::SimulatedDeviceSpec spec;
  spec.name = simulated.name;
  spec.memory_bytes = simulated.bytes;
  spec.bandwidth = simulated.bandwidth.value_or(kCardBandwidth);
  spec.link = simulated.link.value_or(kLink);
  spec.lacks = simulated.lacks;
  return ggml::make_simulated_device(spec, id, std::move(time));
}

/// The clock of a machine of simulated cards whose work is to be shown; null where there is none. Beside a real card
/// only the machine's clock tells how things fit together.
std::shared_ptr<ggml::SimulatedTime> start_virtual_time(const std::vector<Candidate>& cards, Machine& machine) {
  const bool simulated = std::all_of(cards.begin(), cards.end(), [](const Candidate& c) { return c.simulated; });
  if (machine.trace == nullptr || cards.empty() || !simulated) return nullptr;
  machine.virtual_time = true;
  std::shared_ptr<ggml::SimulatedTime> time = machine.trace->virtual_time();
  ggml::SimulatedDeviceSpec host;
  host.bandwidth = kHostBandwidth;
  host.arithmetic = kHostArithmetic;
  machine.devices.front() = ggml::make_timed_host(std::move(machine.devices.front()), host, time);
  return time;
}

void open_trace(const Settings& settings, Machine& machine) {
  if (settings.schedule.trace_file.empty() || settings.placement.dry_run != DryRun::off) return;
  check_output(settings.schedule.trace_file, std::array{settings.model.path});
  machine.trace = TraceFile::open(settings.schedule.trace_file);
}

}  // namespace

std::vector<ggml::Device*> Machine::pointers() const {
  std::vector<ggml::Device*> list;
  for (const std::unique_ptr<ggml::Device>& device : devices) list.push_back(device.get());
  return list;
}

Machine open_machine(const Settings& settings) {
  const PlacementSettings& placement = settings.placement;
  Machine machine;
  open_trace(settings, machine);
  start_on_nodes(settings.threads);
  machine.devices.push_back(make_device(settings));
  machine.descriptions.push_back(describe_cpu(machine.cpu(), placement));
  MeasuredDevices measured(settings);
  if (!is_simulated(placement, machine.cpu().name())) measured.describe(machine.cpu(), machine.descriptions.front());
  const bool no_main = placement.split_mode == SplitMode::none && placement.main_gpu.value_or(0) < 0;
  const bool no_gpu = (placement.devices && placement.devices->empty()) || no_main;
  if (no_gpu) {
    measured.finish();
    machine.why_no_gpu = placement.devices && placement.devices->empty() ? "-dev none" : "-sm none with a negative -mg";
    return machine;
  }
  std::vector<Candidate> candidates = find_candidates(placement, machine.why_no_gpu);
  std::vector<Candidate> cards;
  for (const std::size_t position : chosen(placement, candidates)) cards.push_back(std::move(candidates[position]));
  const std::shared_ptr<ggml::SimulatedTime> time = start_virtual_time(cards, machine);
  for (Candidate& candidate : cards) {
    const DeviceId id(static_cast<int>(machine.devices.size()));
    if (candidate.simulated != nullptr)
      candidate.card = open_simulated(*candidate.simulated, id, time);
    else
      candidate.card->renumber(id);
    machine.descriptions.push_back(describe_gpu(*candidate.card, candidate.simulated));
    if (candidate.simulated == nullptr) measured.describe(*candidate.card, machine.descriptions.back());
    machine.devices.push_back(std::move(candidate.card));
  }
  measured.finish();
  if (machine.devices.size() > 1) machine.why_no_gpu.clear();
  return machine;
}

void print_devices(const Settings& settings, bool details) {
  std::string problem;
  std::fputs("Available devices:\n", stdout);
  const std::vector<Candidate> candidates = find_candidates(settings.placement, problem);
  for (const Candidate& candidate : candidates) {
    constexpr int kMib = 20;
    const ggml::DeviceMemory memory = candidate.card != nullptr
                                          ? candidate.card->memory()
                                          : ggml::DeviceMemory{candidate.simulated->bytes, candidate.simulated->bytes};
    std::printf("  %s: %s (%llu MiB, %llu MiB free)\n", candidate.name.c_str(),
                candidate.card != nullptr ? candidate.card->description().c_str() : kSimulatedDescription,
                static_cast<unsigned long long>(memory.total >> kMib),
                static_cast<unsigned long long>(memory.free >> kMib));
    if (!details) continue;
    if (candidate.card != nullptr) {
      std::printf("    %s\n", candidate.card->details().c_str());
    } else {
      std::printf("    memory %.0f GB/s, link %.0f GB/s\n",
                  candidate.simulated->bandwidth.value_or(kCardBandwidth) / 1e9,
                  candidate.simulated->link.value_or(kLink) / 1e9);
    }
  }
  if (candidates.empty()) std::fputs("  (none)\n", stdout);
}

}  // namespace common
