#pragma once

#include <compare>
#include <cstdint>

namespace ggml {

/// A number that cannot be mixed up with another kind of number. Strong ids at every interface, raw integers only in
/// loops.
template <class Tag>
struct Id {
  std::int32_t v = -1;
  constexpr Id() = default;
  constexpr explicit Id(std::int32_t value) : v(value) {}
  [[nodiscard]] constexpr bool valid() const { return v >= 0; }
  friend constexpr auto operator<=>(Id, Id) = default;
};

}  // namespace ggml
