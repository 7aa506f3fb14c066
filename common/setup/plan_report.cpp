#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/setup/planned_run.h"
#include "ggml/log.h"

namespace common {
namespace {

using ggml::strf;
using Json = nlohmann::ordered_json;
using llama::size_text;

std::string type_name(ggml::DType type) {
  return std::string(ggml::type_info(type).name);
}

const std::string& device_name(const llama::Plan& plan, ggml::DeviceId device) {
  return plan.devices[static_cast<std::size_t>(device.v)].name;
}

const char* kind_name(ggml::BufferKind kind) {
  switch (kind) {
    case ggml::BufferKind::device:
      return "device";
    case ggml::BufferKind::host_pageable:
      return "host";
    case ggml::BufferKind::host_pinned:
      return "pinned";
    case ggml::BufferKind::mapping:
    case ggml::BufferKind::mapping_registered:
      break;
  }
  return "mapped";
}

const char* role_name(ggml::PlacementRole role) {
  switch (role) {
    case ggml::PlacementRole::primary:
      return "primary";
    case ggml::PlacementRole::replica:
      return "replica";
    case ggml::PlacementRole::cache:
      break;
  }
  return "cache";
}

std::string places_text(const llama::Plan& plan, const llama::TensorPlan& tensor) {
  std::string text;
  for (const llama::TensorPlan::Place& place : tensor.places) {
    if (!text.empty()) text += " + ";
    text += device_name(plan, place.device);
    if (place.device.v == 0) text += strf(" (%s)", kind_name(place.kind));
  }
  return text;
}

/// Rows of cells with columns as wide as their widest cell; numbers to the right.
class Table {
 public:
  explicit Table(std::vector<bool> right) : right_(std::move(right)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  void print() const {
    std::vector<std::size_t> widths(right_.size(), 0);
    for (const std::vector<std::string>& row : rows_)
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    for (const std::vector<std::string>& row : rows_) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string pad(widths[i] - row[i].size(), ' ');
        line += (i > 0 ? "  " : "") + (right_[i] ? pad + row[i] : row[i] + pad);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      std::printf("%s\n", line.c_str());
    }
  }

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

void print_tensors(const llama::Plan& plan) {
  Table table({false, false, false, true, false, false});
  table.add({"tensor", "type", "shape", "bytes", "placement", "rule"});
  for (const llama::TensorPlan& tensor : plan.tensors)
    table.add({tensor.name, type_name(tensor.type), tensor.shape.text(), std::to_string(tensor.places.front().bytes),
               places_text(plan, tensor), tensor.rule});
  table.print();
}

std::string margin_text(const llama::Plan& plan, std::size_t device) {
  if (const std::uint64_t lacking = llama::shortfall(plan, device)) return "-" + size_text(lacking);
  const std::uint64_t total = plan.use[device].total(), free = plan.devices[device].free_bytes;
  // Only mapped weights may be more than there is memory: the rest of the file stays on the disk.
  return total > free ? "0 B" : size_text(free - total);
}

void print_device_table(const llama::Plan& plan) {
  Table table({false, true, true, true, true, true, true, true, true});
  table.add({"device", "weights", "KV", "arenas", "staging", "overhead", "total", "free", "margin"});
  for (std::size_t d = 0; d < plan.devices.size(); ++d) {
    const llama::DeviceUse& use = plan.use[d];
    table.add({plan.devices[d].name, size_text(use.weights), size_text(use.kv), size_text(use.arenas),
               size_text(use.staging), size_text(use.overhead), size_text(use.total()),
               size_text(plan.devices[d].free_bytes), margin_text(plan, d)});
  }
  table.print();
}

void print_table(const PlannedRun& run, const Settings& settings) {
  const llama::ModelInfo& info = run.outline->info();
  print_tensors(run.plan());
  std::printf("\nmodel %s %s %s, context %d, batch %d, micro-batch %d, %d sequences, KV %s and %s\n\n",
              info.architecture.c_str(), info.size_label.c_str(), info.file_type.c_str(), run.context.n_ctx,
              run.context.n_batch, run.context.n_ubatch, run.context.n_seq_max, type_name(run.context.k_type).c_str(),
              type_name(run.context.v_type).c_str());
  print_device_table(run.plan());
  std::printf("\n");
  std::printf("%s\n", speeds_text(run, settings).c_str());
  for (const std::string& note : run.placed.notes) std::printf("%s\n", note.c_str());
  for (const std::string& line : run.fit_notes) std::printf("%s\n", line.c_str());
  if (run.explains)
    for (const std::string& line : run.explanation) std::printf("%s\n", line.c_str());
  if (const std::string text = prompt_offload_text(run); !text.empty()) std::printf("%s\n", text.c_str());
  for (const std::string& warning : run.placed.warnings) std::printf("warning: %s\n", warning.c_str());
  if (run.fits) {
    std::printf("it fits\n");
    return;
  }
  std::printf("it does not fit: %s\n", shortfall_text(run).c_str());
  if (!run.change.empty()) std::printf("it would fit with %s\n", run.change.c_str());
}

Json speeds_json(const llama::PlanDevice& device) {
  Json link;
  if (device.link > 0.0) link = device.link;
  return {{"bandwidth", device.bandwidth},
          {"link", std::move(link)},
          {"arithmetic", device.arithmetic},
          {"source", std::string(source_name(device.speeds))}};
}

Json devices_json(const llama::Plan& plan) {
  Json list = Json::array();
  for (std::size_t d = 0; d < plan.devices.size(); ++d) {
    const llama::PlanDevice& device = plan.devices[d];
    const llama::DeviceUse& use = plan.use[d];
    list.push_back({{"name", device.name},
                    {"weights", use.weights},
                    {"kv", use.kv},
                    {"arenas", use.arenas},
                    {"staging", use.staging},
                    {"overhead", use.overhead},
                    {"total", use.total()},
                    {"memory", device.total_bytes},
                    {"free", device.free_bytes},
                    {"margin", static_cast<std::int64_t>(device.free_bytes) - static_cast<std::int64_t>(use.total())},
                    {"shortfall", llama::shortfall(plan, d)},
                    {"speeds", speeds_json(device)}});
  }
  return list;
}

Json tensors_json(const llama::Plan& plan) {
  Json list = Json::array();
  for (const llama::TensorPlan& tensor : plan.tensors) {
    Json places = Json::array();
    for (const llama::TensorPlan::Place& place : tensor.places)
      places.push_back({{"device", device_name(plan, place.device)},
                        {"kind", kind_name(place.kind)},
                        {"role", role_name(place.role)},
                        {"bytes", place.bytes}});
    Json shape = Json::array();
    for (int axis = 0; axis < tensor.shape.dims(); ++axis) shape.push_back(tensor.shape[axis]);
    list.push_back({{"name", tensor.name},
                    {"type", type_name(tensor.type)},
                    {"shape", std::move(shape)},
                    {"bytes", tensor.places.front().bytes},
                    {"placements", std::move(places)},
                    {"rule", tensor.rule}});
  }
  return list;
}

Json layers_json(const llama::Plan& plan, const std::vector<ggml::DeviceId>& devices) {
  Json list = Json::array();
  for (const ggml::DeviceId device : devices) list.push_back(device_name(plan, device));
  return list;
}

Json rules_json(const std::vector<llama::RuleOutcome>& rules) {
  Json list = Json::array();
  for (const llama::RuleOutcome& rule : rules) {
    Json row = {{"rule", rule.rule},
                {"device", rule.device},
                {"tensors", rule.n_tensors},
                {"bytes", rule.bytes},
                {"shadowed", rule.n_shadowed}};
    if (!rule.blocks.empty()) row["blocks"] = rule.blocks;
    if (!rule.shadower.empty()) row["shadowed_by"] = rule.shadower;
    list.push_back(std::move(row));
  }
  return list;
}

Json prompt_offload_json(const PlannedRun& run) {
  if (!run.prompt_offload) return nullptr;
  const llama::PromptOffload& offload = *run.prompt_offload;
  Json tokens;
  if (offload.tokens > 0) tokens = offload.tokens;
  const bool acts = run.context.offload.device.v > 0;
  return {{"device", device_name(run.plan(), offload.device)},
          {"bytes", offload.bytes},
          {"tokens", std::move(tokens)},
          {"tokens_of", offload.offload.by_ubatch ? "ubatch" : "step"},
          {"dense_from", offload.offload.dense_from},
          {"experts_from", offload.offload.experts_from},
          {"staging", acts ? run.plan().use[static_cast<std::size_t>(offload.device.v)].staging : 0}};
}

void print_json(const PlannedRun& run, const Settings& settings) {
  const llama::ModelInfo& info = run.outline->info();
  const llama::Plan& plan = run.plan();
  std::vector<std::string> notes = run.placed.notes;
  notes.insert(notes.end(), run.fit_notes.begin(), run.fit_notes.end());
  const Json document = {{"model",
                          {{"architecture", info.architecture},
                           {"size", info.size_label},
                           {"type", info.file_type},
                           {"bytes", info.file_bytes},
                           {"layers", info.n_layer}}},
                         {"context",
                          {{"n_ctx", run.context.n_ctx},
                           {"n_batch", run.context.n_batch},
                           {"n_ubatch", run.context.n_ubatch},
                           {"n_seq_max", run.context.n_seq_max},
                           {"type_k", std::string(ggml::type_info(run.context.k_type).id)},
                           {"type_v", std::string(ggml::type_info(run.context.v_type).id)}}},
                         {"fits", run.fits},
                         {"change", run.change},
                         {"flags", flags_of(run, settings)},
                         {"devices", devices_json(plan)},
                         {"layers", layers_json(plan, plan.layer_device)},
                         {"kv", layers_json(plan, plan.kv_device)},
                         {"input", device_name(plan, plan.input_device)},
                         {"output", device_name(plan, plan.output_device)},
                         {"rules", rules_json(run.placed.rules)},
                         {"prompt_offload", prompt_offload_json(run)},
                         {"notes", notes},
                         {"explanation", run.explanation},
                         {"warnings", run.placed.warnings},
                         {"tensors", tensors_json(plan)}};
  // Names come from a file and may be anything.
  std::printf("%s\n", document.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

}  // namespace

int print_plan(const PlannedRun& run, const Settings& settings) {
  if (settings.placement.dry_run == DryRun::json)
    print_json(run, settings);
  else
    print_table(run, settings);
  return run.fits ? 0 : kDoesNotFit;
}

}  // namespace common
