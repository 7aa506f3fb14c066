// One row of activations times a Q4_K or Q6_K matrix: weights as the file has them against planes.
//
// A warp computes a row; a lane reads 16 bytes of codes at a time, so that a warp reads 512 bytes that follow each
// other.
//   Q4_K file:   144-byte blocks of 256; the codes of a block are 16-byte aligned, the header (scales, mins) lies
//   before them. Q4_K planes: codes (32 weights of one sub-block per 16 bytes), scale and min bytes (16 per block), d
//   and dmin (half2). Q6_K file:   210-byte blocks: nothing is aligned to more than 2 bytes. Q6_K planes: low nibbles
//   (16 bytes per 32 weights), high bits (8 bytes per 32), scale bytes (2 per 32), d (half).
// Activations are int8 with a scale per 32. Results are checked against double precision before anything is timed.
// Weights rotate over several times the cache.

#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>

#include "support.cuh"

namespace tandem::bench {
namespace {

constexpr int kBlock = 256;
constexpr int kWarps = 8;

struct BlockQ4K {
  __half2 d;                // scale of the scales, scale of the mins
  std::uint8_t scales[12];  // 8 scales and 8 mins of 6 bits
  std::uint8_t qs[128];
};
static_assert(sizeof(BlockQ4K) == 144);

struct BlockQ6K {
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  __half d;
};
static_assert(sizeof(BlockQ6K) == 210);

/// An activation row: codes, a scale per 32 and the sum of the codes of each 32.
struct Row {
  const std::int8_t* q;
  const float* d;
  const int* sum;
};

__device__ float warp_sum(float v) {
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
  return v;
}

/// Dot product of 16 codes (4 words) with 16 activations.
__device__ int dot16(uint4 w, uint4 x, int acc) {
  acc = __dp4a(static_cast<int>(w.x), static_cast<int>(x.x), acc);
  acc = __dp4a(static_cast<int>(w.y), static_cast<int>(x.y), acc);
  acc = __dp4a(static_cast<int>(w.z), static_cast<int>(x.z), acc);
  return __dp4a(static_cast<int>(w.w), static_cast<int>(x.w), acc);
}

__device__ uint4 low_nibbles(uint4 v) {
  constexpr unsigned m = 0x0f0f0f0f;
  return {v.x & m, v.y & m, v.z & m, v.w & m};
}
__device__ uint4 high_nibbles(uint4 v) {
  return low_nibbles({v.x >> 4, v.y >> 4, v.z >> 4, v.w >> 4});
}

__host__ __device__ void unpack_scale(const std::uint8_t* s, int i, int& scale, int& min) {
  if (i < 4) {
    scale = s[i] & 63;
    min = s[i + 4] & 63;
  } else {
    scale = (s[i + 4] & 15) | ((s[i - 4] >> 6) << 4);
    min = (s[i + 4] >> 4) | ((s[i] >> 6) << 4);
  }
}

/// What all variants share: a warp's row, the sum over its lanes' units, the store.
template <class Weights>
__global__ void __launch_bounds__(32 * kWarps) gemv(Weights weights, Row x, float* y, int k, int rows) {
  const int row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= rows) return;
  const int units = k / Weights::kUnit;
  constexpr int kAhead = Weights::kAhead;
  typename Weights::Unit ahead[kAhead];
  float sum = 0;
  for (int base = threadIdx.x % 32; base < units; base += 32 * kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (base + 32 * i < units) ahead[i] = weights.load(row, k, base + 32 * i);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (base + 32 * i < units) sum += weights.dot(ahead[i], x, base + 32 * i);
    }
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) y[row] = sum;
}

struct FileQ4K {
  static constexpr int kUnit = 32;  // 16 bytes of codes: 16 weights of one sub-block, 16 of the next
  static constexpr int kAhead = 2;
  struct Unit {
    uint4 codes, header;
  };
  const BlockQ4K* blocks;

