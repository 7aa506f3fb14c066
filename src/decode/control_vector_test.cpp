#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ggml/gguf.h"
#include "ggml/quant.h"
#include "models/adapter_fixture.h"
#include "models/simulated_machine.h"

/// Control vectors against models with the same directions as biases.
namespace llama {
namespace {

using ggml::DType;
using ggml::Shape;
using golden::distance;
using golden::F32Model;
using golden::Lora;
using golden::Rows;
using golden::small_context;
using golden::Values;

constexpr double kExact = 0x1p-22, kNative = 1e-4, kChange = 0.5;  // as in the tests of adapters

/// A control vector file with a direction for each of `layers`.
struct Directions {
  ggml::gguf::Metadata metadata;
  std::vector<Values> tensors;

  Directions(const std::vector<int>& layers, int n_embd, unsigned seed) {
    metadata.set_string("general.architecture", "controlvector");
    metadata.set_string("controlvector.model_hint", "llama");
    std::mt19937 random(seed);
    for (const int layer : layers) {
      Values tensor{"direction." + std::to_string(layer), Shape(n_embd),
                    std::vector<float>(static_cast<std::size_t>(n_embd))};
      for (float& v : tensor.data) v = static_cast<float>(static_cast<int>(random() % 65) - 32) / 64.0f;
      tensors.push_back(std::move(tensor));
    }
  }
  [[nodiscard]] std::string write(const std::string& path, DType type = DType::f32) const {
    ggml::gguf::Writer writer(path);
    writer.metadata = metadata;
    for (const Values& tensor : tensors) writer.add_tensor(tensor.name, type, tensor.shape);
    writer.begin_data();
    for (const Values& tensor : tensors)
      writer.write(std::as_bytes(std::span(tensor.data)).first(ggml::tensor_bytes(type, tensor.shape)));
    writer.finish();
    return path;
  }
};

class ControlVectorTest : public golden::AdapterFixture {
 protected:
  void SetUp() override {
    use("llama");
    ASSERT_NE(golden_, nullptr);
  }
  [[nodiscard]] int n_embd() const { return static_cast<int>(base_->tensors.front().shape[0]); }
  /// The model with `vector` added to what the layer's feed-forward gives, which is the residual stream behind it.
  static void add_to_layer(F32Model& model, int layer, const std::vector<float>& vector, float scale) {
    const std::string name = "blk." + std::to_string(layer) + ".ffn_down.bias";
    Values bias{name, Shape(static_cast<std::int64_t>(vector.size())), vector};
    for (float& v : bias.data) v *= scale;
    for (Values& tensor : model.tensors)
      if (tensor.name == name) {
        for (std::size_t i = 0; i < vector.size(); ++i) tensor.data[i] += bias.data[i];
        return;
      }
    model.tensors.push_back(std::move(bias));
  }
  [[nodiscard]] ModelParams with(std::vector<ControlVector> vectors,
                                 std::optional<std::pair<int, int>> layers = {}) const {
    ModelParams params;
    params.path = base_path_;
    params.control_vectors = std::move(vectors);
    params.control_vector_layers = layers;
    return params;
  }
  std::string problem_of(const std::string& path, std::optional<std::pair<int, int>> layers = {}) {
    return problem(with({{path, 1.0f}}, layers));
  }
};

TEST_F(ControlVectorTest, IsAddedToWhatItsLayerGives) {
  const int last = load(base_path_)->info().n_layer - 1;
  const Directions one({last}, n_embd(), 1), other({last}, n_embd(), 2);
  F32Model changed = *base_;
  add_to_layer(changed, last, one.tensors[0].data, 0.5f);
  add_to_layer(changed, last, other.tensors[0].data, -2.0f);
  const auto changed_model = load(changed.write(file("changed.gguf")));
  const auto steered = load(with({{one.write(file("1.gguf")), 0.5f}, {other.write(file("2.gguf")), -2.0f}}));
  const auto reference = golden::make_reference_device();
  const Rows exact = pair(*changed_model, *reference, small_context());
  EXPECT_LE(distance(pair(*steered, *reference, small_context()), exact), kExact * golden::size_of(exact));
  EXPECT_LT(distance(pair(*steered, *device_, small_context()), exact), kNative);
  EXPECT_GT(distance(pair(*load(base_path_), *device_, small_context()), exact), kChange);
}

TEST_F(ControlVectorTest, WorksBesideAdaptersAndOnlyInsideItsRangeOfLayers) {
  const int n_layer = load(base_path_)->info().n_layer;
  std::vector<int> layers;
  for (int i = 1; i < n_layer; ++i) layers.push_back(i);
  const Directions all(layers, n_embd(), 3);
  const Lora adapter = lora(4, 8.0f, 11);
  F32Model changed = *base_;
  adapter.merge_into(changed, 0.5);
  add_to_layer(changed, 1, all.tensors[0].data, 1.0f);
  const auto reference = golden::make_reference_device();
  const auto exact = all_cases(*load(changed.write(file("changed.gguf"))), *reference, small_context());
  ModelParams params = with({{all.write(file("all.gguf")), 1.0f}}, {{1, 1}});
  params.adapters = {adapter.write(file("lora.gguf"))};
  EXPECT_LT(distance(all_cases(*load(params), *device_, small_context({0.5f})), exact), kNative);
  // On another device than the one that loads.
  const golden::SimulatedMachine machine({.n_cards = 1});
  const Plan plan = golden::SimulatedMachine::all_on(1, n_layer);
  const auto on_card = Model::load(params, machine.devices(), plan, {});
  Context context(*on_card, machine.devices(), plan, small_context({0.5f}));
  EXPECT_LT(distance(all_cases(context), exact), kNative);
}

TEST_F(ControlVectorTest, FilesThatDoNotFitGiveOneErrorWithAllProblems) {
  const auto zeros = [](const std::string& name, int n) {
    return Values{name, Shape(n), std::vector<float>(static_cast<std::size_t>(n))};
  };
  Directions bad({1}, n_embd(), 4);
  EXPECT_EQ(problem_of(bad.write(file("good.gguf"))), "");
  bad.tensors.push_back(zeros("direction.0", n_embd()));
  bad.tensors.push_back(zeros("direction.99", n_embd()));
  bad.tensors.push_back(zeros("direction.x", 4));
  bad.tensors[0] = zeros("direction.1", 4);
  const std::string text = problem_of(bad.write(file("bad.gguf")));
  for (const char* part : {"4 problems", "direction.0: a layer from 1", "direction.99: a layer from 1",
                           "direction.x: not a tensor", "direction.1: ", "embedding_length", "bad.gguf"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  Directions other({1}, n_embd(), 4);
  EXPECT_NE(problem_of(other.write(file("half.gguf"), DType::f16)).find("type F32 expected, file has F16"),
            std::string::npos);
  // Trainers write names of their own here.
  other.metadata.set_string("controlvector.model_hint", "mistral");
  EXPECT_EQ(problem_of(other.write(file("hint.gguf"))), "");
  other.tensors[0].data[2] = INFINITY;
  EXPECT_NE(problem_of(other.write(file("inf.gguf"))).find("direction.1: NaN or infinity"), std::string::npos);
  other.tensors.clear();
  EXPECT_NE(problem_of(other.write(file("none.gguf"))).find("no tensors"), std::string::npos);
  EXPECT_NE(problem_of(base_path_).find("general.architecture: 'controlvector' expected, file has 'llama'"),
            std::string::npos);
  std::filesystem::resize_file(file("hint.gguf"), std::filesystem::file_size(file("hint.gguf")) - 64);
  EXPECT_NE(problem_of(file("hint.gguf")).find("hint.gguf"), std::string::npos);
}

TEST_F(ControlVectorTest, RangesOfLayersLieInsideTheModel) {
  const std::string path = Directions({1}, n_embd(), 4).write(file("good.gguf"));
  EXPECT_NE(problem_of(path, {{2, 1}}).find("layers 2 to 1"), std::string::npos);
  EXPECT_NE(problem_of(path, {{1, 99}}).find("layers 1 to 99"), std::string::npos);
}

}  // namespace
}  // namespace llama
