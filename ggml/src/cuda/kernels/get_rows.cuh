#pragma once

#include "cuda/kernels/decoder.cuh"
#include "cuda/kernels/device.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/selection.h"

namespace ggml::cuda {

/// A thread per unit of a result row.
template <class D>
__global__ void __launch_bounds__(128) get_rows(const __grid_constant__ GetRowsArgs a) {
  begin_kernel();
  const int units = a.k / kUnit;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * 128 + threadIdx.x;
  const std::int64_t row = at / units;
  if (row >= live(a.rows)) return;
  const std::int64_t id = a.ids[row];
  float* y = a.y + at * kUnit;
  if (id < 0 || id >= a.table_rows) {
#pragma unroll
    for (int j = 0; j < kUnit; ++j) y[j] = 0.0f;
    return;
  }
  D decoder;
  decoder.load(a.table, (a.table.first + id) * units + at % units);
  const Codes codes = decoder.codes();
  const Scales s = decoder.scales();
#pragma unroll
  for (int j = 0; j < kUnit; ++j) {
    const int part = D::kHalves ? j / 16 : 0;
    const float code = static_cast<float>(static_cast<std::int8_t>(codes.word[j / 4] >> (8 * (j % 4))));
    y[j] = __fmul_rn(s.scale[part], code) + (D::kAdds ? s.add[part] : 0.0f);
  }
}

template <int kBits, ScaleForm kForm, int kCenter>
void launch_get_rows(const GetRowsArgs& args, cudaStream_t stream) {
  const std::int64_t threads = static_cast<std::int64_t>(args.rows.capacity) * (args.k / kUnit);
  launch(get_rows<Decoder<kBits, kForm, kCenter>>, static_cast<unsigned>((threads + 127) / 128), 128, 0, stream, args);
}

}  // namespace ggml::cuda
