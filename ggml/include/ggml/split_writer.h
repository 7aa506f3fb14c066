#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ggml/gguf.h"

namespace ggml::gguf {

/// The most parts a split model may have: their number is a u16.
inline constexpr std::size_t kMaxSplitParts = 65535;

/// "-00001-of-00003.gguf" for part 0 of 3: what stands behind the prefix in the names of a split model's files.
[[nodiscard]] std::string part_suffix(std::int64_t number, std::int64_t count);

struct OutputTensor {
  std::string name;
  DType type = DType::f32;
  Shape shape;
};

/// What a SplitWriter is to write.
struct SplitModel {
  Metadata metadata;  // of the whole model; split.* keys are replaced, or removed from a single file
  std::vector<OutputTensor> tensors;
  /// Tensors of each part, in order, adding up to all of them; empty: one file that is not split.
  std::vector<std::size_t> part_tensors;
};

/// Writes one model as one file or as the parts of a split one. No file has its final name before all are complete:
/// until finish() each is NAME.part, and all are removed if the writer dies early or a write fails.
/// Thread-compatible. Errors as Writer's.
class SplitWriter {
 public:
  /// `path` of the file; of a split model the prefix of its parts' names.
  SplitWriter(const std::string& path, const SplitModel& model);
  ~SplitWriter();
  SplitWriter(const SplitWriter&) = delete;
  SplitWriter& operator=(const SplitWriter&) = delete;

  [[nodiscard]] std::span<const std::string> paths() const noexcept { return paths_; }
  /// Bytes that each file, and all files together, will have.
  [[nodiscard]] std::uint64_t file_bytes(std::size_t part) const { return parts_[part]->file_bytes(); }
  [[nodiscard]] std::uint64_t total_bytes() const;

  /// Appends data of the current tensor, as Writer::write(); goes on to the next file by itself.
  void write(std::span<const std::byte> data);
  /// Completes all files and gives them their names.
  void finish();

 private:
  void begin_part();

  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<Writer>> parts_;
  std::vector<std::uint64_t> part_bytes_;  // of tensor data
  std::size_t begun_ = 0;                  // parts whose header is written
  std::uint64_t missing_ = 0;              // data bytes of the current part that are to come
};

}  // namespace ggml::gguf
