#include "ggml/type.h"

#include <array>

#include "ggml/error.h"

namespace ggml {
namespace {

constexpr std::array<TypeInfo, kTypeCount> kTypes{{
#define QTYPE(id, num, name, weights, bytes, header, rows, trailer, kv, act) \
  {DType::id, #id, name, num, weights, bytes, header, rows, trailer, kv, ActType::act},
#include "types.def"
#undef QTYPE
}};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

}  // namespace

const TypeInfo& type_info(DType type) noexcept {
  return kTypes[static_cast<std::size_t>(type)];
}

std::optional<DType> type_from_gguf(std::uint32_t number) noexcept {
  for (const TypeInfo& info : kTypes) {
    if (info.gguf_number == number) return info.type;
  }
  return std::nullopt;
}

std::optional<DType> type_from_name(std::string_view name) noexcept {
  for (const TypeInfo& info : kTypes) {
    if (equal_ignoring_case(info.id, name)) return info.type;
  }
  return std::nullopt;
}

std::string_view why_gguf_type_is_refused(std::uint32_t number) noexcept {
  switch (number) {
    case 4:
    case 5:
    case 37:
    case 38:
      return "the type was removed from the format; convert the model again";
    case 31:
    case 32:
    case 33:
      return "an interleaved form for ARM that was removed from the format; convert the model again to Q4_0";
    case 36:
      return "two types use this number, and neither is written by current programs (I2_S of BitNet files, and an old "
             "form of IQ4_NL for ARM); convert the model again, to TQ2_0 for instance";
    case 142:
    case 143:
      return "the type was withdrawn by ik_llama.cpp; convert the model again, to IQ1_BN or IQ2_BN";
    case 9:
    case 15:
    case 97:
    case 98:
    case 99:
    case 136:
    case 147:
    case 148:
    case 149:
    case 150:
      return "a form for activations, which never occurs in files";
    default:
      return "the type is not known";
  }
}

std::size_t row_bytes(DType type, std::int64_t n) noexcept {
  const TypeInfo& info = type_info(type);
  TANDEM_DASSERT(n % info.block_weights == 0, "a row holds whole blocks");
  return static_cast<std::size_t>(info.row_header_bytes) +
         static_cast<std::size_t>(n / info.block_weights) * static_cast<std::size_t>(info.block_bytes);
}

}  // namespace ggml
