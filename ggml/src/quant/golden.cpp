#include "quant/golden.h"

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

std::vector<DType> types() {
  std::vector<DType> out;
  for (int i = 0; i < kTypeCount; ++i) {
    const TypeInfo& info = type_info(static_cast<DType>(i));
    if (std::filesystem::exists(path(std::string(info.id) + ".plain.q.npy"))) out.push_back(info.type);
  }
  return out;
}

}  // namespace ggml::golden
