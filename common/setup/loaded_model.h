#pragma once

#include <memory>

#include "common/args/settings.h"
#include "common/setup/planned_run.h"
#include "llama/model.h"

namespace common {

/// The model and the machine of a program that runs several settings one after another. What the next run can use
/// stays: the weights as long as the same file is read in the same way to the same places, whichever flags say so; the
/// GPUs as long as the same are asked for. Other threads cost neither.
class LoadedModel {
 public:
  /// Plans for `n_seq` sequences and loads where that is needed. No context of an earlier run may be alive. Throws what
  /// plan_run(), announce() and load_model() throw; the next call begins anew then.
  const PlannedRun& prepare(const Settings& settings, int n_seq);

  /// Of the last prepare().
  [[nodiscard]] const PlannedRun& planned() const { return planned_; }
  [[nodiscard]] const llama::Model& model() const { return *model_; }
  /// How often weights were read.
  [[nodiscard]] int loads() const { return loads_; }

 private:
  void prepare_machine(const Settings& settings);

  Settings settings_;  // of the last prepare()
  std::shared_ptr<Machine> machine_;
  PlannedRun planned_;
  std::unique_ptr<llama::Model> model_;
  int loads_ = 0;
};

}  // namespace common
