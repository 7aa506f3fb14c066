#include "quant/golden.h"

#include <bit>
#include <filesystem>
#include <sstream>

#include "test_support.h"

namespace ggml::golden {
namespace {

std::filesystem::path path(const std::string& file) {
  return tandem::data_dir() / "quants" / file;
}

}  // namespace

std::vector<float> input(const std::string& name) {
  return floats("input_" + name + ".npy");
}

std::vector<float> floats(const std::string& file) {
  return tandem::load_npy(path(file)).floats();
}

std::vector<std::byte> bytes(const std::string& file) {
  return tandem::load_npy(path(file)).bytes;
}

std::vector<double> expected(const std::string& type, const std::string& which, const std::string& key) {
  std::istringstream lines(tandem::load_text(path("expected.txt")));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string t, c, k;
    words >> t >> c >> k;
    if (t != type || c != which || k != key) continue;
    std::vector<double> values;
    for (double v = 0; words >> v;) values.push_back(v);
    return values;
  }
  return {};
}

std::vector<std::uint64_t> row_hashes(const std::string& type, const std::string& which) {
  std::istringstream lines(tandem::load_text(path("hashes.txt")));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string t, c;
    words >> t >> c;
    if (t != type || c != which) continue;
    std::vector<std::uint64_t> values;
    words >> std::hex;
    for (std::uint64_t v = 0; words >> v;) values.push_back(v);
    return values;
  }
  return {};
}

std::uint64_t row_hash(const float* row, std::int64_t n) {
  constexpr std::uint64_t kStart = 0xcbf29ce484222325, kPrime = 0x100000001b3;
  std::uint64_t hash = kStart;
  for (std::int64_t i = 0; i < n; ++i) hash = (hash ^ std::bit_cast<std::uint32_t>(row[i])) * kPrime;
  return hash;
}

std::vector<DType> types() {
  std::vector<DType> out;
  for (int i = 0; i < kTypeCount; ++i) {
    const TypeInfo& info = type_info(static_cast<DType>(i));
    if (std::filesystem::exists(path(std::string(info.id) + ".plain.q.npy"))) out.push_back(info.type);
  }
  return out;
}

}  // namespace ggml::golden
