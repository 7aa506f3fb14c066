#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "ggml/error.h"
#include "ggml/fill_pipeline.h"
#include "ggml/log.h"
#include "ggml/quant.h"
#include "ggml/quoted.h"
#include "ggml/split_writer.h"
#include "llama/quantize.h"

namespace llama {
namespace {

using ggml::DType;
using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;
using ggml::gguf::File;
using ggml::gguf::TensorInfo;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
/// Weights that one worker decodes at a time: 1 MiB of floats. Searches take seconds per million; a stop is to be
/// noticed soon.
constexpr std::int64_t kChunkWeights = std::int64_t{1} << 18;
constexpr std::uint64_t kCopyBytes = std::uint64_t{8} << 20;

/// A run of rows of one matrix, or a piece of a tensor that is copied.
struct Piece {
  std::size_t tensor = 0;    // index into the plan
  std::uint64_t source = 0;  // copies: offset into the tensor's data; else of the matrix that holds the rows
  std::int64_t row = 0;      // of the matrix
  std::int64_t n_rows = 0;   // 0: copy
  std::int64_t matrix = 0;
  std::size_t bytes = 0;  // of the output
};

/// Cuts a plan into pieces and computes any of them, from any thread.
class PieceMaker {
 public:
  PieceMaker(const File& file, const QuantizePlan& plan) : file_(file), plan_(plan) {
    for (const ggml::gguf::Shard& shard : file.shards()) mappings_.emplace_back(shard.path);
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) cut(i);
  }

  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }

  void make(std::size_t number, std::span<std::byte> dst) {
    const Piece& piece = pieces_[number];
    const TensorInfo& tensor = file_.tensors()[plan_.tensors[piece.tensor].source];
    const std::byte* data = mappings_[tensor.shard].bytes().data() + tensor.offset + piece.source;
    if (piece.n_rows == 0) {
      std::memcpy(dst.data(), data, dst.size());
    } else {
      quantise(piece, tensor, data, dst);
    }
  }

  /// Throws what went wrong in a piece: workers cannot.
  void check() {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty())
      throw Error(ErrorCode::invalid_file, failure_, "convert the model again; --check-tensors finds such weights");
  }

 private:
  void cut(std::size_t index) {
    const TensorChoice& choice = plan_.tensors[index];
    const TensorInfo& tensor = file_.tensors()[choice.source];
    if (choice.type == tensor.type) {
      for (std::uint64_t at = 0; at < tensor.bytes; at += kCopyBytes)
        pieces_.push_back({.tensor = index,
                           .source = at,
                           .row = 0,
                           .n_rows = 0,
                           .matrix = 0,
                           .bytes = static_cast<std::size_t>(std::min(kCopyBytes, tensor.bytes - at))});
      return;
    }
    const std::int64_t k = tensor.shape[0];
    const std::int64_t rows = tensor.shape[1];
    // Whole groups of both types.
    const std::int64_t together =
        std::max(ggml::type_info(choice.type).rows_per_group, ggml::type_info(tensor.type).rows_per_group);
    const std::int64_t at_once = std::max<std::int64_t>(kChunkWeights / k / together, 1) * together;
    const std::uint64_t matrix_bytes = ggml::row_bytes(tensor.type, k) * static_cast<std::uint64_t>(rows);
    for (std::int64_t matrix = 0; matrix < tensor.shape[2] * tensor.shape[3]; ++matrix) {
      for (std::int64_t row = 0; row < rows; row += at_once) {
        const std::int64_t n = std::min(at_once, rows - row);
        pieces_.push_back({.tensor = index,
                           .source = matrix_bytes * static_cast<std::uint64_t>(matrix),
                           .row = row,
                           .n_rows = n,
                           .matrix = matrix,
                           .bytes = ggml::row_bytes(choice.type, k) * static_cast<std::size_t>(n)});
      }
    }
  }

  void quantise(const Piece& piece, const TensorInfo& tensor, const std::byte* matrix, std::span<std::byte> dst) {
    const TensorChoice& choice = plan_.tensors[piece.tensor];
    const auto k = static_cast<std::size_t>(tensor.shape[0]);
    std::vector<float> values(k * static_cast<std::size_t>(piece.n_rows));
    for (std::int64_t i = 0; i < piece.n_rows; ++i) {
      const std::span<float> row = std::span(values).subspan(static_cast<std::size_t>(i) * k, k);
      ggml::dequantise_row_of(tensor.type, matrix, piece.row + i, tensor.shape[0], row.data());
      const auto bad = std::find_if(row.begin(), row.end(), [](float x) { return !std::isfinite(x); });
      if (bad == row.end()) continue;
      fail(strf("tensor %s: row %lld, column %td is %s", ggml::gguf::quoted(tensor.name).c_str(),
                row_of(piece, tensor, i), bad - row.begin(), std::isnan(*bad) ? "NaN" : "infinite"));
      return;
    }
    std::span<const float> importance = choice.importance;
    if (importance.size() > k) importance = importance.subspan(static_cast<std::size_t>(piece.matrix) * k, k);
    ggml::quantise_rows(choice.type, values, tensor.shape[0], importance, dst.data());
    check_result(piece, tensor, choice.type, dst);
  }

  /// A weight too large for the new type's scale (half precision, mostly) is not to be found by a user later.
  void check_result(const Piece& piece, const TensorInfo& tensor, DType type, std::span<const std::byte> dst) {
    const std::int64_t together = ggml::type_info(type).rows_per_group;
    const std::size_t bytes = ggml::row_bytes(type, tensor.shape[0]);
    for (std::int64_t i = 0; i < piece.n_rows; i += together) {
      const std::byte* group = dst.data() + static_cast<std::size_t>(i) * bytes;
      if (!ggml::find_bad_block(type, group, tensor.shape[0])) continue;
      fail(strf("tensor %s: row %lld holds values too large for type %s", ggml::gguf::quoted(tensor.name).c_str(),
                row_of(piece, tensor, i), std::string(ggml::type_info(type).id).c_str()));
      return;
    }
  }

  /// Row `i` of a piece, counted over the whole tensor; for messages.
  static long long row_of(const Piece& piece, const TensorInfo& tensor, std::int64_t i) {
    return piece.matrix * tensor.shape[1] + piece.row + i;
  }

  void fail(std::string why) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = std::move(why);
  }

  const File& file_;
  const QuantizePlan& plan_;
  std::vector<ggml::gguf::Mapping> mappings_;
  std::vector<Piece> pieces_;
  std::mutex mutex_;
  std::string failure_;  // the first one
};

