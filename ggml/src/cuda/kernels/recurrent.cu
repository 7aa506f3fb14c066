#include "cuda/kernels/recurrent.h"

#include "cuda/kernels/activate.cuh"
#include "cuda/kernels/device.cuh"
#include "cuda/kernels/launch.cuh"

namespace ggml::cuda {
namespace {

/// A slot's state; null for the slot -1.
__device__ __forceinline__ float* state_at(const StateInputs& s, int slot) {
  return slot < 0 ? nullptr : s.pool + slot * s.layout.slot_floats + s.layout.offset;
}

// Convolution: a thread per channel. Few rows: of a span, which then keeps its states. Many: of a run of kConvRows
// rows, whichever spans have them; states follow in a second kernel, since one may be written to where it was read
// from.

constexpr int kConvThreads = 128;
constexpr int kConvRows = 8;

/// Row `row` of a span, counted from its first new one; negative: from the state.
__device__ __forceinline__ float value_at(const Conv1dArgs& a, const AttnSpan& span, const float* state, int row,
                                          int channel) {
  if (row >= 0) return a.x[static_cast<std::int64_t>(span.first_row + row) * a.channels + channel];
  return state == nullptr ? 0.0f : state[static_cast<std::int64_t>(a.kernel - 1 + row) * a.channels + channel];
}

/// The state after `n_rows` rows. The older one may be overwritten: ascending, oldest row first.
__device__ __forceinline__ void keep_state(const Conv1dArgs& a, const AttnSpan& span, int n_rows, int slot,
                                           int channel) {
  float* to = state_at(a.states, slot);
  if (to == nullptr) return;
  const float* from = state_at(a.states, span.state_slot);
  for (int i = 0; i < a.kernel - 1; ++i) {
    to[static_cast<std::int64_t>(i) * a.channels + channel] =
        value_at(a, span, from, n_rows - (a.kernel - 1) + i, channel);
  }
}

__device__ __forceinline__ void keep_states(const Conv1dArgs& a, const AttnSpan& span, int channel) {
  keep_state(a, span, span.n_rows - 1, span.state_before_last, channel);
  keep_state(a, span, span.n_rows, span.state_to, channel);
}

__device__ __forceinline__ void convolve(const Conv1dArgs& a, const AttnSpan& span, int row, int channel) {
  const float* state = state_at(a.states, span.state_slot);
  const float* filter = a.filters + static_cast<std::int64_t>(channel) * a.kernel;
  float sum = 0.0f;
  for (int tap = 0; tap < a.kernel; ++tap) {
    sum += filter[tap] * value_at(a, span, state, row - (a.kernel - 1) + tap, channel);
  }
  a.y[static_cast<std::int64_t>(span.first_row + row) * a.channels + channel] = activate(a.act, sum);
}

__global__ void __launch_bounds__(kConvThreads) conv1d_spans(const __grid_constant__ Conv1dArgs a) {
  begin_kernel();
  const int channel = static_cast<int>(blockIdx.x) * kConvThreads + static_cast<int>(threadIdx.x);
  const int number = static_cast<int>(blockIdx.y);
  if (number >= *a.states.n_spans || channel >= a.channels) return;
  const AttnSpan span = a.states.spans[number];
  for (int row = 0; row < span.n_rows; ++row) convolve(a, span, row, channel);
  keep_states(a, span, channel);
}

__global__ void __launch_bounds__(kConvThreads) conv1d_rows(const __grid_constant__ Conv1dArgs a) {
  begin_kernel();
  const int channel = static_cast<int>(blockIdx.x) * kConvThreads + static_cast<int>(threadIdx.x);
  const int begin = static_cast<int>(blockIdx.y) * kConvRows, end = begin + kConvRows;
  if (channel >= a.channels) return;
  for (int number = 0; number < *a.states.n_spans; ++number) {
    const AttnSpan& span = a.states.spans[number];
    const int last = min(end, span.first_row + span.n_rows);
    for (int row = max(begin, span.first_row); row < last; ++row) convolve(a, span, row - span.first_row, channel);
  }
}

__global__ void __launch_bounds__(kConvThreads) keep_conv_states(const __grid_constant__ Conv1dArgs a) {
  begin_kernel();
  const int channel = static_cast<int>(blockIdx.x) * kConvThreads + static_cast<int>(threadIdx.x);
  const int number = static_cast<int>(blockIdx.y);
  if (number >= *a.states.n_spans || channel >= a.channels) return;
  keep_states(a, a.states.spans[number], channel);
}

// Delta rule: the lines of a head's state (one per element of the value) do not depend on each other. A warp keeps
// kLines of them in registers, a lane every 32nd element, and walks over the rows of the span. With q, k and the state
// S before the row, of decay e: seen = e S k, and what comes out is e S q + change (k q), so that all sums of a row are
// taken at once.

constexpr int kRuleWarps = 4;
constexpr int kRuleThreads = kRuleWarps * kWarp;

/// What a row does to every line.
struct RuleRow {
  float decay, beta;
  float q_factor, k_factor;  // of q and k as they lie in memory
  float kq;                  // their product, factors included
};

template <int kPer>
__device__ __forceinline__ RuleRow rule_row(const DeltaRuleArgs& a, std::int64_t at, int head, const float (&q)[kPer],
                                            const float (&k)[kPer]) {
  float kq = 0.0f, qq = 0.0f, kk = 0.0f;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    kq += k[i] * q[i];
    qq += q[i] * q[i];
    kk += k[i] * k[i];
  }
  RuleRow row{a.g[at], a.beta[at], 1.0f, 1.0f, warp_sum(kq)};
  if (!a.raw) {
    row.decay = expf(row.decay);
    return row;
  }
  row.decay = expf(a.decay[head] * activate(Activation::softplus, row.decay + a.dt[head]));
  row.beta = sigmoid(row.beta);
  row.q_factor = 1.0f / (fmaxf(sqrtf(warp_sum(qq)), a.eps) * sqrtf(static_cast<float>(a.head_dim)));
  row.k_factor = 1.0f / fmaxf(sqrtf(warp_sum(kk)), a.eps);
  row.kq *= row.q_factor * row.k_factor;
  return row;
}

template <int kPer, int kLines>
struct RuleLines {
  float at[kLines][kPer];

