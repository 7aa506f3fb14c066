#include "models/lora_file.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>

#include "ggml/quant.h"

namespace llama::golden {

using ggml::DType;
using ggml::Shape;

namespace {

constexpr float kUnit = 128.0f;                      // an adapter's values are multiples of 1 / kUnit
constexpr const char* kTable = "token_embd.weight";  // its rows are looked up: the rank is the first extent of both

Values& find(std::vector<Values>& tensors, const std::string& name) {
  for (Values& tensor : tensors)
    if (tensor.name == name) return tensor;
  throw std::runtime_error("no tensor " + name);
}

}  // namespace

F32Model::F32Model(const std::string& path) {
  const ggml::gguf::File file = ggml::gguf::File::open(path);
  metadata = file.metadata();
  for (const char* key : {"split.no", "split.count", "split.tensors.count"}) metadata.erase(key);
  for (const ggml::gguf::TensorInfo& info : file.tensors()) {
    const ggml::gguf::Reader reader(file.shards()[info.shard].path, ggml::gguf::ReadMode::buffered);
    std::vector<std::byte> bytes(static_cast<std::size_t>(info.bytes));
    reader.read(info.offset, bytes);
    Values tensor{info.name, info.shape, std::vector<float>(static_cast<std::size_t>(info.shape.elements()))};
    for (std::int64_t row = 0; row < info.shape.rows(); ++row)
      ggml::dequantise_row_of(info.type, bytes.data(), row, info.shape[0], tensor.data.data() + row * info.shape[0]);
    tensors.push_back(std::move(tensor));
  }
}

Values& F32Model::at(const std::string& name) {
  return find(tensors, name);
}

void F32Model::coarsen(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    for (float& v : at(name).data) v = std::nearbyint(v * (kUnit * kUnit)) / (kUnit * kUnit);
}

std::string F32Model::write(const std::filesystem::path& path) const {
  ggml::gguf::Writer writer(path.string());
  writer.metadata = metadata;
  for (const Values& tensor : tensors) writer.add_tensor(tensor.name, DType::f32, tensor.shape);
  writer.begin_data();
  for (const Values& tensor : tensors) writer.write(std::as_bytes(std::span(tensor.data)));
  writer.finish();
  return path.string();
}

std::vector<std::string> adaptable(const F32Model& model) {
  std::vector<std::string> names;
  for (const Values& tensor : model.tensors) {
    const auto has = [&](const char* part) { return tensor.name.find(part) != std::string::npos; };
    const bool is_matrix = tensor.shape[1] > 1 && tensor.name.ends_with(".weight");
    if (!is_matrix || has("norm") || has("conv1d") || has("attn_kv_b") || has("attn_k_b") || has("attn_v_b")) continue;
    names.push_back(tensor.name);
  }
  return names;
}

Lora::Lora(const F32Model& model, const std::vector<std::string>& names, const LoraSpec& wanted) : spec(wanted) {
  metadata.set_string("general.type", "adapter");
  metadata.set_string("general.architecture", std::string(*model.metadata.get_string("general.architecture")));
  metadata.set_string("adapter.type", "lora");
  metadata.set_f32("adapter.lora.alpha", spec.alpha);
  std::mt19937 random(spec.seed);
  const int r = spec.rank;
  for (const Values& tensor : model.tensors) {
    if (std::find(names.begin(), names.end(), tensor.name) == names.end()) continue;
    const Shape w = tensor.shape;
    const bool is_table = tensor.name == kTable;
    add(tensor.name + ".lora_a", is_table ? Shape(r, w[1]) : Shape(w[0], r, w[2]), random);
    add(tensor.name + ".lora_b", is_table ? Shape(r, w[0]) : Shape(r, w[1], w[2]), random);
  }
}

Values& Lora::at(const std::string& name) {
  return find(tensors, name);
}

std::string Lora::write(const std::filesystem::path& path, DType type) const {
  ggml::gguf::Writer writer(path.string());
  writer.metadata = metadata;
  for (const Values& tensor : tensors) writer.add_tensor(tensor.name, type, tensor.shape);
  writer.begin_data();
  for (const Values& tensor : tensors) {
    std::vector<std::byte> bytes(ggml::tensor_bytes(type, tensor.shape));
    const auto width = static_cast<std::size_t>(tensor.shape[0]);
    for (std::size_t row = 0; row < tensor.data.size() / width; ++row)
      ggml::quantise_row(type, std::span(tensor.data).subspan(row * width, width), {},
                         bytes.data() + row * ggml::row_bytes(type, tensor.shape[0]));
    writer.write(bytes);
  }
  writer.finish();
  return path.string();
}

void Lora::merge_into(F32Model& model, double scale) const {
  const double factor = spec.alpha == 0.0f ? scale : scale * static_cast<double>(spec.alpha) / spec.rank;
  for (std::size_t i = 0; i + 1 < tensors.size(); i += 2) {
    const std::string name = tensors[i].name.substr(0, tensors[i].name.rfind('.'));
    merge(model.at(name), tensors[i], tensors[i + 1], factor);
  }
}

void Lora::add(const std::string& name, const Shape& shape, std::mt19937& random) {
  Values tensor{name, shape, std::vector<float>(static_cast<std::size_t>(shape.elements()))};
  // A file of F16 holds the same values.
  for (float& v : tensor.data) v = static_cast<float>(static_cast<int>(random() % 65) - 32) / kUnit;
  tensors.push_back(std::move(tensor));
}

void Lora::merge(Values& w, const Values& a, const Values& b, double factor) const {
  const bool is_table = w.name == kTable;
  const auto k = static_cast<std::size_t>(w.shape[0]), n = static_cast<std::size_t>(w.shape[1]);
  const auto r = static_cast<std::size_t>(spec.rank);
  for (std::size_t e = 0; e < static_cast<std::size_t>(w.shape[2]); ++e)
    for (std::size_t row = 0; row < n; ++row)
      for (std::size_t col = 0; col < k; ++col) {
        double sum = 0;
        for (std::size_t i = 0; i < r; ++i) {
          const float left = is_table ? a.data[row * r + i] : a.data[(e * r + i) * k + col];
          const float right = is_table ? b.data[col * r + i] : b.data[(e * n + row) * r + i];
          sum += static_cast<double>(left) * static_cast<double>(right);
        }
        float& value = w.data[(e * n + row) * k + col];
        const double whole = static_cast<double>(value) + factor * sum;
        value = static_cast<float>(whole);
        if (static_cast<double>(value) != whole) throw std::runtime_error("merging into " + w.name + " rounds");
      }
}

}  // namespace llama::golden
