#include "random_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "ggml/error.h"
#include "ggml/quant.h"

namespace gguf_tool {
namespace {

constexpr std::size_t kTableValues = 65536;
constexpr std::int64_t kPoolWeights = 4096;

/// binary16 nearest to `value`, ties to even. Pre: finite and below 65504.
std::uint16_t half_bits(double value) {
  const double magnitude = std::fabs(value);
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  constexpr int kLeastExponent = -14;  // below it halves are denormal: steps of 2^-24
  const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), kLeastExponent) : kLeastExponent;
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  // A denormal has fewer than 1024 steps; rounding up to 2048 carries into the exponent by itself.
  return static_cast<std::uint16_t>(sign | (static_cast<std::uint32_t>(exponent - kLeastExponent) * 1024 + steps));
}

std::uint16_t bfloat_bits(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/// Mean and mean square of an integer that is uniform in [low, high].
struct Moments {
  double mean;
  double square;
};
constexpr Moments uniform(int low, int high) {
  const double n = high - low + 1;
  const double mean = (low + high) / 2.0;
  return {mean, (n * n - 1) / 12 + mean * mean};
}

/// How the scales of a quantised type lie in its block, and how large its values are when all bits are random.
struct ScaleRow {
  ggml::DType type;
  int scale_at;          // byte offset of the half-precision scale d
  int minimum_at;        // of the second one, or -1
  double minimum_per_d;  // the multiple of d that centres the values on zero
  bool random_sign;      // the codes are off centre by half a step: flip d for every other block
  double mean_square;    // of the values with d = 1
};

/// Values d q + m with m = -centre d.
constexpr ScaleRow with_offset(ggml::DType type, int codes) {
  const Moments q = uniform(0, codes - 1);
  return {type, 0, 2, -q.mean, false, q.square - q.mean * q.mean};
}
/// Values d s q - e m with 6-bit s and m, and e = d times the mean of q: E(sq)^2 - 2 E(s) E(q) E(q) E(m) + E(q)^2
/// E(m)^2.
constexpr ScaleRow with_minimum(ggml::DType type, int codes) {
  const Moments q = uniform(0, codes - 1);
  const Moments s = uniform(0, 63);
  const double cross = s.mean * q.mean * q.mean * s.mean;
  return {type, 0, 2, q.mean, false, s.square * q.square - 2 * cross + q.mean * q.mean * s.square};
}
constexpr ScaleRow centred(ggml::DType type, int low, int high, bool random_sign) {
  return {type, 0, -1, 0, random_sign, uniform(low, high).square};
}

constexpr ScaleRow kScales[] = {
    centred(ggml::DType::q4_0, -8, 7, true),
    with_offset(ggml::DType::q4_1, 16),
    centred(ggml::DType::q5_0, -16, 15, true),
    with_offset(ggml::DType::q5_1, 32),
    centred(ggml::DType::q8_0, -128, 127, false),
    with_minimum(ggml::DType::q4_k, 16),
    with_minimum(ggml::DType::q5_k, 32),
    {ggml::DType::q6_k, 208, -1, 0, false, uniform(-128, 127).square* uniform(-32, 31).square},
};

const ScaleRow* scale_row(ggml::DType type) {
  const auto* found = std::ranges::find(kScales, type, &ScaleRow::type);
  return found == std::end(kScales) ? nullptr : found;
}

bool is_float(ggml::DType type) {
  return type == ggml::DType::f32 || type == ggml::DType::f16 || type == ggml::DType::bf16;
}

template <class T>
void store(std::span<std::byte> at, T value) {
  std::memcpy(at.data(), &value, sizeof(T));
}

void store_float(ggml::DType type, std::span<std::byte> at, double value) {
  if (type == ggml::DType::f32) {
    store(at, static_cast<float>(value));
  } else {
    store(at, type == ggml::DType::f16 ? half_bits(value) : bfloat_bits(value));
  }
}

}  // namespace

RandomWords::RandomWords(std::uint64_t seed) {
  // splitmix64, as the generator's authors advise for seeding it
  for (std::uint64_t& word : state_) {
    seed += 0x9e3779b97f4a7c15U;
    std::uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    word = z ^ (z >> 31);
  }
}

std::uint64_t RandomWords::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

double RandomWords::uniform() {
  return std::ldexp(static_cast<double>(next() >> 11), -53);
}

