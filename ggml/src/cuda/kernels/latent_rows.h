#pragma once

#include "cuda/kernels/activations.h"
#include "cuda/kernels/attention.h"

struct CUstream_st;

/// What latent attention does with its inputs before the products: queries are split, new cells go to the cache.
namespace ggml::cuda {

struct LatentRowsArgs {
  KvPlanes kv;
  KvInputs in;
  const float* q = nullptr;       // [nope + n_rot, n_head, tokens]
  const float* latent = nullptr;  // [kv_rank, tokens]
  const float* k_rot = nullptr;   // [n_rot, tokens]
  int n_head = 0, nope = 0, n_rot = 0, kv_rank = 0;
  float* query = nullptr;  // [kv_rank + n_rot, n_head, tokens], whose last n_rot elements of each head are written
  // The first `nope` elements of each head, rounded as `act` says: codes, or floats.
  ActType act = ActType::f32;
  QuantisedRows codes;
  float* floats = nullptr;
  RowCount tokens;
};
/// Whether heads of these sizes can be split so.
[[nodiscard]] bool latent_rows_fit(int nope, int n_rot) noexcept;
void launch_latent_rows(const LatentRowsArgs& args, CUstream_st* stream);

}  // namespace ggml::cuda
