// The older format of importance matrices: i32 entries; for each i32 length, name, i32 calls, i32 values, f32 values
// (mean square times calls); then, in newer files, i32 chunks, i32 length and the name of the text. No magic.
#include "quantize/importance_legacy.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "ggml/quoted.h"

namespace llama {
namespace {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

constexpr std::int32_t kMaxTensorName = 63;  // as in GGUF
constexpr std::int32_t kMaxTextName = 1 << 12;
constexpr float kMostCalls = 1 << 30;  // an exact float within i32

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::invalid_file, path + ": is no importance matrix: " + why,
              "give a file that llama-imatrix wrote");
}

/// Reads numbers one after the other and never past the end.
class Cursor {
 public:
  explicit Cursor(const std::string& path) : reader_(path, ggml::gguf::ReadMode::buffered) {}
  [[nodiscard]] std::uint64_t left() const { return reader_.file_bytes() - at_; }
  void read(void* dst, std::uint64_t bytes) {
    if (bytes > left()) refuse(reader_.path(), strf("it ends at byte %llu, in the middle of an entry", at()));
    reader_.read(at_, {static_cast<std::byte*>(dst), static_cast<std::size_t>(bytes)});
    at_ += bytes;
  }
  std::int32_t number() {
    std::int32_t value = 0;
    read(&value, sizeof(value));
    return value;
  }
  [[nodiscard]] unsigned long long at() const { return at_; }

 private:
  ggml::gguf::Reader reader_;
  std::uint64_t at_ = 0;
};

std::string read_text(Cursor& cursor, const std::string& path, std::int32_t longest) {
  const std::int32_t length = cursor.number();
  if (length <= 0 || length > longest) refuse(path, strf("a name of %d bytes at byte %llu", length, cursor.at()));
  std::string name(static_cast<std::size_t>(length), '\0');
  cursor.read(name.data(), name.size());
  return name;
}

std::string read_name(Cursor& cursor, const std::string& path) {
  std::string name = read_text(cursor, path, kMaxTensorName);
  if (name.find('\0') != std::string::npos) refuse(path, ggml::gguf::quoted(name) + " is no name");
  return name;
}

/// The file has one number of calls per weight; values are means times it.
ImportanceMatrix::Entry read_entry(Cursor& cursor, const std::string& path, const std::string& name) {
  const std::int32_t calls = cursor.number();
  const std::int32_t n_values = cursor.number();
  if (n_values <= 0 || static_cast<std::uint64_t>(n_values) > cursor.left() / sizeof(float))
    refuse(path, strf("%s has %d values", ggml::gguf::quoted(name).c_str(), n_values));
  ImportanceMatrix::Entry entry;
  entry.columns = n_values;
  entry.square_sums.resize(static_cast<std::size_t>(n_values));
  cursor.read(entry.square_sums.data(), entry.square_sums.size() * sizeof(float));
  for (const float value : entry.square_sums)
    if (!(value >= 0) || !std::isfinite(value))
      refuse(path, strf("%s holds %g; sums are finite and not negative", ggml::gguf::quoted(name).c_str(),
                        static_cast<double>(value)));
  entry.counts = {calls > 0 ? static_cast<float>(calls) : 1.0F};
  return entry;
}

void append(std::string& out, const void* data, std::size_t bytes) {
  out.append(static_cast<const char*>(data), bytes);
}

void append_number(std::string& out, std::int64_t value) {
  const auto number = static_cast<std::int32_t>(value);
  append(out, &number, sizeof(number));
}

void append_text(std::string& out, const std::string& text) {
  append_number(out, static_cast<std::int64_t>(text.size()));
  out += text;
}

void write_file(const std::string& path, const std::string& bytes) {
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0) {
    const std::string reason = std::strerror(errno);  // NOLINT(concurrency-mt-unsafe): one thread writes
    ::unlink(part.c_str());
    throw Error(ErrorCode::io, path + ": cannot write: " + reason);
  }
}

}  // namespace

ImportanceMatrix load_legacy_importance(const std::string& path) {
  Cursor cursor(path);
  const std::int32_t n_entries = cursor.number();
  if (n_entries <= 0) refuse(path, strf("%d entries", n_entries));
  ImportanceMatrix out;
  for (std::int32_t i = 0; i < n_entries; ++i) {
    const std::string name = read_name(cursor, path);
    if (!out.entries.emplace(name, read_entry(cursor, path, name)).second)
      refuse(path, ggml::gguf::quoted(name) + " is there twice");
  }
  if (cursor.left() >= sizeof(std::int32_t)) out.chunks = std::max(0, cursor.number());
  if (cursor.left() > sizeof(std::int32_t)) out.datasets = {read_text(cursor, path, kMaxTextName)};
  return out;
}

void ImportanceMatrix::save_legacy(const std::string& path) const {
  std::string out;
  const auto reached = [](const auto& row) {
    return std::any_of(row.second.counts.begin(), row.second.counts.end(), [](float count) { return count > 0; });
  };
  append_number(out, std::count_if(entries.begin(), entries.end(), reached));
  for (const auto& row : entries) {
    if (!reached(row)) continue;
    const Entry& entry = row.second;
    // The number of calls scales all values of an entry alike; its size only says how a merge weighs them, so it may be
    // less than it was where the format's i32, or the products, have no room for it.
    std::vector<float> values = means(entry);
    const float greatest = std::max(1.0F, *std::max_element(values.begin(), values.end()));
    // Half of what there is: quotient and product are rounded, and must not meet beyond the greatest number.
    const float room = std::min(kMostCalls, std::numeric_limits<float>::max() / 2 / greatest);
    const float count = *std::max_element(entry.counts.begin(), entry.counts.end());
    const float calls = std::floor(std::clamp(count, 1.0F, std::max(1.0F, room)));
    for (float& value : values) value *= calls;
    append_text(out, row.first);
    append_number(out, static_cast<std::int64_t>(calls));
    append_number(out, static_cast<std::int64_t>(values.size()));
    append(out, values.data(), values.size() * sizeof(float));
  }
  append_number(out, chunks);
  const std::string text = datasets.empty() ? std::string() : datasets.front().substr(0, kMaxTextName);
  append_text(out, text.empty() ? "unknown" : text);  // the format has no empty names
  write_file(path, out);
}

}  // namespace llama
