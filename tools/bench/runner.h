#pragma once

#include <memory>

#include "ggml/device.h"
#include "llama/model.h"
#include "result.h"

namespace bench {

/// Loads models and runs tests; keeps a model loaded while its settings stay the same.
class Runner {
 public:
  explicit Runner(const Grid& grid) : grid_(grid) {}

  /// Throws Error when the model does not load or a step fails.
  [[nodiscard]] Result run(const Test& test);

 private:
  void load(const Test& test);

  const Grid& grid_;
  Test loaded_;
  std::unique_ptr<ggml::Device> device_;
  std::unique_ptr<llama::Model> model_;
};

}  // namespace bench
