#include "ggml/kv_layout.h"

namespace ggml {

namespace {

constexpr std::size_t kPlaneAlignment = 64;
constexpr int kScaleGroup = 32;

std::size_t aligned(std::size_t bytes) noexcept {
  return (bytes + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
}

bool has_scales(DType type) noexcept {
  return type_info(type).block_weights > 1;
}

bool fits(DType type, int dim) noexcept {
  if (type == DType::f32 || type == DType::f16 || type == DType::bf16) return true;
  return type == DType::q8_0 && dim % kScaleGroup == 0;
}

std::size_t plane(int n_head, std::size_t head_bytes) noexcept {
  return aligned(static_cast<std::size_t>(n_head) * head_bytes);
}

}  // namespace

bool KvLayout::supported() const noexcept {
  return fits(k_type, dk) && (dv == 0 || fits(v_type, dv));
}

std::size_t KvLayout::head_value_bytes(DType type, int dim) noexcept {
  const std::size_t elements = static_cast<std::size_t>(kKvBlockTokens) * static_cast<std::size_t>(dim);
  return has_scales(type) ? elements : elements * static_cast<std::size_t>(type_info(type).block_bytes);
}

std::size_t KvLayout::head_scale_bytes(DType type, int dim) noexcept {
  if (!has_scales(type)) return 0;
  return static_cast<std::size_t>(kKvBlockTokens) * static_cast<std::size_t>(dim / kScaleGroup) * sizeof(std::uint16_t);
}

std::size_t KvLayout::k_scales() const noexcept {
  return plane(n_head_kv, head_value_bytes(k_type, dk));
}

std::size_t KvLayout::v_values() const noexcept {
  return k_scales() + plane(n_head_kv, head_scale_bytes(k_type, dk));
}

std::size_t KvLayout::v_scales() const noexcept {
  return v_values() + (dv == 0 ? 0 : plane(n_head_kv, head_value_bytes(v_type, dv)));
}

std::size_t KvLayout::block_bytes() const noexcept {
  return v_scales() + (dv == 0 ? 0 : plane(n_head_kv, head_scale_bytes(v_type, dv)));
}

}  // namespace ggml
