#pragma once

#include <cstdint>
#include <string>

namespace llama {

/// "30B.A3B", "8B", "1.5B", "135M": all parameters, and with experts those that one token uses.
[[nodiscard]] std::string size_label(std::uint64_t n_params, std::uint64_t n_active);

/// "Q4_K - Medium" for a `general.file_type`; "unknown" with the number for one without a name.
[[nodiscard]] std::string file_type_text(std::uint32_t file_type);

}  // namespace llama