void check_room(const std::string& output, std::uint64_t wanted) {
  const std::filesystem::path folder = std::filesystem::absolute(output).parent_path();
  std::error_code failed;
  const std::filesystem::space_info space = std::filesystem::space(folder, failed);
  // A folder that does not exist, or one of no size such as /proc, is the writer's error.
  if (failed || space.capacity == 0 || wanted <= space.available) return;
  throw Error(ErrorCode::exceeds_limit,
              strf("%s needs %.2f GiB, %.2f GiB are free", output.c_str(), static_cast<double>(wanted) / kGiB,
                   static_cast<double>(space.available) / kGiB),
              "make room, or choose a smaller type");
}

/// The output replaces a file of its name; the input would be lost with it.
void check_not_input(const File& file, std::span<const std::string> outputs) {
  for (const ggml::gguf::Shard& shard : file.shards()) {
    for (const std::string& output : outputs) {
      std::error_code failed;
      if (!std::filesystem::equivalent(shard.path, output, failed)) continue;
      throw Error(ErrorCode::invalid_argument, output + ": input and output are the same file", "give another output");
    }
  }
}

ggml::gguf::SplitModel describe(const File& file, const QuantizePlan& plan) {
  ggml::gguf::SplitModel model;
  model.metadata = plan.metadata;
  model.part_tensors = plan.part_tensors;
  for (const TensorChoice& tensor : plan.tensors)
    model.tensors.push_back({tensor.name, tensor.type, file.tensors()[tensor.source].shape});
  return model;
}

}  // namespace

void write_quantized(const File& file, const QuantizePlan& plan, const std::string& output, int n_threads,
                     const std::function<void(const QuantizeProgress&)>& progress, const std::atomic<bool>& stop) {
  ggml::gguf::SplitWriter writer(output, describe(file, plan));
  check_not_input(file, writer.paths());
  check_room(writer.paths().front(), writer.total_bytes());
  PieceMaker maker(file, plan);
  std::vector<std::size_t> sizes;
  sizes.reserve(maker.pieces().size());
  for (const Piece& piece : maker.pieces()) sizes.push_back(piece.bytes);
  ggml::gguf::FillPipeline pipeline(
      sizes, [&](std::size_t number, std::span<std::byte> dst) { maker.make(number, dst); }, n_threads);
  QuantizeProgress at;
  for (const Piece& piece : maker.pieces()) {
    const std::span<const std::byte> bytes = pipeline.next();
    if (stop) throw Error(ErrorCode::cancelled, output + ": stopped, nothing was kept");
    maker.check();
    writer.write(bytes);
    at.tensor = piece.tensor;
    at.done_bytes += bytes.size();
    progress(at);
  }
  writer.finish();
}

}  // namespace llama