  /// Between memory and registers; a null `from` stands for zeros.
  __device__ __forceinline__ void load(const float* from, int d, int first) {
    each(d, first, [&](int line, int i, std::int64_t offset) { at[line][i] = from == nullptr ? 0.0f : from[offset]; });
  }
  __device__ __forceinline__ void store(float* to, int d, int first) {
    if (to == nullptr) return;
    each(d, first, [&](int line, int i, std::int64_t offset) { to[offset] = at[line][i]; });
  }

 private:
  template <class F>
  __device__ __forceinline__ void each(int d, int first, const F& f) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int line = 0; line < kLines; ++line) {
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        const int element = lane + i * kWarp;
        if (first + line < d && element < d) f(line, i, static_cast<std::int64_t>(first + line) * d + element);
      }
    }
  }
};

template <int kPer, int kLines>
__global__ void __launch_bounds__(kRuleThreads) delta_rule(const __grid_constant__ DeltaRuleArgs a) {
  begin_kernel();
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int d = a.head_dim, first = (static_cast<int>(blockIdx.x) * kRuleWarps + warp) * kLines;
  const int head = static_cast<int>(blockIdx.y), number = static_cast<int>(blockIdx.z);
  if (number >= *a.states.n_spans || first >= d) return;
  const AttnSpan span = a.states.spans[number];
  const int key_head = a.tiled ? head % a.n_head_k : head / (a.n_head_v / a.n_head_k);
  const std::int64_t own = static_cast<std::int64_t>(head) * d * d;
  const auto state_of = [&](int slot) {
    float* state = state_at(a.states, slot);
    return state == nullptr ? nullptr : state + own;
  };
  RuleLines<kPer, kLines> lines{};
  lines.load(state_of(span.state_slot), d, first);
  for (int step = 0; step < span.n_rows; ++step) {
    if (step + 1 == span.n_rows) lines.store(state_of(span.state_before_last), d, first);
    const std::int64_t token = span.first_row + step;
    const float* q_row = a.q + token * a.qk_stride + key_head * d;
    const float* k_row = a.k + token * a.qk_stride + key_head * d;
    const float* v_row = a.v + token * a.v_stride + head * d;
    float q[kPer], k[kPer];
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int element = lane + i * kWarp;
      q[i] = element < d ? q_row[element] : 0.0f;
      k[i] = element < d ? k_row[element] : 0.0f;
    }
    const RuleRow row = rule_row(a, token * a.n_head_v + head, head, q, k);
    float* y = a.y + (token * a.n_head_v + head) * d;
#pragma unroll
    for (int line = 0; line < kLines; ++line) {
      float seen = 0.0f, asked = 0.0f;
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        seen += lines.at[line][i] * k[i];
        asked += lines.at[line][i] * q[i];
      }
      seen = warp_sum(seen) * row.k_factor * row.decay;
      asked = warp_sum(asked) * row.q_factor * row.decay;
      const float v = first + line < d ? v_row[first + line] : 0.0f;
      const float change = row.beta * (v - seen);
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        lines.at[line][i] = lines.at[line][i] * row.decay + change * row.k_factor * k[i];
      }
      if (lane == 0 && first + line < d) y[first + line] = asked + change * row.kq;
    }
  }
  lines.store(state_of(span.state_to), d, first);
}

