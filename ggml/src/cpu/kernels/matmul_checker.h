#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cpu/kernels/kernels.h"

/// Runs one matrix product of a table and compares it with plain double arithmetic over the decoded operands. Part of
/// the tests; the mutation tests prove that it notices wrong kernels.
namespace ggml::cpu::check {

struct Product {
  DType type = DType::f32;
  std::int64_t k = 0, n = 1, m = 1;
  std::int64_t n0 = 0;    // rows [n0, n) are computed
  bool indirect = false;  // through src_rows and dst_rows
  std::uint32_t seed = 1;
};

/// Random weights of a type as bytes, in [-1, 1] times a scale per row, encoded by the plain quantiser.
[[nodiscard]] std::vector<std::byte> random_weights(DType type, std::int64_t k, std::int64_t n, std::uint32_t seed);
[[nodiscard]] std::vector<float> random_floats(std::int64_t count, std::uint32_t seed, float spread = 1);

/// Empty when every element of dst is within `bound` times sum |w x| of the expectation, which is exact but for the
/// rounding of activations that the type's partner form prescribes; else the first fault in words.
[[nodiscard]] std::string fault_of(const KernelTable& table, const Product& product, double bound = 1e-5);

}  // namespace ggml::cpu::check
