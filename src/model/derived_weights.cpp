#include "model/derived_weights.h"

#include <cstring>
#include <string>
#include <vector>

#include "ggml/log.h"
#include "ggml/quant.h"
#include "model/rope.h"

namespace llama {

using ggml::DType;
using ggml::Shape;
using ggml::Weight;

namespace {

/// A weight of our own making, without memory yet.
Weight& add_weight(const std::string& name, DType type, const Shape& shape, ModelWeights& weights) {
  Weight& weight = weights.tensors.emplace_back();
  weight.name = name;
  weight.type = type;
  weight.shape = shape;
  ggml::Placement placement;
  placement.kind = ggml::BufferKind::host_pageable;
  weight.placements.push_back(placement);
  return weight;
}

/// Gives a weight memory for its bytes, which the caller fills.
std::byte* allocate(Weight& weight, ggml::Device& cpu, ModelWeights& weights) {
  const std::size_t bytes = ggml::tensor_bytes(weight.type, weight.shape);
  weights.buffers.push_back(cpu.allocate(bytes, ggml::BufferKind::host_pageable));
  weight.placements.front().data = weights.buffers.back()->data();
  return weights.buffers.back()->data();
}

/// The type of a transposed copy: as the source, but Q8_0 where that is quantised and rows allow it.
DType copy_type(DType source, std::int64_t row) {
  if (ggml::type_info(source).block_weights == 1) return source;
  return row % ggml::type_info(DType::q8_0).block_weights == 0 ? DType::q8_0 : DType::f16;
}

/// For each of `n_head` heads: `rows` rows of `width` from the source (whose heads have `source_rows` rows each) become
/// `width` rows of `rows`.
struct Transposition {
  std::int64_t n_head, source_rows, rows, width;
};

/// A transposed copy to be made.
struct Derivation {
  const Weight* from;
  Weight* to;
  Transposition transposition;
};

void transpose_heads(const Derivation& derivation, std::byte* target) {
  const auto& [from, to, t] = derivation;
  const std::size_t to_bytes = ggml::row_bytes(to->type, t.rows);
  const auto rows = static_cast<std::size_t>(t.rows), width = static_cast<std::size_t>(t.width);
  std::vector<float> matrix(rows * width), line(rows);
  const std::byte* source = from->placements.front().data;
  for (std::int64_t head = 0; head < t.n_head; ++head) {
    for (std::size_t r = 0; r < rows; ++r)
      ggml::dequantise_row_of(from->type, source, head * t.source_rows + static_cast<std::int64_t>(r), t.width,
                              matrix.data() + r * width);
    for (std::size_t c = 0; c < width; ++c) {
      for (std::size_t r = 0; r < rows; ++r) line[r] = matrix[r * width + c];
      ggml::quantise_row(to->type, line, {}, target);
      target += to_bytes;
    }
  }
}

/// Adds what the layer needs beside its tensors; at most one weight.
void declare_latent(const Hparams& h, std::size_t index, ModelWeights& weights, std::vector<Derivation>& todo) {
  const LayerHparams& layer = h.layers[index];
  TensorSet& set = weights.layers[index];
  const std::int64_t nope = layer.dk - layer.n_rot, rank = h.mla.kv_rank, heads = layer.n_head;
  const std::string prefix = "blk." + std::to_string(index) + ".";
  // Tensors are const behind the set; their shapes are changed before anyone has seen them.
  const auto reshape = [&](Role role, const Shape& shape) {
    if (set[role]) const_cast<Weight*>(set[role].weight)->shape = shape;
  };
  reshape(Role::attn_k_b, Shape(nope, rank, heads));
  reshape(Role::attn_v_b, Shape(rank, layer.dv, heads));
  if (!set[Role::attn_k_b]) {
    const Weight& both = *set[Role::attn_kv_b].weight;
    Weight& k_b =
        add_weight(prefix + "attn_k_b.weight (derived)", copy_type(both.type, nope), Shape(nope, rank, heads), weights);
    set[Role::attn_k_b].weight = &k_b;
    todo.push_back({&both, &k_b, {heads, nope + layer.dv, nope, rank}});
  } else if (!set[Role::attn_kv_b]) {
    const Weight& k_b = *set[Role::attn_k_b].weight;
    Weight& k_up =
        add_weight(prefix + "attn_k_up.weight (derived)", copy_type(k_b.type, rank), Shape(rank, nope, heads), weights);
    set[Role::attn_k_up].weight = &k_up;
    todo.push_back({&k_b, &k_up, {heads, rank, rank, nope}});
  }
}

/// The divisors of M-RoPE; null when the model needs none of ours.
Weight* declare_rope_divisors(const std::vector<float>& divisors, ModelWeights& weights) {
  if (divisors.empty() || weights.global[Role::rope_freqs]) return nullptr;
  Weight& weight =
      add_weight("rope_freqs.weight (derived)", DType::f32, Shape(static_cast<std::int64_t>(divisors.size())), weights);
  weights.global[Role::rope_freqs].weight = &weight;
  return &weight;
}

std::vector<Derivation> declare_all_latent(const Hparams& hparams, ModelWeights& weights) {
  std::vector<Derivation> todo;
  if (!hparams.has_latent_attention()) return todo;
  for (std::size_t i = 0; i < weights.layers.size(); ++i) declare_latent(hparams, i, weights, todo);
  return todo;
}

}  // namespace

void derive_weights(const Hparams& hparams, ggml::Device& cpu, ModelWeights& weights) {
  const std::vector<float> divisors = text_divisors(hparams);
  if (Weight* weight = declare_rope_divisors(divisors, weights))
    std::memcpy(allocate(*weight, cpu, weights), divisors.data(), divisors.size() * sizeof(float));
  if (!hparams.has_latent_attention()) return;
  std::uint64_t bytes = 0;
  for (const Derivation& derivation : declare_all_latent(hparams, weights)) {
    transpose_heads(derivation, allocate(*derivation.to, cpu, weights));
    bytes += ggml::tensor_bytes(derivation.to->type, derivation.to->shape);
  }
  ggml::logf(ggml::LogLevel::info, "derived weights=attn_k_b,attn_k_up bytes=%llu",
             static_cast<unsigned long long>(bytes));
}

void outline_derived_weights(const Hparams& hparams, ModelWeights& weights) {
  (void)declare_rope_divisors(text_divisors(hparams), weights);
  (void)declare_all_latent(hparams, weights);
}

}  // namespace llama
