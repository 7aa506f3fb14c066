#include "model/control_vectors.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "ggml/quoted.h"
#include "model/key_reader.h"

namespace llama {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;
using ggml::gguf::TensorInfo;

namespace {

constexpr std::string_view kArchitecture = "controlvector";

struct Layers {
  int first = 0, last = 0;  // both included
};

/// What --control-vector-layer-range leaves of the model's layers; numbers below 1 stand for the ends.
Layers chosen_layers(const ModelParams& params, const Hparams& hparams) {
  Layers layers{1, hparams.n_layer - 1};
  if (!params.control_vector_layers) return layers;
  const auto& [first, last] = *params.control_vector_layers;
  if (first > 0) layers.first = first;
  if (last > 0) layers.last = last;
  if (layers.first > layers.last || layers.last > hparams.n_layer)
    throw Error(
        ErrorCode::invalid_argument,
        strf("layers %d to %d of the control vectors are not a range inside 1 to %d", first, last, hparams.n_layer - 1),
        "set --control-vector-layer-range FIRST LAST");
  return layers;
}

/// N of "direction.N"; nothing for other names.
std::optional<int> layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "direction.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int layer = -1;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, layer);
  return error == std::errc{} && stop == end ? std::optional<int>(layer) : std::nullopt;
}

std::string problem_of(const TensorInfo& tensor, const Hparams& hparams) {
  const std::optional<int> layer = layer_of(tensor.name);
  if (!layer) return tensor.name + ": not a tensor of a control vector, whose names are direction.N";
  if (*layer < 1 || *layer >= hparams.n_layer)
    return strf("%s: a layer from 1 to %d expected", tensor.name.c_str(), hparams.n_layer - 1);
  if (tensor.shape != ggml::Shape(hparams.n_embd))
    return strf("%s: %d expected (embedding_length), file has %s", tensor.name.c_str(), hparams.n_embd,
                tensor.shape.text().c_str());
  if (tensor.type != ggml::DType::f32)
    return strf("%s: type F32 expected, file has %s", tensor.name.c_str(),
                std::string(ggml::type_info(tensor.type).name).c_str());
  return {};
}

/// The hint is a name that whoever trained the vector chose, often not that of the GGUF architecture: shapes decide.
void warn_of_another_model(const ggml::gguf::File& file, const Hparams& hparams) {
  const std::string_view hint = file.metadata().get_string("controlvector.model_hint").value_or("");
  if (hint.empty() || hint == hparams.arch) return;
  ggml::logf(ggml::LogLevel::warn, "control_vector file=%s made_for=%s model=%s: its shapes fit, so it is used",
             file.shards().front().path.c_str(), ggml::gguf::quoted(hint).c_str(), hparams.arch.c_str());
}

std::vector<std::string> problems_of(const ggml::gguf::File& file, const Hparams& hparams) {
  std::vector<std::string> problems;
  try {
    const std::string_view arch = file.metadata().get_string("general.architecture").value_or("");
    if (arch != kArchitecture)
      return {strf("general.architecture: %s expected, file has %s", ggml::gguf::quoted(kArchitecture).c_str(),
                   ggml::gguf::quoted(arch).c_str())};
    warn_of_another_model(file, hparams);
  } catch (const Error& error) {
    problems.push_back(error.message());
  }
  for (const TensorInfo& tensor : file.tensors())
    if (std::string problem = problem_of(tensor, hparams); !problem.empty()) problems.push_back(std::move(problem));
  if (file.tensors().empty()) problems.emplace_back("the file has no tensors");
  return problems;
}

/// to += scale * the tensor's values. False when a value is not a finite number then.
bool add_direction(const ggml::gguf::File& file, const TensorInfo& tensor, float scale, std::span<float> to) {
  std::vector<float> values(to.size());
  const ggml::gguf::Reader reader(file.shards()[tensor.shard].path, ggml::gguf::ReadMode::buffered);
  reader.read(tensor.offset, std::as_writable_bytes(std::span(values)));
  bool finite = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    to[i] += scale * values[i];
    finite = finite && std::isfinite(values[i]) && std::isfinite(to[i]);
  }
  return finite;
}

void add_file(const ControlVector& vector, const Hparams& hparams, const Layers& layers, ControlDirections& sum) {
  const ggml::gguf::File file = ggml::gguf::File::open(vector.path);
  std::vector<std::string> problems = problems_of(file, hparams);
  if (problems.empty()) {
    for (const TensorInfo& tensor : file.tensors()) {
      const int layer = *layer_of(tensor.name);
      if (layer < layers.first || layer > layers.last) continue;
      std::vector<float>& to = sum[static_cast<std::size_t>(layer)];
      to.resize(static_cast<std::size_t>(hparams.n_embd), 0.0f);
      if (!add_direction(file, tensor, vector.scale, to)) problems.push_back(tensor.name + ": NaN or infinity");
    }
  }
  if (!problems.empty())
    throw Error(ErrorCode::invalid_file, list_problems(vector.path, problems),
                "give a control vector in GGUF form that was made for this model");
}

}  // namespace

ControlDirections read_control_vectors(const ModelParams& params, const Hparams& hparams) {
  ControlDirections sum;
  if (params.control_vectors.empty()) return sum;
  sum.resize(static_cast<std::size_t>(hparams.n_layer));
  const Layers layers = chosen_layers(params, hparams);
  for (const ControlVector& vector : params.control_vectors) add_file(vector, hparams, layers, sum);
  return sum;
}

}  // namespace llama
