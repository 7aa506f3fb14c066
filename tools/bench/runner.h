#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/args/settings.h"
#include "common/setup/loaded_model.h"
#include "common/setup/machine.h"
#include "llama/vocab.h"
#include "result.h"

namespace bench {

/// The settings of one test: those that hold for every test with its cell of the grid.
[[nodiscard]] common::Settings settings_of(const common::Settings& settings, const Test& test);

/// Of --prompt: a prompt as the model reads it.
[[nodiscard]] std::vector<llama::Token> tokens_of(const std::string& text, const llama::Vocab& vocab);

/// What `settings` say of a run on `machine`.
[[nodiscard]] RunFacts run_facts(const common::Settings& settings, const common::Machine& machine);

/// Loads models and runs tests; a model stays loaded while its weights stay where they are.
class Runner {
 public:
  /// `settings`: what holds for every test.
  explicit Runner(const common::Settings& settings) : settings_(settings) {}

  /// Makes the devices and the model of a test ready. Throws Error when the model does not load or the test is too
  /// large. What of the command line does nothing is said on standard error, each line once.
  const common::PlannedRun& prepare(const Test& test);
  /// The same, and runs the test. Throws Error when a step fails.
  [[nodiscard]] Result run(const Test& test);

 private:
  const common::PlannedRun& prepare_test(const Test& test);
  [[nodiscard]] Result run_test(const Test& test);

  const common::Settings& settings_;
  common::LoadedModel loaded_;
  std::set<std::string> said_;
};

}  // namespace bench
