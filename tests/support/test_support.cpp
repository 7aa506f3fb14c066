#include "test_support.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace tandem {
namespace {

/// The text between the quotes or brackets that follow `key` in a numpy header such as {'descr': '<f4', 'shape': (2,
/// 3), }.
std::string header_field(const std::string& header, const std::string& key, char open, char close) {
  const std::size_t at = header.find("'" + key + "'");
  const std::size_t begin = header.find(open, header.find(':', at)) + 1;
  return header.substr(begin, header.find(close, begin) - begin);
}

template <class T, class From>
void append_as(std::vector<T>& out, const std::vector<std::byte>& bytes) {
  for (std::size_t i = 0; i + sizeof(From) <= bytes.size(); i += sizeof(From)) {
    From value;
    std::memcpy(&value, bytes.data() + i, sizeof(From));
    out.push_back(static_cast<T>(value));
  }
}

template <class T>
std::vector<T> convert(const Npy& array) {
  std::vector<T> out;
  if (array.dtype == "<f4") {
    append_as<T, float>(out, array.bytes);
  } else if (array.dtype == "<f8") {
    append_as<T, double>(out, array.bytes);
  } else {
    throw std::runtime_error("not a float array: " + array.dtype);
  }
  return out;
}

}  // namespace

bool is_sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return true;
#else
  return false;
#endif
#else
  return false;
#endif
}

int rounds(int n) {
  return is_sanitized() ? std::max(1, n / 10) : n;
}

std::optional<std::filesystem::path> shared_dir() {
  const char* given = std::getenv("TANDEM_SHARED");
  const std::filesystem::path path = given != nullptr ? given : "../shared";
  if (!std::filesystem::is_directory(path / "data")) return std::nullopt;
  return path;
}

std::filesystem::path data_dir() {
  return "tests/data";
}

std::string load_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void save_bytes(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

Npy load_npy(const std::filesystem::path& path) {
  const std::string text = load_text(path);
  if (text.size() < 12 || text.compare(0, 6, "\x93NUMPY") != 0)
    throw std::runtime_error("not a npy file: " + path.string());
  const bool wide = text[6] >= 2;  // format 2 has a four-byte header length
  std::uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, text.data() + 8, wide ? 4 : 2);
  const std::size_t header_at = wide ? 12 : 10;
  const std::string header = text.substr(header_at, header_bytes);

  Npy array;
  array.dtype = header_field(header, "descr", '\'', '\'');
  const std::string extents = header_field(header, "shape", '(', ')');
  for (std::size_t at = 0; at < extents.size();) {
    if (extents[at] < '0' || extents[at] > '9') {
      ++at;
      continue;
    }
    std::size_t used = 0;
    array.shape.push_back(std::stoll(extents.substr(at), &used));
    at += used;
  }
  array.bytes.resize(text.size() - header_at - header_bytes);
  std::memcpy(array.bytes.data(), text.data() + header_at + header_bytes, array.bytes.size());
  return array;
}

std::vector<float> Npy::floats() const {
  return convert<float>(*this);
}
std::vector<double> Npy::doubles() const {
  return convert<double>(*this);
}

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "tandem-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot create a folder in " + pattern);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tandem