template <int kPer, int kLines>
void launch_rule(const DeltaRuleArgs& args, cudaStream_t stream) {
  constexpr int kOfBlock = kRuleWarps * kLines;
  const dim3 grid(static_cast<unsigned>((args.head_dim + kOfBlock - 1) / kOfBlock),
                  static_cast<unsigned>(args.n_head_v), static_cast<unsigned>(args.states.max_spans));
  launch(delta_rule<kPer, kLines>, grid, kRuleThreads, 0, stream, args);
}

/// A thread per column of a span.
__global__ void __launch_bounds__(kConvThreads) pool(const __grid_constant__ PoolArgs a) {
  begin_kernel();
  const int i = static_cast<int>(blockIdx.x) * kConvThreads + static_cast<int>(threadIdx.x);
  const int number = static_cast<int>(blockIdx.y);
  if (number >= *a.n_spans || i >= a.n) return;
  const AttnSpan span = a.spans[number];
  const int begin = a.kind == PoolKind::last ? span.n_rows - 1 : 0, end = a.kind == PoolKind::first ? 1 : span.n_rows;
  float sum = 0.0f;
  for (int row = begin; row < end; ++row) sum += a.x[static_cast<std::int64_t>(span.first_row + row) * a.n + i];
  a.y[static_cast<std::int64_t>(number) * a.n + i] = sum / static_cast<float>(end - begin);
}

}  // namespace

void launch_conv1d(const Conv1dArgs& args, cudaStream_t stream) {
  const auto columns = static_cast<unsigned>((args.channels + kConvThreads - 1) / kConvThreads);
  const dim3 spans(columns, static_cast<unsigned>(args.states.max_spans));
  if (args.tokens <= kConvRows) return launch(conv1d_spans, spans, kConvThreads, 0, stream, args);
  const dim3 rows(columns, static_cast<unsigned>((args.tokens + kConvRows - 1) / kConvRows));
  launch(conv1d_rows, rows, kConvThreads, 0, stream, args);
  launch(keep_conv_states, spans, kConvThreads, 0, stream, args);
}

void launch_delta_rule(const DeltaRuleArgs& args, cudaStream_t stream) {
  constexpr int kLines = 4;
  const int d = args.head_dim;
  if (d <= kWarp) return launch_rule<1, kLines>(args, stream);
  if (d <= 2 * kWarp) return launch_rule<2, kLines>(args, stream);
  if (d <= 4 * kWarp) return launch_rule<4, kLines>(args, stream);
  if (d <= 8 * kWarp) return launch_rule<8, kLines>(args, stream);
  launch_rule<kMostDeltaDim / kWarp, 1>(args, stream);
}

void launch_pool(const PoolArgs& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((args.n + kConvThreads - 1) / kConvThreads),
                  static_cast<unsigned>(args.max_spans));
  launch(pool, grid, kConvThreads, 0, stream, args);
}

}  // namespace ggml::cuda
