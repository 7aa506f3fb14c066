#include "model/weight_loader.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/quant.h"
#include "model/key_reader.h"

namespace llama {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;
using ggml::gguf::TensorInfo;

namespace {

constexpr std::size_t kAlign = 64;               // of tensors that we place ourselves: one cache line
constexpr std::uint64_t kChunkBytes = 16 << 20;  // bytes read between two reports of progress

class Progress {
 public:
  Progress(const LoadProgress& callback, std::uint64_t total) : callback_(callback), total_(total) { report(); }

  void add(std::uint64_t bytes) {
    done_ += bytes;
    report();
  }

 private:
  void report() {
    if (callback_ && !callback_(done_, total_))
      throw Error(ErrorCode::cancelled,
                  strf("loading was cancelled after %llu of %llu bytes", static_cast<unsigned long long>(done_),
                       static_cast<unsigned long long>(total_)));
  }

  const LoadProgress& callback_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
};

ggml::Weight& add_weight(ModelWeights& weights, const TensorMatch& match) {
  ggml::Weight& weight = weights.tensors.emplace_back();
  weight.name = match.info->name;
  weight.type = match.info->type;
  weight.shape = match.info->shape;
  TensorSet& set = match.layer >= 0 ? weights.layers[static_cast<std::size_t>(match.layer)] : weights.global;
  TensorWithParts& parts = set[match.role];
  switch (match.part) {
    case TensorMatch::Part::weight:
      parts.weight = &weight;
      break;
    case TensorMatch::Part::bias:
      parts.bias = &weight;
      break;
    case TensorMatch::Part::scale:
      parts.scale = &weight;
      break;
  }
  return weight;
}

void place(ggml::Weight& weight, const std::byte* data, ggml::BufferKind kind) {
  ggml::Placement placement;
  placement.kind = kind;
  placement.data = data;
  weight.placements.push_back(placement);
}

/// What one element of the list "weight, where its bytes come from" needs.
struct Loaded {
  ggml::Weight* weight;
  const TensorInfo* info;
};

void map_tensors(const ggml::gguf::File& file, std::span<const Loaded> tensors, ModelWeights& weights) {
  weights.mappings.reserve(file.shards().size());
  for (const ggml::gguf::Shard& shard : file.shards()) weights.mappings.emplace_back(shard.path);
  for (const Loaded& tensor : tensors) {
    const ggml::gguf::Mapping& mapping = weights.mappings[tensor.info->shard];
    if (mapping.bytes().size() < tensor.info->offset + tensor.info->bytes)
      throw Error(ErrorCode::io,
                  file.shards()[tensor.info->shard].path + ": the file became shorter while it was loaded");
    place(*tensor.weight, mapping.bytes().data() + tensor.info->offset, ggml::BufferKind::mapping);
    mapping.will_need(tensor.info->offset, tensor.info->bytes);
  }
}

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

void read_tensors(const ggml::gguf::File& file, std::span<const Loaded> tensors, ggml::gguf::ReadMode mode,
                  ggml::Device& device, Progress& progress, ModelWeights& weights) {
  std::vector<ggml::gguf::Reader> readers;
  readers.reserve(file.shards().size());
  for (const ggml::gguf::Shard& shard : file.shards()) readers.emplace_back(shard.path, mode);
  std::uint64_t total = 0;
  for (const Loaded& tensor : tensors) total += padded(tensor.info->bytes);
  weights.buffers.push_back(device.allocate(static_cast<std::size_t>(std::max<std::uint64_t>(total, kAlign)),
                                            ggml::BufferKind::host_pageable));
  std::byte* data = weights.buffers.back()->data();
  for (const Loaded& tensor : tensors) {
    const std::uint64_t bytes = tensor.info->bytes;
    for (std::uint64_t done = 0; done < bytes; done += kChunkBytes) {
      const std::uint64_t part = std::min(kChunkBytes, bytes - done);
      readers[tensor.info->shard].read(tensor.info->offset + done, {data + done, static_cast<std::size_t>(part)});
      progress.add(part);
    }
    place(*tensor.weight, data, ggml::BufferKind::host_pageable);
    data += padded(bytes);
  }
}

constexpr std::size_t kDeviceAlign = 256;

std::size_t device_bytes(const ggml::Device& device, const ggml::Weight& weight) {
  return (device.weight_bytes(weight.type, weight.shape) + kDeviceAlign - 1) / kDeviceAlign * kDeviceAlign;
}

/// Pins the weights. That it fails is a warning: the model works, only less steadily.
void lock_weights(const ModelWeights& weights) {
  try {
    for (const ggml::gguf::Mapping& mapping : weights.mappings) mapping.lock(0, mapping.bytes().size());
    for (const std::unique_ptr<ggml::Buffer>& buffer : weights.buffers)
      if (buffer->kind() != ggml::BufferKind::device && mlock(buffer->data(), buffer->bytes()) != 0)
        throw Error(ErrorCode::out_of_memory,
                    strf("could not lock %zu bytes of weights in memory: %s", buffer->bytes(), std::strerror(errno)),
                    "raise the limit with `ulimit -l unlimited`");
  } catch (const Error& error) {
    ggml::logf(ggml::LogLevel::warn, "%s%s%s", error.what(), error.hint().empty() ? "" : "; ", error.hint().c_str());
  }
}

void check_values(const ggml::gguf::File& file, std::span<const Loaded> tensors, bool report, Progress& progress) {
  std::vector<std::string> problems;
  for (const Loaded& tensor : tensors) {
    const ggml::Weight& weight = *tensor.weight;
    const std::size_t stride = ggml::row_bytes(weight.type, weight.shape[0]);
    const std::int64_t together = ggml::type_info(weight.type).rows_per_group;
    for (std::int64_t row = 0; row < weight.shape.rows(); row += together) {
      const std::byte* data = weight.placements.front().data + static_cast<std::size_t>(row) * stride;
      if (const auto block = ggml::find_bad_block(weight.type, data, weight.shape[0])) {
        problems.push_back(strf("%s: NaN or infinity in row %lld, block %lld", weight.name.c_str(),
                                static_cast<long long>(row), static_cast<long long>(*block)));
        break;
      }
    }
    if (report) progress.add(tensor.info->bytes);
  }
  if (!problems.empty())
    throw Error(ErrorCode::invalid_file, list_problems(file.shards().front().path, problems),
                "the file is damaged; download it again");
}

}  // namespace

void load_weights(const ggml::gguf::File& file, std::span<const TensorMatch> matches, const ModelParams& params,
                  ggml::Device& device, const LoadProgress& progress, ModelWeights& weights) {
  std::vector<Loaded> tensors;
  std::uint64_t total = 0;
  for (const TensorMatch& match : matches) {
    tensors.push_back({&add_weight(weights, match), match.info});
    total += match.info->bytes;
  }
  Progress reporter(progress, total);
  const bool mapped = params.load_mode == LoadMode::mmap;
  if (mapped)
    map_tensors(file, tensors, weights);
  else
    read_tensors(
        file, tensors,
        params.load_mode == LoadMode::direct_io ? ggml::gguf::ReadMode::direct : ggml::gguf::ReadMode::buffered, device,
        reporter, weights);
  if (params.check_tensors) check_values(file, tensors, mapped, reporter);
  if (params.lock_memory) lock_weights(weights);
  if (mapped && !params.check_tensors) reporter.add(total);
}

void outline_weights(std::span<const TensorMatch> matches, ModelWeights& weights) {
  for (const TensorMatch& match : matches) place(add_weight(weights, match), nullptr, ggml::BufferKind::mapping);
}

void copy_to_device(ggml::Device& device, const LoadProgress& progress, ModelWeights& weights) {
  std::size_t total = 0;
  for (const ggml::Weight& weight : weights.tensors) total += device_bytes(device, weight);
  if (total == 0) return;
  Progress reporter(progress, total);
  weights.buffers.push_back(device.allocate(total, ggml::BufferKind::device));
  std::byte* data = weights.buffers.back()->data();
  for (ggml::Weight& weight : weights.tensors) {
    device.load_weight(weight.type, weight.shape, weight.placements.front().data, data);
    ggml::Placement placement;
    placement.device = device.id();
    placement.kind = ggml::BufferKind::device;
    placement.data = data;
    weight.placements.push_back(placement);
    const std::size_t bytes = device_bytes(device, weight);
    data += bytes;
    reporter.add(bytes);
  }
}

}  // namespace llama
