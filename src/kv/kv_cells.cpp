#include "kv/kv_cells.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ggml/hadamard.h"
#include "ggml/kv_rows.h"

namespace llama {

using ggml::DType;
using ggml::KvLayout;

namespace {

/// Where one head's row of one cell lies in a plane of values and in its plane of scales.
struct PlaneRow {
  std::size_t values, value_bytes, scales, scale_bytes;
};

PlaneRow row_of(DType type, int dim, std::size_t values, std::size_t scales, int head, int cell) {
  const std::size_t head_values = KvLayout::head_value_bytes(type, dim);
  const std::size_t head_scales = KvLayout::head_scale_bytes(type, dim);
  PlaneRow row{};
  row.value_bytes = head_values / ggml::kKvBlockTokens;
  row.scale_bytes = head_scales / ggml::kKvBlockTokens;
  row.values = values + static_cast<std::size_t>(head) * head_values + static_cast<std::size_t>(cell) * row.value_bytes;
  row.scales = scales + static_cast<std::size_t>(head) * head_scales + static_cast<std::size_t>(cell) * row.scale_bytes;
  return row;
}

PlaneRow key_row(const KvLayout& l, int head, int cell) {
  return row_of(l.k_type, l.dk, l.k_values(), l.k_scales(), head, cell);
}

PlaneRow value_row(const KvLayout& l, int head, int cell) {
  return row_of(l.v_type, l.dv, l.v_values(), l.v_scales(), head, cell);
}

void copy_row(std::byte* to_block, const PlaneRow& to, const std::byte* from_block, const PlaneRow& from) {
  std::memcpy(to_block + to.values, from_block + from.values, to.value_bytes);
  std::memcpy(to_block + to.scales, from_block + from.scales, to.scale_bytes);
}

}  // namespace

KeyRotation::KeyRotation(const ggml::RopeParams& params, const float* factors, int positions, bool hadamard)
    : layout_(params.layout), first_(static_cast<std::size_t>(params.first)), hadamard_(hadamard) {
  const int n_pairs = params.n_rot / 2;
  const double base = params.base;
  const double n_rot = params.n_rot;
  const auto turns_dim = [&](double beta) {
    return n_rot * std::log(params.n_ctx_orig / (beta * 2.0 * M_PI)) / (2.0 * std::log(base));
  };
  const double low = std::max(0.0, std::floor(turns_dim(params.beta_fast)));
  const double high = std::min(n_rot - 1.0, std::ceil(turns_dim(params.beta_slow)));
  for (int pair = 0; pair < n_pairs; ++pair) {
    double theta = positions * std::pow(base, -2.0 * pair / n_rot);
    if (factors != nullptr) theta /= static_cast<double>(factors[pair]);
    double angle = params.freq_scale * theta;
    if (params.ext_factor != 0.0f) {
      const double ramp = 1.0 - std::clamp((pair - low) / std::max(0.001, high - low), 0.0, 1.0);
      const double mix = ramp * static_cast<double>(params.ext_factor);
      angle = angle * (1.0 - mix) + theta * mix;
    }
    cos_.push_back(static_cast<float>(std::cos(angle)));
    sin_.push_back(static_cast<float>(std::sin(angle)));
  }
}

void KeyRotation::apply(std::span<float> key) const {
  if (layout_ == ggml::RopeLayout::none) return;
  const std::size_t n_pairs = cos_.size();
  const bool neox = layout_ == ggml::RopeLayout::neox;
  if (hadamard_) ggml::hadamard(key.data(), static_cast<std::int64_t>(key.size()));
  for (std::size_t pair = 0; pair < n_pairs; ++pair) {
    float& a = key[first_ + (neox ? pair : 2 * pair)];
    float& b = key[first_ + (neox ? pair + n_pairs : 2 * pair + 1)];
    const float turned_a = a * cos_[pair] - b * sin_[pair];
    b = a * sin_[pair] + b * cos_[pair];
    a = turned_a;
  }
  if (hadamard_) ggml::hadamard(key.data(), static_cast<std::int64_t>(key.size()));
}

void KvCells::copy_cell(int to, const KvCells& other, int from) {
  for (int head = 0; head < layout_.n_head_kv; ++head) {
    copy_row(block_, key_row(layout_, head, to), other.block_, key_row(layout_, head, from));
    if (layout_.dv > 0) copy_row(block_, value_row(layout_, head, to), other.block_, value_row(layout_, head, from));
  }
}

void KvCells::rotate_key(int cell, const KeyRotation& rotation, std::span<float> scratch) {
  for (int head = 0; head < layout_.n_head_kv; ++head) {
    const PlaneRow row = key_row(layout_, head, cell);
    ggml::decode_kv_row(layout_.k_type, block_ + row.values, block_ + row.scales, 0, layout_.dk, scratch.data());
    rotation.apply(scratch);
    ggml::encode_kv_row(layout_.k_type, scratch.data(), layout_.dk, block_ + row.values, block_ + row.scales);
  }
}

}  // namespace llama
