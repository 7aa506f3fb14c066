#pragma once

#include <memory>

#include "common/args/settings.h"
#include "common/setup/planned_run.h"
#include "llama/model.h"
#include "result.h"

namespace bench {

/// The settings of one test: those that hold for every test with its cell of the grid.
[[nodiscard]] common::Settings settings_of(const common::Settings& settings, const Test& test);

/// Loads models and runs tests; keeps a model loaded while its settings stay the same.
class Runner {
 public:
  /// `settings`: what holds for every test.
  explicit Runner(const common::Settings& settings) : settings_(settings) {}

  /// Throws Error when the model does not load or a step fails.
  [[nodiscard]] Result run(const Test& test);

 private:
  void load(const Test& test);
  const common::Settings& settings_;
  Test loaded_;
  common::PlannedRun planned_;
  std::unique_ptr<llama::Model> model_;
};

}  // namespace bench
