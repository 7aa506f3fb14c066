#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ggml/id.h"
#include "ggml/type.h"

namespace ggml {

inline constexpr int kMaxDims = 4;

/// Extents, fastest axis first (ggml's ne-order); missing axes are 1.
struct Shape {
  std::array<std::int64_t, kMaxDims> ne{1, 1, 1, 1};

  constexpr Shape() = default;
  constexpr explicit Shape(std::int64_t n0, std::int64_t n1 = 1, std::int64_t n2 = 1, std::int64_t n3 = 1)
      : ne{n0, n1, n2, n3} {}
  constexpr std::int64_t operator[](int axis) const { return ne[static_cast<std::size_t>(axis)]; }
  constexpr std::int64_t& operator[](int axis) { return ne[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] constexpr std::int64_t elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
  [[nodiscard]] constexpr std::int64_t rows() const { return ne[1] * ne[2] * ne[3]; }
  /// Axes up to the last one that is not 1; at least 1.
  [[nodiscard]] int dims() const;
  /// "4096 x 1024 x 8"
  [[nodiscard]] std::string text() const;
  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

/// Bytes of a contiguous tensor. Pre: checked shape (ne[0] divides by the block, no overflow); readers check first.
[[nodiscard]] std::size_t tensor_bytes(DType type, const Shape& shape) noexcept;

}  // namespace ggml
