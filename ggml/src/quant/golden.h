#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ggml/type.h"

/// The golden vectors of tests/data/quants, shared by the tests of the codecs and of the kernels.
namespace ggml::golden {

inline constexpr std::int64_t kRows = 16;
inline constexpr std::int64_t kCols = 512;

/// "main" or "edge": 16 rows of 512.
[[nodiscard]] std::vector<float> input(const std::string& name);
[[nodiscard]] std::vector<float> floats(const std::string& file);
[[nodiscard]] std::vector<std::byte> bytes(const std::string& file);
/// The numbers behind "type case key" in expected.txt (rmse: plain and weighted; dot_...: one per row); empty if none.
[[nodiscard]] std::vector<double> expected(const std::string& type, const std::string& which, const std::string& key);
/// What row_hash() of each decoded row has to be; empty if the case does not exist.
[[nodiscard]] std::vector<std::uint64_t> row_hashes(const std::string& type, const std::string& which);
/// FNV-1a of 64 bits over the bits of `n` floats.
[[nodiscard]] std::uint64_t row_hash(const float* row, std::int64_t n);
/// The weight types that have golden vectors.
[[nodiscard]] std::vector<DType> types();

}  // namespace ggml::golden
