#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "common/args/option.h"

namespace common {

/// CPUs of a mask in hexadecimal digits ("0xf0", "ff"), lowest first; nothing for another text or an empty mask.
[[nodiscard]] std::optional<std::vector<int>> parse_cpu_mask(std::string_view text);
/// The same for the value of an option; throws the error for another text.
[[nodiscard]] std::vector<int> to_cpu_mask(const Argument& argument);
/// CPUs of an inclusive range "lo-hi"; either end may be missing ("-3" starts at 0, "4-" ends at the last CPU).
[[nodiscard]] std::optional<std::vector<int>> parse_cpu_range(std::string_view text);
/// CPUs that the system has, at least 1.
[[nodiscard]] int hardware_threads();

}  // namespace common
