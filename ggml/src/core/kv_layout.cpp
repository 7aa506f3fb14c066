#include "ggml/kv_layout.h"

namespace ggml {

namespace {

constexpr std::size_t kPlaneAlignment = 64;

std::size_t aligned(std::size_t bytes) noexcept {
  return (bytes + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
}

std::size_t plane(int n_head, std::size_t head_bytes) noexcept {
  return aligned(static_cast<std::size_t>(n_head) * head_bytes);
}

}  // namespace

bool KvLayout::fits(DType type, int dim) noexcept {
  return type_info(type).kv_capable && dim % type_info(type).block_weights == 0;
}

bool KvLayout::supported() const noexcept {
  return fits(k_type, dk) && (dv == 0 || fits(v_type, dv));
}

std::size_t KvLayout::head_value_bytes(DType type, int dim) noexcept {
  return static_cast<std::size_t>(kKvBlockTokens) * kv_form(type).value_bytes(dim);
}

std::size_t KvLayout::head_scale_bytes(DType type, int dim) noexcept {
  return static_cast<std::size_t>(kKvBlockTokens) * kv_form(type).scale_bytes(dim);
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
