#include "llama/sampling_ranges.h"

#include <algorithm>
#include <cmath>

#include "ggml/error.h"
#include "ggml/log.h"

namespace llama {

using ggml::strf;

namespace {

// Beyond it float arithmetic on logits overflows here and there; nobody needs it.
constexpr double kFar = 1e9;
constexpr std::int64_t kMaxInt = 2147483647;

constexpr RealParam kReals[] = {
    {"temperature", &SamplingParams::temperature, -kFar, kFar},
    {"dynatemp_range", &SamplingParams::dynatemp_range, -kFar, kFar},
    {"dynatemp_exponent", &SamplingParams::dynatemp_exponent, -kFar, kFar},
    {"top_p", &SamplingParams::top_p, 0, 1},
    {"min_p", &SamplingParams::min_p, 0, 1},
    {"typical_p", &SamplingParams::typical_p, 0, 1},
    {"top_n_sigma", &SamplingParams::top_n_sigma, -kFar, kFar},
    {"tfs_z", &SamplingParams::tfs_z, 0, 1},
    {"xtc_probability", &SamplingParams::xtc_probability, 0, 1},
    {"xtc_threshold", &SamplingParams::xtc_threshold, 0, 1},
    // Logits are divided by it: next to nothing would make them infinite.
    {"repeat_penalty", &SamplingParams::repeat_penalty, 1e-6, kFar, true},
    {"frequency_penalty", &SamplingParams::frequency_penalty, -kFar, kFar},
    {"presence_penalty", &SamplingParams::presence_penalty, -kFar, kFar},
    {"dry_multiplier", &SamplingParams::dry_multiplier, 0, kFar},
    {"dry_base", &SamplingParams::dry_base, -kFar, kFar},
    {"mirostat_tau", &SamplingParams::mirostat_tau, 0, kFar},
    {"mirostat_eta", &SamplingParams::mirostat_eta, 0, kFar},
    {"adaptive_target", &SamplingParams::adaptive_target, -1, 1},
    {"adaptive_decay", &SamplingParams::adaptive_decay, 0, 1},
};

constexpr WholeParam kWholes[] = {
    {"top_k", &SamplingParams::top_k, -kMaxInt, kMaxInt},
    {"repeat_last_n", &SamplingParams::penalty_last_n, -1, kMaxInt},
    {"dry_allowed_length", &SamplingParams::dry_allowed_length, 0, kMaxInt},
    {"dry_penalty_last_n", &SamplingParams::dry_penalty_last_n, -1, kMaxInt},
    {"mirostat", &SamplingParams::mirostat, 0, 2},
    {"min_keep", &SamplingParams::min_keep, 0, kMaxInt},
};

template <class Param>
const Param& find(std::span<const Param> table, std::string_view name) {
  const auto it = std::find_if(table.begin(), table.end(), [name](const Param& p) { return p.name == name; });
  TANDEM_ASSERT(it != table.end(), "a sampling parameter that is in no table");
  return *it;
}

/// 1e9 and not 1e+09.
std::string number_text(double value) {
  std::string text = strf("%g", value);
  const std::size_t e = text.find('e');
  if (e == std::string::npos) return text;
  if (text[e + 1] == '+') text.erase(e + 1, 1);
  const std::size_t digits = text[e + 1] == '-' ? e + 2 : e + 1;
  while (text[digits] == '0') text.erase(digits, 1);
  return text;
}

}  // namespace

std::span<const RealParam> real_params() {
  return kReals;
}
std::span<const WholeParam> whole_params() {
  return kWholes;
}
const RealParam& real_param(std::string_view name) {
  return find(real_params(), name);
}
const WholeParam& whole_param(std::string_view name) {
  return find(whole_params(), name);
}

bool allows(const RealParam& param, double value) {
  if (!(std::abs(value) <= 2 * kFar)) return false;
  const auto number = static_cast<float>(value);
  if (param.zero_is_off && number == 0.0f) return true;
  return number >= static_cast<float>(param.least) && number <= static_cast<float>(param.most);
}

bool allows(const WholeParam& param, std::int64_t value) {
  return value >= param.least && value <= param.most;
}

std::string range_text(const RealParam& param) {
  return std::string(param.zero_is_off ? "0 (off) or " : "") + "a number from " + number_text(param.least) + " to " +
         number_text(param.most);
}

std::string range_text(const WholeParam& param) {
  const auto least = static_cast<long long>(param.least);
  if (param.most < kMaxInt) return strf("a whole number from %lld to %lld", least, static_cast<long long>(param.most));
  if (param.least > -kMaxInt) return strf("a whole number of at least %lld", least);
  return strf("a whole number from %lld to %lld", least, static_cast<long long>(param.most));
}

}  // namespace llama