double RandomWords::normal() {
  const double radius = std::sqrt(-2 * std::log1p(-uniform()));  // Box and Muller
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

bool RandomBlocks::can_fill(ggml::DType type) {
  return ggml::is_weight_type(type);
}

RandomBlocks::RandomBlocks(ggml::DType type, double spread, std::int64_t row)
    : type_(type), block_bytes_(0), unit_bytes_(0), spread_(spread) {
  TANDEM_ASSERT(can_fill(type), "the plan holds only types that can be filled");
  const ggml::TypeInfo& info = ggml::type_info(type);
  block_bytes_ = static_cast<std::size_t>(info.block_bytes) * static_cast<std::size_t>(info.rows_per_group);
  if (!is_float(type)) {
    const bool pooled = scale_row(type) == nullptr;
    unit_bytes_ = pooled ? ggml::row_bytes(type, row) * static_cast<std::size_t>(info.rows_per_group) : block_bytes_;
    if (pooled) make_pool();
    return;
  }
  unit_bytes_ = block_bytes_;
  RandomWords random(kTableValues);
  values_.resize(kTableValues * block_bytes_);
  for (std::size_t i = 0; i < kTableValues; ++i) {
    store_float(type, std::span(values_).subspan(i * block_bytes_, block_bytes_), random.normal() * spread);
  }
}

void RandomBlocks::make_pool() {
  const ggml::TypeInfo& info = ggml::type_info(type_);
  const std::int64_t row = kPoolWeights;  // every block's size divides it
  RandomWords random(kTableValues);
  std::vector<float> weights(static_cast<std::size_t>(row * info.rows_per_group));
  for (float& weight : weights) weight = static_cast<float>(random.normal() * spread_);
  values_.resize(ggml::row_bytes(type_, row) * static_cast<std::size_t>(info.rows_per_group));
  ggml::quantise_rows(type_, weights, row, {}, values_.data());
}

void RandomBlocks::fill_from_pool(std::span<std::byte> dst, RandomWords& random) const {
  const ggml::TypeInfo& info = ggml::type_info(type_);
  const auto header = static_cast<std::size_t>(info.row_header_bytes) * static_cast<std::size_t>(info.rows_per_group);
  const std::size_t n_blocks = (values_.size() - header) / block_bytes_;
  for (std::size_t unit = 0; unit < dst.size(); unit += unit_bytes_) {
    std::memcpy(dst.data() + unit, values_.data(), header);
    for (std::size_t at = unit + header; at < unit + unit_bytes_; at += block_bytes_) {
      std::memcpy(dst.data() + at, values_.data() + header + random.next() % n_blocks * block_bytes_, block_bytes_);
    }
  }
}

void RandomBlocks::fill(std::span<std::byte> dst, std::uint64_t seed) const {
  TANDEM_ASSERT(dst.size() % unit_bytes_ == 0, "whole units are filled");
  RandomWords random(seed);
  if (is_float(type_)) {
    fill_floats(dst, random);
  } else if (scale_row(type_) == nullptr) {
    fill_from_pool(dst, random);
  } else {
    fill_quants(dst, random);
  }
}

void RandomBlocks::fill_floats(std::span<std::byte> dst, RandomWords& random) const {
  const auto draw = [&]<class T>(T) {
    constexpr std::size_t kPerWord = 4;  // 16 bits choose one of the table's values
    const std::size_t n = dst.size() / sizeof(T);
    for (std::size_t i = 0; i < n; i += kPerWord) {
      std::uint64_t word = random.next();
      for (std::size_t j = i; j < std::min(i + kPerWord, n); ++j, word >>= 16) {
        std::memcpy(dst.data() + j * sizeof(T), values_.data() + (word & 0xffff) * sizeof(T), sizeof(T));
      }
    }
  };
  if (type_ == ggml::DType::f32) {
    draw(std::uint32_t{});
  } else {
    draw(std::uint16_t{});
  }
}

void RandomBlocks::fill_quants(std::span<std::byte> dst, RandomWords& random) const {
  for (std::size_t at = 0; at < dst.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random.next();
    std::memcpy(dst.data() + at, &word, std::min(sizeof(word), dst.size() - at));
  }
  const ScaleRow& row = *scale_row(type_);
  const double scale = spread_ / std::sqrt(row.mean_square);
  const std::uint16_t scale_bits = half_bits(scale);
  const std::uint16_t minimum_bits = half_bits(scale * row.minimum_per_d);
  for (std::size_t at = 0; at < dst.size(); at += block_bytes_) {
    const std::span<std::byte> block = dst.subspan(at, block_bytes_);
    std::uint16_t bits = scale_bits;
    if (row.random_sign) {  // the place of the scale still holds random bits: one of them is the sign
      std::uint16_t before = 0;
      std::memcpy(&before, block.data() + row.scale_at, sizeof(before));
      bits = static_cast<std::uint16_t>(bits | (before & 0x8000));
    }
    store(block.subspan(static_cast<std::size_t>(row.scale_at)), bits);
    if (row.minimum_at >= 0) store(block.subspan(static_cast<std::size_t>(row.minimum_at)), minimum_bits);
  }
}

}  // namespace gguf_tool
