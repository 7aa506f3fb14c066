#include "llama/importance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "ggml/quoted.h"
#include "quantize/importance_legacy.h"

namespace llama {
namespace {

using ggml::DType;
using ggml::Error;
using ggml::ErrorCode;
using ggml::Shape;
using ggml::strf;
using ggml::gguf::File;
using ggml::gguf::Reader;
using ggml::gguf::ReadMode;
using ggml::gguf::TensorInfo;

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";
constexpr const char* kDatasets = "imatrix.datasets";
constexpr const char* kChunks = "imatrix.chunk_count";
constexpr const char* kChunkSize = "imatrix.chunk_size";

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::invalid_file, path + ": " + why, "make it anew with llama-imatrix");
}

std::vector<float> read_floats(const Reader& reader, const TensorInfo& tensor) {
  if (tensor.type != DType::f32) fail(reader.path(), ggml::gguf::quoted(tensor.name) + " is not F32");
  std::vector<float> out(static_cast<std::size_t>(tensor.shape.elements()));
  reader.read(tensor.offset, std::as_writable_bytes(std::span(out)));
  for (const float value : out)
    if (!(value >= 0) || !std::isfinite(value))
      fail(reader.path(), strf("%s holds %g; sums and counts are finite and not negative",
                               ggml::gguf::quoted(tensor.name).c_str(), static_cast<double>(value)));
  return out;
}

/// A count that is next to nothing makes a mean beyond all numbers.
void check_means(const std::string& path, const std::string& name, const ImportanceMatrix::Entry& entry) {
  const std::vector<float> means = ImportanceMatrix::means(entry);
  if (!std::all_of(means.begin(), means.end(), [](float mean) { return std::isfinite(mean); }))
    fail(path, ggml::gguf::quoted(name) + " has a sum too large for its count");
}

/// A key that says how much text was read, 0 without it; more than fits the older format is not believed.
std::int64_t read_count(const File& file, const char* key) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  return std::clamp<std::int64_t>(file.metadata().get_integer(key).value_or(0), 0, kMost);
}

ImportanceMatrix load_gguf(const std::string& path) {
  const File file = File::open(path);
  if (const auto type = file.metadata().get_string("general.type"); type && *type != "imatrix")
    fail(path, "general.type is " + ggml::gguf::quoted(*type) + ", not 'imatrix'");
  ImportanceMatrix out;
  const Reader reader(path, ReadMode::buffered);
  for (const TensorInfo& tensor : file.tensors()) {
    if (!tensor.name.ends_with(kSums)) continue;
    const std::string name = tensor.name.substr(0, tensor.name.size() - kSums.size());
    if (name.empty()) fail(path, ggml::gguf::quoted(tensor.name) + " names no weight");
    const TensorInfo* counts = file.find(name + std::string(kCounts));
    if (counts == nullptr) fail(path, ggml::gguf::quoted(name) + " has sums but no counts");
    if (counts->shape.elements() != tensor.shape.rows())
      fail(path, ggml::gguf::quoted(name) + " has " + std::to_string(counts->shape.elements()) + " counts for " +
                     std::to_string(tensor.shape.rows()) + " matrices");
    ImportanceMatrix::Entry& entry = out.entries[name];
    entry = {tensor.shape[0], read_floats(reader, tensor), read_floats(reader, *counts)};
    check_means(path, name, entry);
  }
  if (out.entries.empty()) fail(path, "holds no importance data");
  if (const ggml::gguf::Array* datasets = file.metadata().get_array(kDatasets)) out.datasets = datasets->strings;
  out.chunks = read_count(file, kChunks);
  out.chunk_size = read_count(file, kChunkSize);
  return out;
}

bool is_gguf(const std::string& path) {
  const Reader reader(path, ReadMode::buffered);
  std::array<char, 4> magic{};
  if (reader.file_bytes() < magic.size()) fail(path, "is shorter than any importance matrix");
  reader.read(0, std::as_writable_bytes(std::span(magic)));
  return std::string_view(magic.data(), magic.size()) == "GGUF";
}

}  // namespace

