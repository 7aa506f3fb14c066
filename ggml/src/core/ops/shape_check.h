#pragma once

#include <cstdint>
#include <string>

#include "op_def.h"

/// The checks that shape rules are made of. Each throws an Error that names the node, the operand, what it is and what
/// was expected.
namespace ggml::shape_check {

/// Stands for "any extent" in an expected extent.
inline constexpr std::int64_t kAny = -1;

/// Error(internal) unless the node has between min and max sources and exactly `slots` slots.
void expect_counts(const OpInputs& in, std::size_t min_src, std::size_t max_src, std::size_t slots);
/// Source i as a tensor.
[[nodiscard]] const Tensor& source(const OpInputs& in, std::size_t i, const char* role);
/// Source i as f32 values.
[[nodiscard]] const Tensor& values(const OpInputs& in, std::size_t i, const char* role);
/// Source i as i32 numbers.
[[nodiscard]] const Tensor& integers(const OpInputs& in, std::size_t i, const char* role);
void expect_shape(const OpInputs& in, const Tensor& tensor, const std::string& role, const Shape& expected);
/// `extent` must be `expected`; `role` says which extent of what.
void expect_extent(const OpInputs& in, const Tensor& tensor, const char* role, int axis, std::int64_t expected);
/// A parameter that makes no sense; `what` carries its values.
void require(const OpInputs& in, bool ok, const std::string& what);

/// What a projection must look like: K inputs, N outputs (kAny: whatever the weight has), a stack when experts > 0.
struct MatrixSpec {
  std::int64_t k = kAny;
  std::int64_t n = kAny;
  std::int64_t experts = 0;
  bool is_table = false;  // rows are looked up by id: adapters have the rank first in both matrices
};
/// Checks slot i: weight [K, N(, experts)] of a weight type, bias [N(, experts)] f32, scale [1] or [experts] f32,
/// adapters that fit the weight.
/// Returns N.
std::int64_t matrix(const OpInputs& in, std::size_t i, const char* role, const MatrixSpec& spec);
/// Checks slot i: an f32 vector in `weight` of one of the given shapes, and a bias of the same shape if there is one.
/// A vector has no adapters.
void vector(const OpInputs& in, std::size_t i, const char* role, std::span<const Shape> allowed);

}  // namespace ggml::shape_check
