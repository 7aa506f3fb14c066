#include "common/args/cpu_list.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <thread>

namespace common {
namespace {

constexpr int kMaxCpus = 4096;

std::optional<int> parse_cpu(std::string_view text) {
  int cpu = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), cpu);
  if (failure != std::errc() || end != text.data() + text.size() || cpu < 0 || cpu >= kMaxCpus) return std::nullopt;
  return cpu;
}

}  // namespace

std::optional<std::vector<int>> parse_cpu_mask(std::string_view text) {
  if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
  if (text.empty() || text.size() > kMaxCpus / 4) return std::nullopt;
  std::vector<int> cpus;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view digit = text.substr(text.size() - 1 - i, 1);
    int bits = 0;
    const auto [end, failure] = std::from_chars(digit.data(), digit.data() + 1, bits, 16);
    if (failure != std::errc() || end != digit.data() + 1) return std::nullopt;
    for (int bit = 0; bit < 4; ++bit)
      if ((bits >> bit & 1) != 0) cpus.push_back(static_cast<int>(i) * 4 + bit);
  }
  if (cpus.empty()) return std::nullopt;
  return cpus;
}

std::vector<int> to_cpu_mask(const Argument& argument) {
  const std::optional<std::vector<int>> cpus = parse_cpu_mask(argument.value());
  if (!cpus) bad_value(argument, "a CPU mask in hexadecimal such as 0xff");
  return *cpus;
}

std::optional<std::vector<int>> parse_cpu_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos || text.size() < 2) return std::nullopt;
  const std::optional<int> first = dash == 0 ? std::optional<int>(0) : parse_cpu(text.substr(0, dash));
  const std::optional<int> last =
      dash + 1 == text.size() ? std::optional<int>(hardware_threads() - 1) : parse_cpu(text.substr(dash + 1));
  if (!first || !last || *first > *last) return std::nullopt;
  std::vector<int> cpus;
  for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  return cpus;
}

int hardware_threads() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace common
