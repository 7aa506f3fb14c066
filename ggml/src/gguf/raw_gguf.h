#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/error.h"
#include "ggml/gguf.h"

namespace ggml::gguf {

/// Assembles the bytes of a GGUF file piece by piece, right or wrong, for tests.
class RawGguf {
 public:
  RawGguf& number32(std::uint32_t value) { return append(std::as_bytes(std::span(&value, 1))); }
  RawGguf& number64(std::uint64_t value) { return append(std::as_bytes(std::span(&value, 1))); }
  RawGguf& string(std::string_view text) {
    number64(text.size());
    return append(std::as_bytes(std::span(text)));
  }
  RawGguf& header(std::uint64_t n_tensors, std::uint64_t n_keys, std::uint32_t version = 3) {
    append(std::as_bytes(std::span(std::string_view("GGUF"))));
    return number32(version).number64(n_tensors).number64(n_keys);
  }
  RawGguf& key(std::string_view name, ValueType type) {
    return string(name).number32(static_cast<std::uint32_t>(type));
  }
  RawGguf& tensor(std::string_view name, const std::vector<std::uint64_t>& extents, std::uint32_t type,
                  std::uint64_t offset) {
    string(name).number32(static_cast<std::uint32_t>(extents.size()));
    for (const std::uint64_t extent : extents) number64(extent);
    return number32(type).number64(offset);
  }
  RawGguf& pad(std::size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  RawGguf& zeros(std::size_t n) {
    bytes_.resize(bytes_.size() + n);
    return *this;
  }
  RawGguf& append(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] File parse() const { return File::parse(bytes_, "test.gguf"); }

 private:
  std::vector<std::byte> bytes_;
};

inline std::vector<std::byte> file_content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// The error that `call` throws, or an `internal` one that says that there was none.
template <class Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::internal, "no error was thrown"};
}

}  // namespace ggml::gguf
