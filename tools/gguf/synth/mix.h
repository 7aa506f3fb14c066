#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ggml/type.h"

namespace gguf_tool {

/// The types of a quantisation mix by name: some may have no row in types.def (yet).
struct Mix {
  std::string_view name;
  std::string_view weights;
  std::string_view high;  // attn_v and half of the ffn_down
  std::string_view head;
  std::string_view embedding;
  std::uint32_t file_type = 0;
};

[[nodiscard]] std::span<const Mix> mixes();
/// Throws ggml::Error(invalid_argument) with the nearest name when there is none of this one.
[[nodiscard]] const Mix& find_mix(std::string_view name);

/// Whether every type of the mix can be written in this version.
[[nodiscard]] bool can_write(const Mix& mix);

/// `type`, or what replaces it where rows of `row` elements are not whole blocks, or `rows` of them no whole groups.
/// Throws ggml::Error(unsupported) naming the type when it cannot be written.
[[nodiscard]] ggml::DType type_for_matrix(std::string_view type, std::int64_t row, std::int64_t rows);

}  // namespace gguf_tool
