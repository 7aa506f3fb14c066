#pragma once

#include <string_view>

namespace common {

/// "0.1.0".
[[nodiscard]] std::string_view build_version() noexcept;
/// Short hash of the commit that was configured, or "unknown" outside a git checkout.
[[nodiscard]] std::string_view build_commit() noexcept;
/// Number of commits up to it, 0 outside a git checkout.
[[nodiscard]] int build_number() noexcept;
/// "GCC 12.2.0", "Clang 14.0.6".
[[nodiscard]] std::string_view build_compiler() noexcept;

}  // namespace common
