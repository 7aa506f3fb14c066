#include "common/setup/loaded_model.h"

#include <algorithm>
#include <utility>

#include "common/setup/setup.h"

namespace common {
namespace {

bool same_gpus(const PlacementSettings& a, const PlacementSettings& b) {
  const auto has_none = [](const PlacementSettings& p) { return p.main_gpu.value_or(0) < 0; };
  return a.devices == b.devices && a.simulated == b.simulated && a.cuda_per_card == b.cuda_per_card &&
         has_none(a) == has_none(b);
}

/// Whether two settings read the same weights in the same way.
bool same_source(const ModelSettings& a, const ModelSettings& b) {
  ModelSettings as_b = a;
  as_b.warmup = b.warmup;
  return as_b == b;
}

bool same_place(const llama::TensorPlan::Place& a, const llama::TensorPlan::Place& b) {
  return a.device == b.device && a.kind == b.kind && a.role == b.role;
}

/// Whether two plans of a model put its weights, and what is derived from them for the layers, on the same devices.
bool same_places(const llama::Plan& a, const llama::Plan& b) {
  const auto same_tensor = [](const llama::TensorPlan& one, const llama::TensorPlan& two) {
    return std::equal(one.places.begin(), one.places.end(), two.places.begin(), two.places.end(), same_place);
  };
  return a.input_device == b.input_device && a.output_device == b.output_device && a.layer_device == b.layer_device &&
         a.kv_device == b.kv_device &&
         std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(), same_tensor);
}

}  // namespace

void LoadedModel::prepare_machine(const Settings& settings) {
  if (machine_ != nullptr && settings.threads == settings_.threads &&
      same_gpus(settings.placement, settings_.placement))
    return;
  // Weights in host memory do not know the CPU's threads; the CPU of a machine in virtual time is tied to its clock.
  if (machine_ != nullptr && !machine_->virtual_time && same_gpus(settings.placement, settings_.placement)) {
    machine_->devices.front().reset();
    machine_->devices.front() = make_device(settings);
    return;
  }
  // Open until the next machine has it: a file that is opened anew begins anew.
  const std::shared_ptr<TraceFile> trace = machine_ == nullptr ? nullptr : machine_->trace;
  model_.reset();
  machine_.reset();
  planned_ = {};
  machine_ = std::make_shared<Machine>(open_machine(settings));
}

const PlannedRun& LoadedModel::prepare(const Settings& settings, int n_seq) {
  try {
    prepare_machine(settings);
    PlannedRun next = plan_run(settings, n_seq, machine_);
    announce(next);
    const bool stays =
        model_ != nullptr && same_source(settings.model, settings_.model) && same_places(next.plan(), planned_.plan());
    planned_ = std::move(next);
    settings_ = settings;
    if (stays) return planned_;
    model_.reset();
    model_ = load_model(settings, planned_);
    ++loads_;
    return planned_;
  } catch (...) {
    model_.reset();
    planned_ = {};
    machine_.reset();
    throw;
  }
}

}  // namespace common
