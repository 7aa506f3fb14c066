#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "llama/sampling.h"

namespace llama {

/// A sampling parameter that is a real number, and what it may be. Its name is that of the request's field.
struct RealParam {
  std::string_view name;
  float SamplingParams::*value;
  double least, most;
  bool zero_is_off = false;  // 0 is allowed although it is below `least`
};
/// A sampling parameter that is a whole number.
struct WholeParam {
  std::string_view name;
  int SamplingParams::*value;
  std::int64_t least, most;
};

/// All of them: the one table by which command lines, requests, model files and the sampler judge numbers. Where a
/// sampler is off at a value and beyond, the range reaches over it as far as that means anything.
[[nodiscard]] std::span<const RealParam> real_params();
[[nodiscard]] std::span<const WholeParam> whole_params();
/// Pre: `name` is in the table.
[[nodiscard]] const RealParam& real_param(std::string_view name);
[[nodiscard]] const WholeParam& whole_param(std::string_view name);

/// Whether the value, as a float, lies in the range; what is no number does not.
[[nodiscard]] bool allows(const RealParam& param, double value);
[[nodiscard]] bool allows(const WholeParam& param, std::int64_t value);
/// "a number from 0 to 1", "0 (off) or a number from 1e-6 to 1e9", "a whole number of at least -1".
[[nodiscard]] std::string range_text(const RealParam& param);
[[nodiscard]] std::string range_text(const WholeParam& param);

/// Sequence breakers of DRY that a request may have.
inline constexpr int kMaxDryBreakers = 1024;

/// Biases of logits: this much at most, any number below, and -infinity, which bans the token.
inline constexpr double kMaxLogitBias = 1e9;

}  // namespace llama
