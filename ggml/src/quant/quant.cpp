#include "ggml/quant.h"

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
  quant::codec(static_cast<int>(type)).dequantise(row, k, dst);
}

void quantise_row(DType type, std::span<const float> src, std::span<const float> importance, std::byte* dst) noexcept {
  TANDEM_ASSERT(is_weight_type(type), "only weights can be encoded");
  TANDEM_ASSERT(importance.empty() || importance.size() == src.size(), "one importance per column");
  const float* w = importance.empty() ? nullptr : importance.data();
  quant::codec(static_cast<int>(type)).quantise(src.data(), w, static_cast<std::int64_t>(src.size()), dst);
}

std::optional<std::int64_t> find_bad_block(DType type, const std::byte* row, std::int64_t k) noexcept {
  const auto find = quant::codec(static_cast<int>(type)).find_bad;
  if (find == nullptr) return std::nullopt;
  const std::int64_t bad = find(row, k);
  return bad < 0 ? std::nullopt : std::optional(bad);
}

}  // namespace ggml
