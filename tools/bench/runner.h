#pragma once

#include <memory>

#include "common/args/settings.h"
#include "ggml/device.h"
#include "llama/model.h"
#include "result.h"

namespace bench {

/// Loads models and runs tests; keeps a model loaded while its settings stay the same.
class Runner {
 public:
  /// `settings`: what holds for every test.
  explicit Runner(const common::Settings& settings) : settings_(settings) {}

  /// Throws Error when the model does not load or a step fails.
  [[nodiscard]] Result run(const Test& test);

 private:
  void load(const Test& test);
  [[nodiscard]] common::Settings settings_of(const Test& test) const;

  const common::Settings& settings_;
  Test loaded_;
  std::unique_ptr<ggml::Device> device_;
  std::unique_ptr<llama::Model> model_;
};

}  // namespace bench