ImportanceMatrix ImportanceMatrix::load(const std::string& path) {
  if (!is_gguf(path)) return load_legacy_importance(path);
  try {
    return load_gguf(path);
  } catch (const Error& error) {  // metadata that is read by key does not know its file
    if (error.message().starts_with(path)) throw;
    throw Error(error.code(), path + ": " + error.message(), error.hint());
  }
}

void ImportanceMatrix::save_gguf(const std::string& path) const {
  ggml::gguf::Writer writer(path);
  writer.metadata.set_string("general.type", "imatrix");
  writer.metadata.set_strings(kDatasets, datasets);
  writer.metadata.set_u32(kChunks, static_cast<std::uint32_t>(chunks));
  writer.metadata.set_u32(kChunkSize, static_cast<std::uint32_t>(chunk_size));
  const auto reached = [](const Entry& entry) {
    return std::any_of(entry.counts.begin(), entry.counts.end(), [](float count) { return count > 0; });
  };
  for (const auto& [name, entry] : entries) {
    if (!reached(entry)) continue;
    writer.add_tensor(name + std::string(kSums), DType::f32, Shape(entry.columns, entry.matrices()));
    writer.add_tensor(name + std::string(kCounts), DType::f32, Shape(1, entry.matrices()));
  }
  writer.begin_data();
  for (const auto& [name, entry] : entries) {
    if (!reached(entry)) continue;
    writer.write(std::as_bytes(std::span(entry.square_sums)));
    writer.write(std::as_bytes(std::span(entry.counts)));
  }
  writer.finish();
}

namespace {

/// Makes the entry of a legacy file, which knows no matrices, look like that of `other` where the sizes allow it.
void divide_like(const ImportanceMatrix::Entry& other, ImportanceMatrix::Entry& entry) {
  const bool legacy =
      entry.matrices() == 1 && other.matrices() > 1 && entry.square_sums.size() == other.square_sums.size();
  if (!legacy) return;
  entry.columns = other.columns;
  entry.counts.assign(other.counts.size(), entry.counts.front());
}

}  // namespace

void ImportanceMatrix::merge(const ImportanceMatrix& other) {
  for (const auto& [name, entry] : other.entries) {
    const auto [at, is_new] = entries.try_emplace(name, entry);
    if (is_new) continue;
    Entry& own = at->second;
    Entry added = entry;
    divide_like(added, own);
    divide_like(own, added);
    if (own.columns != added.columns || own.matrices() != added.matrices()) {
      throw Error(ErrorCode::invalid_argument,
                  strf("%s has %lld x %lld sums in one importance matrix and %lld x %lld in another",
                       ggml::gguf::quoted(name).c_str(), static_cast<long long>(own.columns),
                       static_cast<long long>(own.matrices()), static_cast<long long>(entry.columns),
                       static_cast<long long>(entry.matrices())),
                  "merge matrices of one model only");
    }
    for (std::size_t i = 0; i < own.square_sums.size(); ++i) own.square_sums[i] += added.square_sums[i];
    for (std::size_t i = 0; i < own.counts.size(); ++i) own.counts[i] += added.counts[i];
  }
  for (const std::string& name : other.datasets)
    if (std::find(datasets.begin(), datasets.end(), name) == datasets.end()) datasets.push_back(name);
  chunks += other.chunks;
  chunk_size = std::max(chunk_size, other.chunk_size);
}

std::vector<float> ImportanceMatrix::means(const Entry& entry) {
  std::vector<float> out(entry.square_sums.size());
  for (std::int64_t matrix = 0; matrix < entry.matrices(); ++matrix) {
    const float count = entry.counts[static_cast<std::size_t>(matrix)];
    for (std::int64_t column = 0; column < entry.columns; ++column) {
      const auto at = static_cast<std::size_t>(matrix * entry.columns + column);
      out[at] = count > 0 ? entry.square_sums[at] / count : 1.0F;
    }
  }
  return out;
}

}  // namespace llama
