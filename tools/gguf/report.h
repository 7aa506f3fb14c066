#pragma once

#include <cstdio>
#include <string>

#include "ggml/gguf.h"
#include "value_text.h"

namespace gguf_tool {

/// Prints container facts, metadata, tensors and totals per type in aligned columns.
void print_report(const ggml::gguf::File& file, Detail detail, std::FILE* out);

/// The same, complete, as one JSON object: files, metadata {key: {type, value}}, tensors, types.
[[nodiscard]] std::string json_report(const ggml::gguf::File& file);

/// Sums over the tensors of one type, in order of first occurrence.
struct TypeTotal {
  ggml::DType type = ggml::DType::f32;
  std::size_t tensors = 0;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
};
[[nodiscard]] std::vector<TypeTotal> totals_per_type(const ggml::gguf::File& file);

}  // namespace gguf_tool
