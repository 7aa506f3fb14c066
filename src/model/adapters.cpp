#include "model/adapters.h"

#include <cstring>
#include <deque>
#include <string>
#include <utility>

#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/quant.h"
#include "model/adapter_file.h"
#include "model/control_vectors.h"
#include "model/key_reader.h"

namespace llama {

using ggml::DType;
using ggml::Error;
using ggml::ErrorCode;
using ggml::Shape;
using ggml::strf;
using ggml::Weight;
using ggml::gguf::TensorInfo;

namespace {

constexpr std::size_t kAlign = 64;  // of tensors in memory: one cache line

/// Declares the weights first; their bytes come with fill().
class Additions {
 public:
  Additions(const ModelParams& params, const Hparams& hparams, ModelWeights& weights) : weights_(weights) {
    if (params.adapters.size() > kMaxAdapters)
      throw Error(ErrorCode::invalid_argument,
                  strf("%zu LoRA adapters are given, a model takes %zu", params.adapters.size(), kMaxAdapters),
                  "merge some of them into the model");
    const bool is_tied = !weights.global[Role::output] && !hparams.is_encoder;
    for (const std::string& path : params.adapters) {
      files_.push_back(open_adapter(path, hparams, weights));
      declare_adapter(static_cast<int>(files_.size()) - 1, is_tied);
    }
    directions_ = read_control_vectors(params, hparams);
    declare_directions();
  }

  void fill(ggml::Device& cpu) {
    std::size_t total = 0;
    for (const Source& source : sources_) total += padded(*source.weight);
    if (total == 0) return;
    weights_.buffers.push_back(cpu.allocate(total, ggml::BufferKind::host_pageable));
    std::byte* data = weights_.buffers.back()->data();
    for (const Source& source : sources_) {
      fill(source, data);
      source.weight->placements.front().data = data;
      data += padded(*source.weight);
    }
  }

  [[nodiscard]] std::vector<AdapterInfo> infos() const {
    std::vector<AdapterInfo> infos;
    for (const AdapterFile& file : files_) infos.push_back(file.info);
    return infos;
  }

 private:
  /// Where a weight's bytes come from: a tensor of an adapter's file, as it is or transposed, or a control vector.
  struct Source {
    Weight* weight = nullptr;
    const AdapterFile* file = nullptr;
    const TensorInfo* info = nullptr;
    bool transposed = false;
    const std::vector<float>* values = nullptr;
  };

  static std::size_t padded(const Weight& weight) {
    return (ggml::tensor_bytes(weight.type, weight.shape) + kAlign - 1) / kAlign * kAlign;
  }

  Weight& declare(std::string name, DType type, const Shape& shape) {
    Weight& weight = weights_.tensors.emplace_back();
    weight.name = std::move(name);
    weight.type = type;
    weight.shape = shape;
    weight.placements.emplace_back().kind = ggml::BufferKind::host_pageable;
    return weight;
  }

  void declare_adapter(int number, bool is_tied) {
    const AdapterFile& file = files_[static_cast<std::size_t>(number)];
    const auto of_file = [&](const TensorInfo& info) {
      Weight& weight = declare(strf("%s (adapter %d)", info.name.c_str(), number), info.type, info.shape);
      sources_.push_back({&weight, &file, &info, false, nullptr});
      return &weight;
    };
    for (const AdapterTensor& tensor : file.tensors) {
      TensorSet& set = tensor.layer < 0 ? weights_.global : weights_.layers[static_cast<std::size_t>(tensor.layer)];
      const Weight* a = of_file(*tensor.a);
      const Weight* b = of_file(*tensor.b);
      set[tensor.role].adapters.push_back({number, a, b, tensor.factor});
      if (tensor.role != Role::token_embd || !is_tied) continue;
      // The head multiplies with the same matrix, whose pair is stored for looking up rows.
      Weight& turned = declare(strf("%s (adapter %d, transposed)", tensor.b->name.c_str(), number), DType::f32,
                               Shape(b->shape[1], b->shape[0]));
      sources_.push_back({&turned, &file, tensor.b, true, nullptr});
      weights_.global[Role::output].adapters.push_back({number, &turned, a, tensor.factor});
    }
  }

  void declare_directions() {
    for (std::size_t i = 0; i < directions_.size(); ++i) {
      if (directions_[i].empty()) continue;
      Weight& weight = declare(strf("blk.%zu.control_vector", i), DType::f32,
                               Shape(static_cast<std::int64_t>(directions_[i].size())));
      sources_.push_back({&weight, nullptr, nullptr, false, &directions_[i]});
      weights_.layers[i][Role::control_vector].weight = &weight;
    }
  }

  void fill(const Source& source, std::byte* data) {
    if (source.values != nullptr) {
      std::memcpy(data, source.values->data(), source.values->size() * sizeof(float));
      return;
    }
    const TensorInfo& info = *source.info;
    const ggml::gguf::Reader reader(source.file->file.shards()[info.shard].path, ggml::gguf::ReadMode::buffered);
    if (!source.transposed) {
      reader.read(info.offset, {data, static_cast<std::size_t>(info.bytes)});
      std::vector<std::string> problems;
      note_bad_values(*source.weight, data, problems);
      if (!problems.empty())
        throw Error(ErrorCode::invalid_file, list_problems(source.file->info.path, problems), "the file is damaged");
      return;
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(info.bytes));
    reader.read(info.offset, bytes);
    const std::int64_t width = info.shape[0], rows = info.shape[1];
    std::vector<float> row(static_cast<std::size_t>(width));
    auto* to = reinterpret_cast<float*>(data);
    for (std::int64_t r = 0; r < rows; ++r) {
      ggml::dequantise_row_of(info.type, bytes.data(), r, width, row.data());
      for (std::int64_t c = 0; c < width; ++c) to[c * rows + r] = row[static_cast<std::size_t>(c)];
    }
  }

  ModelWeights& weights_;
  std::deque<AdapterFile> files_;  // a deque: sources point to them
  ControlDirections directions_;
  std::vector<Source> sources_;
};

}  // namespace

std::vector<AdapterInfo> load_additions(const ModelParams& params, const LoadTarget& target, ModelWeights& weights) {
  const std::size_t first = weights.tensors.size();
  Additions additions(params, target.hparams, weights);
  additions.fill(*target.devices[0]);
  place_own_weights(target, first, weights);
  std::vector<AdapterInfo> infos = additions.infos();
  for (std::size_t i = 0; i < infos.size(); ++i)
    ggml::logf(ggml::LogLevel::info, "adapter id=%zu tensors=%d rank=%d alpha=%g bytes=%llu file=%s", i,
               infos[i].n_tensors, infos[i].rank, static_cast<double>(infos[i].alpha),
               static_cast<unsigned long long>(infos[i].bytes), infos[i].path.c_str());
  int n_layers = 0;
  for (const TensorSet& layer : weights.layers) n_layers += layer[Role::control_vector] ? 1 : 0;
  if (n_layers > 0)
    ggml::logf(ggml::LogLevel::info, "control_vectors files=%zu layers=%d", params.control_vectors.size(), n_layers);
  return infos;
}

std::vector<AdapterInfo> outline_additions(const ModelParams& params, const Hparams& hparams, ModelWeights& weights) {
  return Additions(params, hparams, weights).infos();
}

}  // namespace llama
