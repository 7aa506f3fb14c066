#include "split_plan.h"

#include <limits>

#include "ggml/split_writer.h"

namespace gguf_split {
namespace {

constexpr int kDefaultTensors = 128;

/// Bytes of the model's metadata in a file without tensors.
std::uint64_t header_bytes(const ggml::gguf::File& file) {
  ggml::gguf::SplitModel model;
  model.metadata = file.metadata();
  model.part_tensors = {0};
  return ggml::gguf::SplitWriter("x", model).total_bytes();
}

/// Bytes that a tensor takes in a file: its entry in the list, and its data with their padding.
std::uint64_t bytes_in_file(const ggml::gguf::TensorInfo& tensor, std::uint64_t alignment) {
  constexpr std::uint64_t kEntry = 8 + 4 + 4 + 8;  // length of the name, dimensions, type, offset
  const std::uint64_t entry = kEntry + tensor.name.size() + 8 * static_cast<std::uint64_t>(tensor.shape.dims());
  return entry + (tensor.bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

std::vector<std::size_t> plan_parts(const ggml::gguf::File& file, const common::GgufSplitSettings& wanted) {
  const auto max_tensors = static_cast<std::size_t>(
      wanted.max_tensors.value_or(wanted.max_bytes ? std::numeric_limits<int>::max() : kDefaultTensors));
  const std::uint64_t max_bytes = wanted.max_bytes.value_or(std::numeric_limits<std::uint64_t>::max());
  const std::uint64_t alignment = file.shards().front().alignment;
  // Keys of a later part, its counts and the padding of its header.
  const std::uint64_t small_header = 256 + alignment;

  std::vector<std::size_t> parts = {0};
  std::uint64_t bytes = header_bytes(file) + alignment;
  bool closed = !wanted.tensors_in_first;
  for (const ggml::gguf::TensorInfo& tensor : file.tensors()) {
    const std::uint64_t more = bytes_in_file(tensor, alignment);
    const bool full = parts.back() > 0 && (parts.back() >= max_tensors || more > max_bytes || bytes > max_bytes - more);
    if (closed || full) {
      parts.push_back(0);
      bytes = small_header;
      closed = false;
    }
    ++parts.back();
    bytes += more;
  }
  return parts;
}

}  // namespace gguf_split