  __device__ Unit load(int row, int k, int unit) const {
    const BlockQ4K* block = blocks + static_cast<std::size_t>(row) * (k / kBlock) + unit / 8;
    return {__ldcs(reinterpret_cast<const uint4*>(block->qs) + unit % 8), *reinterpret_cast<const uint4*>(block)};
  }
  __device__ float dot(const Unit& u, const Row& x, int unit) const {
    const int pair = unit % 8 / 2, half = unit % 2;  // sub-blocks 2 pair and 2 pair + 1, their half
    const int sub = unit / 8 * 8 + 2 * pair;         // of the row
    const uint4* q = reinterpret_cast<const uint4*>(x.q) + sub * 2 + half;
    const int low = dot16(low_nibbles(u.codes), q[0], 0);
    const int high = dot16(high_nibbles(u.codes), q[2], 0);
    BlockQ4K head;
    memcpy(&head, &u.header, 16);
    int s0, m0, s1, m1;
    unpack_scale(head.scales, 2 * pair, s0, m0);
    unpack_scale(head.scales, 2 * pair + 1, s1, m1);
    const float2 d = __half22float2(head.d);
    float sum = d.x * (x.d[sub] * static_cast<float>(s0 * low) + x.d[sub + 1] * static_cast<float>(s1 * high));
    if (half == 0) {
      sum -= d.y *
             (x.d[sub] * static_cast<float>(m0 * x.sum[sub]) + x.d[sub + 1] * static_cast<float>(m1 * x.sum[sub + 1]));
    }
    return sum;
  }
};

struct PlanesQ4K {
  static constexpr int kUnit = 32;  // a sub-block
  static constexpr int kAhead = 2;
  struct Unit {
    uint4 codes;
    unsigned short scale_min;
    __half2 d;
  };
  const uint4* codes;
  const unsigned short* scale_min;
  const __half2* d;

  __device__ Unit load(int row, int k, int unit) const {
    const std::size_t at = static_cast<std::size_t>(row) * (k / kUnit) + unit;
    return {__ldcs(codes + at), scale_min[at], d[at / 8]};
  }
  __device__ float dot(const Unit& u, const Row& x, int unit) const {
    const uint4* q = reinterpret_cast<const uint4*>(x.q) + unit * 2;
    const int p = dot16(high_nibbles(u.codes), q[1], dot16(low_nibbles(u.codes), q[0], 0));
    const float2 f = __half22float2(u.d);
    return x.d[unit] * (f.x * static_cast<float>((u.scale_min & 255) * p) -
                        f.y * static_cast<float>((u.scale_min >> 8) * x.sum[unit]));
  }
};

/// Four bytes from an address that is even.
__device__ unsigned load_even(const std::uint8_t* p) {
  const auto* h = reinterpret_cast<const unsigned short*>(p);
  return h[0] | static_cast<unsigned>(h[1]) << 16;
}

struct FileQ6K {
  static constexpr int kUnit = 16;  // 4 words of the low plane's nibbles: 4 weights each of four sub-blocks' places
  static constexpr int kAhead = 2;
  struct Unit {
    unsigned low0, low1, high;
    std::uint32_t scales;
    __half d;
  };
  const BlockQ6K* blocks;

  // Unit u of a block (16 of them): half h = u / 8 of the block, column c = 4 (u % 8) of 32; it holds the weights at
  // h * 128 + {0, 32, 64, 96} + c .. c + 3.
  __device__ Unit load(int row, int k, int unit) const {
    const BlockQ6K* block = blocks + static_cast<std::size_t>(row) * (k / kBlock) + unit / 16;
    const int half = unit % 16 / 8, column = unit % 8 * 4;
    const std::int8_t* s = block->scales + half * 8 + column / 16;
    return {load_even(block->ql + half * 64 + column), load_even(block->ql + half * 64 + 32 + column),
            load_even(block->qh + half * 32 + column),
            static_cast<std::uint8_t>(s[0]) | static_cast<std::uint8_t>(s[2]) << 8 |
                static_cast<std::uint8_t>(s[4]) << 16 | static_cast<unsigned>(static_cast<std::uint8_t>(s[6])) << 24,
            block->d};
  }
  __device__ float dot(const Unit& u, const Row& x, int unit) const {
    const int at = unit / 16 * kBlock + unit % 16 / 8 * 128 + unit % 8 * 4;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned nibbles = ((i % 2 ? u.low1 : u.low0) >> (i / 2 * 4)) & 0x0f0f0f0f;
      const unsigned codes = nibbles | (((u.high >> (2 * i)) & 0x03030303) << 4);
      const int p =
          __dp4a(static_cast<int>(__vsubss4(codes, 0x20202020)), *reinterpret_cast<const int*>(x.q + at + 32 * i), 0);
      const int scale = static_cast<std::int8_t>(u.scales >> (8 * i));
      sum += x.d[at / 32 + i] * static_cast<float>(scale * p);
    }
    return __half2float(u.d) * sum;
  }
};

