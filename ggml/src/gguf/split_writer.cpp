#include "ggml/split_writer.h"

#include <unistd.h>

#include <numeric>

#include "ggml/error.h"
#include "ggml/log.h"

namespace ggml::gguf {
namespace {

constexpr const char* kNumber = "split.no";
constexpr const char* kCount = "split.count";
constexpr const char* kTensors = "split.tensors.count";
constexpr const char* kAlignment = "general.alignment";

/// Metadata of one part: the first holds the model's, the others only what the container needs.
Metadata part_metadata(const SplitModel& model, std::size_t number, std::size_t count) {
  Metadata out;
  if (number == 0) {
    out = model.metadata;
  } else if (const Value* alignment = model.metadata.find(kAlignment)) {
    out.set(kAlignment, *alignment);
  }
  for (const char* key : {kNumber, kCount, kTensors}) out.erase(key);
  if (model.part_tensors.empty()) return out;
  out.set_u16(kNumber, static_cast<std::uint16_t>(number));
  out.set_u16(kCount, static_cast<std::uint16_t>(count));
  out.set_i32(kTensors, static_cast<std::int32_t>(model.tensors.size()));
  return out;
}

}  // namespace

SplitWriter::SplitWriter(const std::string& path, const SplitModel& model) {
  const bool split = !model.part_tensors.empty();
  const std::size_t count = split ? model.part_tensors.size() : 1;
  if (count > kMaxSplitParts) {
    throw Error(ErrorCode::invalid_argument,
                strf("%s would be split into %zu files, at most %zu are possible", path.c_str(), count, kMaxSplitParts),
                "allow more tensors or bytes per file");
  }
  TANDEM_ASSERT(!split || std::accumulate(model.part_tensors.begin(), model.part_tensors.end(), std::size_t{0}) ==
                              model.tensors.size(),
                "the parts hold all tensors");
  std::size_t next = 0;
  for (std::size_t number = 0; number < count; ++number) {
    paths_.push_back(split ? path + part_suffix(static_cast<std::int64_t>(number), static_cast<std::int64_t>(count))
                           : path);
    auto writer = std::make_unique<Writer>(paths_.back());
    writer->metadata = part_metadata(model, number, count);
    std::uint64_t bytes = 0;
    for (std::size_t n = split ? model.part_tensors[number] : model.tensors.size(); n > 0; --n, ++next) {
      const OutputTensor& tensor = model.tensors[next];
      writer->add_tensor(tensor.name, tensor.type, tensor.shape);
      bytes += tensor_bytes(tensor.type, tensor.shape);
    }
    part_bytes_.push_back(bytes);
    parts_.push_back(std::move(writer));
  }
}

SplitWriter::~SplitWriter() = default;

std::uint64_t SplitWriter::total_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& part : parts_) bytes += part->file_bytes();
  return bytes;
}

void SplitWriter::begin_part() {
  TANDEM_ASSERT(begun_ < parts_.size(), "more data than the model has");
  parts_[begun_]->begin_data();
  missing_ = part_bytes_[begun_];
  ++begun_;
}

void SplitWriter::write(std::span<const std::byte> data) {
  while (begun_ == 0 || missing_ == 0) begin_part();
  parts_[begun_ - 1]->write(data);
  missing_ -= data.size();
}

void SplitWriter::finish() {
  while (begun_ < parts_.size()) {
    if (begun_ > 0 && missing_ > 0) throw Error(ErrorCode::internal, paths_[begun_ - 1] + ": data are missing");
    begin_part();
  }
  std::size_t finished = 0;
  try {
    for (; finished < parts_.size(); ++finished) parts_[finished]->finish();
  } catch (...) {
    // Some parts have their names, but together they are no model.
    for (std::size_t i = 0; i < finished; ++i) ::unlink(paths_[i].c_str());
    throw;
  }
}

}  // namespace ggml::gguf
