#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ggml/device.h"
#include "llama/context.h"
#include "llama/model.h"
#include "models/golden.h"
#include "models/lora_file.h"
#include "test_support.h"

namespace llama::golden {

/// A small model with F32 weights that adapters can be merged into without rounding, and its files in a folder of the
/// test's own.
class AdapterFixture : public testing::Test {
 protected:
  AdapterFixture();
  /// Of the golden called `name`; golden_ stays null when there is none.
  void use(const std::string& name);

  [[nodiscard]] std::string file(const char* name) const { return (dir_.path() / name).string(); }
  [[nodiscard]] std::unique_ptr<Model> load(const ModelParams& params) const {
    return Model::load(params, *device_, {});
  }
  [[nodiscard]] std::unique_ptr<Model> load(const std::string& path, std::vector<std::string> adapters = {}) const;
  /// The message of the error that loading gives; "" when it loads.
  [[nodiscard]] std::string problem(const ModelParams& params) const;
  /// An adapter for every matrix of the model.
  [[nodiscard]] Lora lora(int rank, float alpha, unsigned seed) const {
    return Lora(*base_, adaptable(*base_), {rank, alpha, seed});
  }
  /// The logits of the golden's case of two sequences, on a device of the test's choice.
  [[nodiscard]] Rows pair(const Model& model, ggml::Device& device, const ContextParams& params) const;
  /// Those of its three cases, one after the other.
  [[nodiscard]] std::vector<Rows> all_cases(Context& context) const;
  [[nodiscard]] std::vector<Rows> all_cases(const Model& model, ggml::Device& device,
                                            const ContextParams& params) const;

  tandem::TempDir dir_;
  std::unique_ptr<ggml::Device> device_;
  std::unique_ptr<Golden> golden_;
  std::optional<F32Model> base_;
  std::string base_path_;
};

/// A small context with F32 keys and values, so that nothing but sums is rounded.
[[nodiscard]] ContextParams small_context(std::vector<float> scales = {});

/// Largest distance of two runs; infinite when one has rows that the other lacks.
[[nodiscard]] double distance(const Rows& a, const Rows& b);
[[nodiscard]] double distance(const std::vector<Rows>& a, const std::vector<Rows>& b);
/// Largest magnitude.
[[nodiscard]] double size_of(const Rows& rows);

}  // namespace llama::golden