struct PlanesQ6K {
  static constexpr int kUnit = 32;
  static constexpr int kAhead = 2;
  struct Unit {
    uint4 low;
    uint2 high;
    unsigned short scales;
    __half d;
  };
  const uint4* low;              // byte j: nibble of weight j, nibble of weight 16 + j
  const uint2* high;             // byte j: two bits each of weights j, 8 + j, 16 + j, 24 + j
  const unsigned short* scales;  // of weights 0..15 and 16..31
  const __half* d;

  __device__ Unit load(int row, int k, int unit) const {
    const std::size_t at = static_cast<std::size_t>(row) * (k / kUnit) + unit;
    return {__ldcs(low + at), __ldcs(high + at), scales[at], d[at / 8]};
  }
  __device__ static uint4 with_high(uint4 nibbles, uint2 bits) {
    constexpr unsigned m = 0x30303030, center = 0x20202020;
    return {__vsubss4(nibbles.x | ((bits.x << 4) & m), center), __vsubss4(nibbles.y | ((bits.y << 4) & m), center),
            __vsubss4(nibbles.z | ((bits.x << 2) & m), center), __vsubss4(nibbles.w | ((bits.y << 2) & m), center)};
  }
  __device__ float dot(const Unit& u, const Row& x, int unit) const {
    const uint4* q = reinterpret_cast<const uint4*>(x.q) + unit * 2;
    const int first = dot16(with_high(low_nibbles(u.low), u.high), q[0], 0);
    const int second = dot16(with_high(high_nibbles(u.low), {u.high.x >> 4, u.high.y >> 4}), q[1], 0);
    const int s0 = static_cast<std::int8_t>(u.scales), s1 = static_cast<std::int8_t>(u.scales >> 8);
    return __half2float(u.d) * x.d[unit] * static_cast<float>(s0 * first + s1 * second);
  }
};

// ---- host side: random weights in file layout, their planes, the check in double ----------------------------------

template <class Block>
std::vector<Block> random_blocks(std::size_t n, std::mt19937& rng) {
  std::vector<Block> blocks(n);
  auto* words = reinterpret_cast<std::uint16_t*>(blocks.data());
  for (std::size_t i = 0; i < n * sizeof(Block) / 2; ++i) words[i] = static_cast<std::uint16_t>(rng());
  for (Block& block : blocks) {
    if constexpr (sizeof(Block) == sizeof(BlockQ4K)) {
      block.d = __floats2half2_rn(0.001f + 1e-6f * static_cast<float>(rng() % 1000), 0.002f);
    } else {
      block.d = __float2half(0.001f + 1e-6f * static_cast<float>(rng() % 1000));
    }
  }
  return blocks;
}

