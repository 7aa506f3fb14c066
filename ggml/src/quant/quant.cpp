#include "ggml/quant.h"

#include <string_view>

#include "ggml/error.h"
#include "quant/codec.h"

namespace ggml::quant {
namespace {

constexpr const WeightCodec* kCodecs[] = {
#define QTYPE(id, num, name, weights, bytes, header, rows, trailer, kv, act) &k_codec_##id,
#include "types.def"
#undef QTYPE
};

}  // namespace

const WeightCodec& codec(int type) noexcept {
  return *kCodecs[type];
}

}  // namespace ggml::quant

namespace ggml {

bool is_weight_type(DType type) noexcept {
  return quant::codec(static_cast<int>(type)).dequantise != nullptr;
}

void dequantise_row(DType type, const std::byte* row, std::int64_t k, float* dst) noexcept {
  TANDEM_ASSERT(is_weight_type(type), "only weights can be decoded");
  TANDEM_ASSERT(type_info(type).rows_per_group == 1, "an interleaved row cannot be decoded without its group");
  quant::codec(static_cast<int>(type)).dequantise(row, 0, k, dst);
}

void dequantise_row_of(DType type, const std::byte* matrix, std::int64_t row, std::int64_t k, float* dst) noexcept {
  TANDEM_ASSERT(is_weight_type(type), "only weights can be decoded");
  const std::int64_t together = type_info(type).rows_per_group;
  const std::byte* group = matrix + (row - row % together) * static_cast<std::int64_t>(row_bytes(type, k));
  quant::codec(static_cast<int>(type)).dequantise(group, static_cast<int>(row % together), k, dst);
}

void quantise_row(DType type, std::span<const float> src, std::span<const float> importance, std::byte* dst) noexcept {
  quantise_rows(type, src, static_cast<std::int64_t>(src.size()), importance, dst);
}

void quantise_rows(DType type, std::span<const float> src, std::int64_t k, std::span<const float> importance,
                   std::byte* dst) noexcept {
  TANDEM_ASSERT(is_weight_type(type), "only weights can be encoded");
  TANDEM_ASSERT(importance.empty() || static_cast<std::int64_t>(importance.size()) == k, "one importance per column");
  if (k == 0) return;
  const std::int64_t together = type_info(type).rows_per_group;
  const std::int64_t rows = static_cast<std::int64_t>(src.size()) / k;
  TANDEM_ASSERT(rows % together == 0, "interleaved rows are encoded by whole groups");
  const float* w = importance.empty() ? nullptr : importance.data();
  const std::size_t bytes = row_bytes(type, k);
  for (std::int64_t row = 0; row < rows; row += together) {
    quant::codec(static_cast<int>(type))
        .quantise(src.data() + row * k, w, k, dst + static_cast<std::size_t>(row) * bytes);
  }
}

std::optional<DType> interleaved_form(DType type) noexcept {
  const TypeInfo& plain = type_info(type);
  for (int i = 0; i < kTypeCount; ++i) {
    const auto other = static_cast<DType>(i);
    const TypeInfo& info = type_info(other);
    if (quant::codec(i).interleave == nullptr || info.row_header_bytes != plain.row_header_bytes) continue;
    // Interleaved types are named after the plain ones.
    const std::string_view name = info.id;
    if (name.size() > plain.id.size() && name.starts_with(plain.id) && name.substr(plain.id.size()).starts_with("_r"))
      return other;
  }
  return std::nullopt;
}

void interleave_rows(DType to, const std::byte* src, std::int64_t rows, std::int64_t k, std::byte* dst) noexcept {
  const std::int64_t together = type_info(to).rows_per_group;
  const auto interleave = quant::codec(static_cast<int>(to)).interleave;
  TANDEM_ASSERT(interleave != nullptr && rows % together == 0, "only whole groups of rows can be interleaved");
  const auto bytes = static_cast<std::int64_t>(row_bytes(to, k));
  for (std::int64_t row = 0; row < rows; row += together) interleave(src + row * bytes, k, dst + row * bytes);
}

std::optional<std::int64_t> find_bad_block(DType type, const std::byte* row, std::int64_t k) noexcept {
  const auto find = quant::codec(static_cast<int>(type)).find_bad;
  if (find == nullptr) return std::nullopt;
  const std::int64_t bad = find(row, k);
  return bad < 0 ? std::nullopt : std::optional(bad);
}

}  // namespace ggml
