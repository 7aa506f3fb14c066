#include "copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "common/log/progress.h"
#include "ggml/error.h"

namespace gguf_split {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{8} << 20;
constexpr double kMega = 1e6;

void check_room(const std::string& output, std::uint64_t wanted) {
  const std::filesystem::path folder = std::filesystem::absolute(output).parent_path();
  std::error_code failed;
  const std::filesystem::space_info space = std::filesystem::space(folder, failed);
  // A folder that does not exist, or one of no size such as /proc, is the writer's error.
  if (failed || space.capacity == 0 || wanted <= space.available) return;
  throw ggml::Error(ggml::ErrorCode::exceeds_limit,
                    fmt::format("{} needs {:.1f} MB, {:.1f} MB are free", output, static_cast<double>(wanted) / kMega,
                                static_cast<double>(space.available) / kMega));
}

}  // namespace

ggml::gguf::SplitModel describe(const ggml::gguf::File& file) {
  ggml::gguf::SplitModel model;
  model.metadata = file.metadata();
  for (const ggml::gguf::TensorInfo& tensor : file.tensors())
    model.tensors.push_back({tensor.name, tensor.type, tensor.shape});
  return model;
}

void copy_model(const ggml::gguf::File& source, ggml::gguf::SplitWriter& writer, const std::atomic<bool>& stop) {
  std::vector<ggml::gguf::Reader> readers;
  readers.reserve(source.shards().size());
  for (const ggml::gguf::Shard& shard : source.shards())
    readers.emplace_back(shard.path, ggml::gguf::ReadMode::buffered);
  check_room(writer.paths().front(), writer.total_bytes());
  std::uint64_t total = 0;
  for (const ggml::gguf::TensorInfo& tensor : source.tensors()) total += tensor.bytes;

  common::Progress progress("copying", static_cast<std::int64_t>(total), common::Progress::Unit::bytes);
  std::vector<std::byte> buffer(kBufferBytes);
  std::int64_t done = 0;
  for (const ggml::gguf::TensorInfo& tensor : source.tensors()) {
    for (std::uint64_t at = 0; at < tensor.bytes;) {
      if (stop) {
        throw ggml::Error(ggml::ErrorCode::cancelled, writer.paths().front() + ": stopped, nothing was kept");
      }
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(tensor.bytes - at, buffer.size()));
      const std::span<std::byte> bytes = std::span(buffer).first(n);
      readers[tensor.shard].read(tensor.offset + at, bytes);
      writer.write(bytes);
      at += n;
      done += static_cast<std::int64_t>(n);
      progress.update(done);
    }
  }
  progress.finish();
  writer.finish();
}

}  // namespace gguf_split