int code_q4k(const BlockQ4K& b, int i) {
  return b.qs[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
}
int code_q6k(const BlockQ6K& b, int i) {
  const int half = i / 128, j = i % 128, part = j / 32, column = j % 32;
  const int low = b.ql[half * 64 + part % 2 * 32 + column] >> (part / 2 * 4) & 15;
  return (low | (b.qh[half * 32 + column] >> (2 * part) & 3) << 4) - 32;
}

double value(const BlockQ4K& b, int i) {
  int scale, min;
  unpack_scale(b.scales, i / 32, scale, min);
  return static_cast<double>(__low2float(b.d)) * scale * code_q4k(b, i) - static_cast<double>(__high2float(b.d)) * min;
}
double value(const BlockQ6K& b, int i) {
  return static_cast<double>(__half2float(b.d)) * b.scales[i / 16] * code_q6k(b, i);
}

struct Activation {
  DeviceArray<std::int8_t> q;
  DeviceArray<float> d;
  DeviceArray<int> sum;
  std::vector<double> values;

  static Activation random(int k, std::mt19937& rng) {
    std::vector<std::int8_t> q(static_cast<std::size_t>(k));
    std::vector<float> d(static_cast<std::size_t>(k) / 32);
    std::vector<int> sum(d.size(), 0);
    std::vector<double> values(q.size());
    for (float& v : d) v = 0.01f + 1e-5f * static_cast<float>(rng() % 1000);
    for (std::size_t i = 0; i < q.size(); ++i) {
      q[i] = static_cast<std::int8_t>(static_cast<int>(rng() % 255) - 127);
      sum[i / 32] += q[i];
      values[i] = static_cast<double>(q[i]) * d[i / 32];
    }
    return {DeviceArray<std::int8_t>(q), DeviceArray<float>(d), DeviceArray<int>(sum), std::move(values)};
  }
  [[nodiscard]] Row row() const { return {q.get(), d.get(), sum.get()}; }
};

template <class Block>
void verify(const std::vector<Block>& blocks, const Activation& x, const std::vector<float>& y, int k) {
  for (std::size_t row = 0; row < y.size(); row += 37) {
    double expected = 0, magnitude = 0;
    for (int i = 0; i < k; ++i) {
      const double p =
          value(blocks[row * static_cast<std::size_t>(k / kBlock) + static_cast<std::size_t>(i / kBlock)], i % kBlock) *
          x.values[static_cast<std::size_t>(i)];
      expected += p;
      magnitude += std::abs(p);
    }
    if (!(std::abs(expected - y[row]) <= 1e-5 * magnitude)) {
      std::fprintf(stderr, "error: row %zu: %g expected, %g computed\n", row, expected, static_cast<double>(y[row]));
      std::exit(1);
    }
  }
}

/// Device copies of one matrix, so many that they pass through the cache; `make` uploads one copy.
template <class Weights, class Block, class Upload>
void run(benchmark::State& state, Upload&& upload) {
  const int k = static_cast<int>(state.range(0));
  const auto wanted = static_cast<std::size_t>(state.range(1)) * 1'000'000;
  const int rows = static_cast<int>(wanted / sizeof(Block) / static_cast<std::size_t>(k / kBlock));
  std::mt19937 rng(7);
  const auto blocks = random_blocks<Block>(static_cast<std::size_t>(rows) * static_cast<std::size_t>(k / kBlock), rng);
  const Activation x = Activation::random(k, rng);
  DeviceArray<float> y(std::vector<float>(static_cast<std::size_t>(rows), NAN));
  const int copies = static_cast<int>(std::max<std::size_t>(2, 400'000'000 / wanted));
  std::vector<decltype(upload(blocks))> owners;
  for (int i = 0; i < copies; ++i) owners.push_back(upload(blocks));
  Timeline timeline;
  const int grid = (rows + kWarps - 1) / kWarps;
  const Graph graph(timeline.stream(), [&](cudaStream_t stream) {
    for (const auto& owner : owners)
      launch(gemv<Weights>, grid, 32 * kWarps, stream, false, owner.weights(), x.row(), y.get(), k, rows);
  });
  graph.launch(timeline.stream());
  CUDA_CHECK(cudaStreamSynchronize(timeline.stream()));
  verify(blocks, x, y.to_host(), k);
  double seconds = 0;
  for (auto _ : state) {
    const double s = timeline.time([&](cudaStream_t stream) { graph.launch(stream); });
    state.SetIterationTime(s);
    seconds += s;
  }
  const double each = seconds / static_cast<double>(state.iterations()) / copies;
  state.counters["us"] = each * 1e6;
  state.counters["GB/s"] = static_cast<double>(blocks.size() * sizeof(Block)) / each * 1e-9;  // of the file's bytes
}

struct OwnedFileQ4K {
  DeviceArray<BlockQ4K> blocks;
  [[nodiscard]] FileQ4K weights() const { return {blocks.get()}; }
};
struct OwnedFileQ6K {
  DeviceArray<BlockQ6K> blocks;
  [[nodiscard]] FileQ6K weights() const { return {blocks.get()}; }
};

struct OwnedPlanesQ4K {
  DeviceArray<uint4> codes;
  DeviceArray<unsigned short> scale_min;
  DeviceArray<__half2> d;
  [[nodiscard]] PlanesQ4K weights() const { return {codes.get(), scale_min.get(), d.get()}; }
};
OwnedPlanesQ4K planes(const std::vector<BlockQ4K>& blocks) {
  std::vector<uint4> codes(blocks.size() * 8);
  std::vector<unsigned short> scale_min(blocks.size() * 8);
  std::vector<__half2> d(blocks.size());
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    d[b] = blocks[b].d;
    for (int sub = 0; sub < 8; ++sub) {
      std::uint8_t bytes[16];
      for (int j = 0; j < 16; ++j) {
        bytes[j] =
            static_cast<std::uint8_t>(code_q4k(blocks[b], sub * 32 + j) | code_q4k(blocks[b], sub * 32 + 16 + j) << 4);
      }
      int scale, min;
      unpack_scale(blocks[b].scales, sub, scale, min);
      std::memcpy(&codes[b * 8 + static_cast<std::size_t>(sub)], bytes, 16);
      scale_min[b * 8 + static_cast<std::size_t>(sub)] = static_cast<unsigned short>(scale | min << 8);
    }
  }
  return {DeviceArray<uint4>(codes), DeviceArray<unsigned short>(scale_min), DeviceArray<__half2>(d)};
}

