#include "model/weight_loader.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "ggml/error.h"
#include "ggml/log.h"
#include "ggml/quant.h"
#include "model/derived_weights.h"
#include "model/device_memory.h"
#include "model/key_reader.h"
#include "model/repacking.h"
#include "model/weight_places.h"

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

void put(const ggml::Weight& weight, TensorMatch::Part part, TensorWithParts& parts) {
  switch (part) {
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
}

ggml::Weight& add_weight(ModelWeights& weights, const TensorMatch& match) {
  ggml::Weight& weight = weights.tensors.emplace_back();
  weight.name = match.info->name;
  weight.type = match.info->type;
  weight.shape = match.info->shape;
  TensorSet& set = match.layer >= 0 ? weights.layers[static_cast<std::size_t>(match.layer)] : weights.global;
  put(weight, match.part, set[match.role]);
  return weight;
}

ggml::Weight& add_weight(ModelWeights& weights, const MergedTensor& merged) {
  ggml::Weight& weight = weights.tensors.emplace_back();
  weight.name = merged.name;
  weight.type = merged.type;
  weight.shape = merged.shape;
  put(weight, merged.part, weights.layers[static_cast<std::size_t>(merged.layer)][merged.role]);
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

/// Tensors that some device reads in host memory get a place there; the others pass through a buffer of their own size
/// on their way to their devices.
class TensorReader {
 public:
  TensorReader(const ggml::gguf::File& file, ggml::gguf::ReadMode mode, Progress& progress) : progress_(progress) {
    readers_.reserve(file.shards().size());
    for (const ggml::gguf::Shard& shard : file.shards()) readers_.emplace_back(shard.path, mode);
  }
  void read(const TensorInfo& info, std::byte* data) { read(info, 0, info.bytes, data); }
  void read(const MergedTensor& merged, std::byte* data) {
    for (std::int64_t stack = 0; stack < merged.n_stacks; ++stack) {
      for (const TensorInfo* info : merged.parts) {
        const std::uint64_t bytes = info->bytes / static_cast<std::uint64_t>(merged.n_stacks);
        read(*info, static_cast<std::uint64_t>(stack) * bytes, bytes, data);
        data += bytes;
      }
    }
  }

 private:
  void read(const TensorInfo& info, std::uint64_t begin, std::uint64_t bytes, std::byte* data) {
    for (std::uint64_t done = 0; done < bytes; done += kChunkBytes) {
      const std::uint64_t part = std::min(kChunkBytes, bytes - done);
      readers_[info.shard].read(info.offset + begin + done, {data + done, static_cast<std::size_t>(part)});
      progress_.add(part);
    }
  }

  std::vector<ggml::gguf::Reader> readers_;
  Progress& progress_;
};

/// Pins the weights that are computed with in host memory. That it fails is a warning: the model works, only less
/// steadily.
void lock_weights(std::span<const Loaded> tensors, const ModelWeights& weights) {
  try {
    for (const Loaded& tensor : tensors) {
      const ggml::Placement& at = tensor.weight->placements.front();
      if (at.kind == ggml::BufferKind::mapping && at.role != ggml::PlacementRole::cache)
        weights.mappings[tensor.info->shard].lock(tensor.info->offset, tensor.info->bytes);
    }
    for (const std::unique_ptr<ggml::Buffer>& buffer : weights.buffers)
      if (buffer->kind() != ggml::BufferKind::device && mlock(buffer->data(), buffer->bytes()) != 0)
        throw Error(ErrorCode::out_of_memory,
                    strf("could not lock %zu bytes of weights in memory: %s", buffer->bytes(), std::strerror(errno)),
                    "raise the limit with `ulimit -l unlimited`");
  } catch (const Error& error) {
    ggml::logf(ggml::LogLevel::warn, "%s%s%s", error.what(), error.hint().empty() ? "" : "; ", error.hint().c_str());
  }
}

/// The work of load_weights, step by step.
class Loading {
 public:
  Loading(const ggml::gguf::File& file, const ModelParams& params, const LoadTarget& target, ModelWeights& weights)
      : file_(file), params_(params), target_(target), weights_(weights) {}

  void run(std::span<const TensorMatch> matches, const LoadProgress& callback) {
    std::uint64_t total = 0;
    for (const TensorMatch& match : matches) {
      tensors_.push_back({&add_weight(weights_, match), match.info});
      total += match.info->bytes;
    }
    std::uint64_t merged_bytes = 0;
    for (const MergedTensor& merged : target_.merged) {
      const ggml::Weight& weight = *merged_.emplace_back(&add_weight(weights_, merged));
      merged_bytes += ggml::tensor_bytes(weight.type, weight.shape);
    }
    WeightPlaces places(target_.plan, weights_);
    if (const int n = places.leave_unsupported(target_.devices); n > 0)
      ggml::logf(ggml::LogLevel::warn, "%d tensors stay on the CPU: their devices cannot compute with their types", n);
    if (params_.repack) repacking_.emplace(places, weights_);
    DeviceMemory memory(target_.devices, places, 0, weights_);
    Progress progress(callback, total + merged_bytes);
    const bool mapped = params_.load_mode == LoadMode::mmap && !params_.repack;
    if (mapped)
      map_tensors(file_, tensors_, weights_);
    else
      read(places, memory, progress);
    read_merged(places, memory, progress);
    if (params_.check_tensors) check(mapped, progress);
    if (mapped && !params_.check_tensors) progress.add(total);
    copy(memory, callback);
    if (params_.lock_memory) lock_weights(tensors_, weights_);
    if (repacking_) repacking_->report(target_.devices, weights_);
    derive();
  }

 private:
  [[nodiscard]] ggml::gguf::ReadMode read_mode() const {
    return params_.load_mode == LoadMode::direct_io ? ggml::gguf::ReadMode::direct : ggml::gguf::ReadMode::buffered;
  }

  void read(const WeightPlaces& places, DeviceMemory& memory, Progress& progress) {
    const auto stays = [&](const ggml::Weight& w) { return memory.is_on_host(w) || places.is_read_by_host(w); };
    std::uint64_t bytes = 0;
    for (const Loaded& tensor : tensors_)
      if (stays(*tensor.weight)) bytes += padded(tensor.info->bytes);
    weights_.buffers.push_back(target_.devices[0]->allocate(
        static_cast<std::size_t>(std::max<std::uint64_t>(bytes, kAlign)), ggml::BufferKind::host_pageable));
    std::byte* data = weights_.buffers.back()->data();
    TensorReader reader(file_, read_mode(), progress);
    std::unique_ptr<ggml::Buffer> passing;
    for (const Loaded& tensor : tensors_) {
      if (stays(*tensor.weight)) {
        reader.read(*tensor.info, data);
        repack(*tensor.weight, data);
        place(*tensor.weight, data, ggml::BufferKind::host_pageable);
        data += padded(tensor.info->bytes);
        continue;
      }
      if (passing == nullptr || passing->bytes() < tensor.info->bytes) {
        passing.reset();
        passing = target_.devices[0]->allocate(static_cast<std::size_t>(padded(tensor.info->bytes)),
                                               ggml::BufferKind::host_pageable);
      }
      reader.read(*tensor.info, passing->data());
      if (params_.check_tensors) note_bad_values(*tensor.weight, passing->data(), problems_);
      memory.load(*tensor.weight, passing->data());
    }
  }

  void repack(ggml::Weight& weight, std::byte* data) {
    if (!repacking_ || !repacking_->wants(weight)) return;
    if (params_.check_tensors) note_bad_values(weight, data, problems_);  // while a row can be named
    repacking_->apply(weight, data);
  }

  /// Merged tensors are in no file as they are needed.
  void read_merged(const WeightPlaces& places, DeviceMemory& memory, Progress& progress) {
    if (merged_.empty()) return;
    TensorReader reader(file_, read_mode(), progress);
    for (std::size_t i = 0; i < merged_.size(); ++i) {
      ggml::Weight& weight = *merged_[i];
      std::unique_ptr<ggml::Buffer> buffer =
          target_.devices[0]->allocate(static_cast<std::size_t>(padded(ggml::tensor_bytes(weight.type, weight.shape))),
                                       ggml::BufferKind::host_pageable);
      std::byte* data = buffer->data();
      reader.read(target_.merged[i], data);
      const bool repacks = repacking_ && repacking_->wants(weight);  // then it is looked at there
      if (params_.check_tensors && !repacks) note_bad_values(weight, data, problems_);
      repack(weight, data);
      if (memory.is_on_host(weight) || places.is_read_by_host(weight)) {
        place(weight, data, ggml::BufferKind::host_pageable);
        if (!memory.is_on_host(weight)) weight.placements.front().role = ggml::PlacementRole::cache;
        weights_.buffers.push_back(std::move(buffer));
      }
      memory.load(weight, data);
    }
  }

  void check(bool report, Progress& progress) {
    for (const Loaded& tensor : tensors_) {
      const ggml::Placement& at = tensor.weight->placements.front();
      const bool is_checked = at.kind == ggml::BufferKind::device || (repacking_ && repacking_->wants(*tensor.weight));
      if (!is_checked) note_bad_values(*tensor.weight, at.data, problems_);
      if (report) progress.add(tensor.info->bytes);
    }
    if (!problems_.empty())
      throw Error(ErrorCode::invalid_file, list_problems(file_.shards().front().path, problems_),
                  "the file is damaged; download it again");
  }

  /// What lies in host memory to its devices.
  void copy(DeviceMemory& memory, const LoadProgress& callback) {
    if (memory.total_bytes() == 0) return;
    Progress progress(callback, memory.total_bytes());
    for (const Loaded& tensor : tensors_) {
      ggml::Weight& weight = *tensor.weight;
      if (weight.placements.front().kind == ggml::BufferKind::device) continue;  // it was read to there
      if (!memory.is_on_host(weight)) weight.placements.front().role = ggml::PlacementRole::cache;
      progress.add(memory.load(weight, weight.placements.front().data));
    }
  }

  void derive() {
    const std::size_t first = weights_.tensors.size();
    derive_weights(target_.hparams, *target_.devices[0], weights_);
    place_own_weights(target_, first, weights_);
  }

  const ggml::gguf::File& file_;
  const ModelParams& params_;
  const LoadTarget& target_;
  ModelWeights& weights_;
  std::vector<Loaded> tensors_;
  std::vector<ggml::Weight*> merged_;  // in the order of target_.merged
  std::vector<std::string> problems_;
  std::optional<Repacking> repacking_;
};

}  // namespace

void note_bad_values(const ggml::Weight& weight, const std::byte* data, std::vector<std::string>& problems) {
  const std::size_t stride = ggml::row_bytes(weight.type, weight.shape[0]);
  const std::int64_t together = ggml::type_info(weight.type).rows_per_group;
  for (std::int64_t row = 0; row < weight.shape.rows(); row += together) {
    const auto block =
        ggml::find_bad_block(weight.type, data + static_cast<std::size_t>(row) * stride, weight.shape[0]);
    if (!block) continue;
    problems.push_back(strf("%s: NaN or infinity in row %lld, block %lld", weight.name.c_str(),
                            static_cast<long long>(row), static_cast<long long>(*block)));
    return;
  }
}

void place_own_weights(const LoadTarget& target, std::size_t first, ModelWeights& weights) {
  if (weights.tensors.size() == first) return;
  WeightPlaces places(target.plan, weights);
  places.leave_unsupported(target.devices);
  DeviceMemory memory(target.devices, places, first, weights);
  for (std::size_t i = first; i < weights.tensors.size(); ++i) {
    ggml::Weight& weight = weights.tensors[i];
    if (!memory.is_on_host(weight)) weight.placements.front().role = ggml::PlacementRole::cache;
    memory.load(weight, weight.placements.front().data);
  }
}

void load_weights(const ggml::gguf::File& file, std::span<const TensorMatch> matches, const ModelParams& params,
                  const LoadTarget& target, const LoadProgress& progress, ModelWeights& weights) {
  Loading(file, params, target, weights).run(matches, progress);
}

void outline_weights(std::span<const TensorMatch> matches, std::span<const MergedTensor> merged,
                     ModelWeights& weights) {
  for (const TensorMatch& match : matches) place(add_weight(weights, match), nullptr, ggml::BufferKind::mapping);
  for (const MergedTensor& tensor : merged)
    place(add_weight(weights, tensor), nullptr, ggml::BufferKind::host_pageable);
}

}  // namespace llama
