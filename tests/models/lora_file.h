#pragma once

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "ggml/gguf.h"
#include "ggml/tensor.h"

/// Files of models and LoRA adapters that tests make.
namespace llama::golden {

/// A tensor as f32 values.
struct Values {
  std::string name;
  ggml::Shape shape;
  std::vector<float> data;
};

/// A model file as f32 values, to be changed and written again.
struct F32Model {
  ggml::gguf::Metadata metadata;
  std::vector<Values> tensors;

  explicit F32Model(const std::string& path);
  [[nodiscard]] Values& at(const std::string& name);
  /// Rounds these tensors to multiples of the products of an adapter's values: then Lora::merge_into() is exact.
  void coarsen(const std::vector<std::string>& names);
  /// Returns the path.
  std::string write(const std::filesystem::path& path) const;
};

/// The tensors of a model that adapters may change.
[[nodiscard]] std::vector<std::string> adaptable(const F32Model& model);

/// What an adapter is made of.
struct LoraSpec {
  int rank = 4;
  float alpha = 8.0f;
  unsigned seed = 1;
};

/// A LoRA file in memory.
struct Lora {
  ggml::gguf::Metadata metadata;
  std::vector<Values> tensors;
  LoraSpec spec;

  /// Random values for the tensors called `names`.
  Lora(const F32Model& model, const std::vector<std::string>& names, const LoraSpec& wanted);
  [[nodiscard]] Values& at(const std::string& name);
  /// Returns the path.
  std::string write(const std::filesystem::path& path, ggml::DType type = ggml::DType::f32) const;
  /// W += scale * alpha / rank * B A of each of its tensors. Throws when a sum is no f32: merging would round.
  void merge_into(F32Model& model, double scale) const;

 private:
  void add(const std::string& name, const ggml::Shape& shape, std::mt19937& random);
  void merge(Values& w, const Values& a, const Values& b, double factor) const;
};

}  // namespace llama::golden
