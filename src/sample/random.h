#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <random>

namespace llama {

/// What std::uniform_real_distribution makes of a 32-bit generator in libstdc++: two outputs for a double, the low word
/// first; one for a float. A result that rounds to 1 becomes the next number below.
inline double draw_double(std::mt19937& generator) {
  const double low = generator();
  const double high = generator();
  const double value = (low + high * 4294967296.0) / 18446744073709551616.0;
  return value < 1.0 ? value : std::nextafter(1.0, 0.0);
}

inline float draw_float(std::mt19937& generator) {
  const float value = static_cast<float>(generator()) / 4294967296.0f;
  return value < 1.0f ? value : std::nextafter(1.0f, 0.0f);
}

/// A generator whose next two numbers can be seen before it is known how many of them are used.
template <class T, T (*draw)(std::mt19937&)>
class LookAhead {
 public:
  explicit LookAhead(std::uint32_t seed) : generator_(seed), next_{draw(generator_), draw(generator_)} {}

  [[nodiscard]] const std::array<T, 2>& next() const { return next_; }
  void use(int n) {
    for (; n > 0; --n) next_ = {next_[1], draw(generator_)};
  }

 private:
  std::mt19937 generator_;
  std::array<T, 2> next_;
};

}  // namespace llama