struct OwnedPlanesQ6K {
  DeviceArray<uint4> low;
  DeviceArray<uint2> high;
  DeviceArray<unsigned short> scales;
  DeviceArray<__half> d;
  [[nodiscard]] PlanesQ6K weights() const { return {low.get(), high.get(), scales.get(), d.get()}; }
};
OwnedPlanesQ6K planes(const std::vector<BlockQ6K>& blocks) {
  std::vector<uint4> low(blocks.size() * 8);
  std::vector<uint2> high(blocks.size() * 8);
  std::vector<unsigned short> scales(blocks.size() * 8);
  std::vector<__half> d(blocks.size());
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    d[b] = blocks[b].d;
    for (int sub = 0; sub < 8; ++sub) {
      std::uint8_t nibbles[16], bits[8] = {};
      auto code = [&](int j) { return code_q6k(blocks[b], sub * 32 + j) + 32; };
      for (int j = 0; j < 16; ++j) nibbles[j] = static_cast<std::uint8_t>((code(j) & 15) | (code(16 + j) & 15) << 4);
      for (int j = 0; j < 32; ++j) bits[j % 8] = static_cast<std::uint8_t>(bits[j % 8] | (code(j) >> 4) << (j / 8 * 2));
      const std::size_t at = b * 8 + static_cast<std::size_t>(sub);
      std::memcpy(&low[at], nibbles, 16);
      std::memcpy(&high[at], bits, 8);
      scales[at] = static_cast<unsigned short>(static_cast<std::uint8_t>(blocks[b].scales[2 * sub]) |
                                               static_cast<std::uint8_t>(blocks[b].scales[2 * sub + 1]) << 8);
    }
  }
  return {DeviceArray<uint4>(low), DeviceArray<uint2>(high), DeviceArray<unsigned short>(scales),
          DeviceArray<__half>(d)};
}

void q4_k_file(benchmark::State& state) {
  run<FileQ4K, BlockQ4K>(state, [](const std::vector<BlockQ4K>& b) { return OwnedFileQ4K{DeviceArray<BlockQ4K>(b)}; });
}
void q4_k_planes(benchmark::State& state) {
  run<PlanesQ4K, BlockQ4K>(state, [](const std::vector<BlockQ4K>& b) { return planes(b); });
}
void q6_k_file(benchmark::State& state) {
  run<FileQ6K, BlockQ6K>(state, [](const std::vector<BlockQ6K>& b) { return OwnedFileQ6K{DeviceArray<BlockQ6K>(b)}; });
}
void q6_k_planes(benchmark::State& state) {
  run<PlanesQ6K, BlockQ6K>(state, [](const std::vector<BlockQ6K>& b) { return planes(b); });
}

// K, megabytes of the file's layout.
void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"K", "MB"})->ArgsProduct({{2048, 4096}, {5, 14, 35, 70}})->UseManualTime();
}
BENCHMARK(q4_k_file)->Apply(shapes);
BENCHMARK(q4_k_planes)->Apply(shapes);
BENCHMARK(q6_k_file)->Apply(shapes);
BENCHMARK(q6_k_planes)->Apply(shapes);

}  // namespace
}  // namespace tandem::bench

BENCHMARK_MAIN();
