#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "ggml/error.h"
#include "ggml/quant.h"
#include "kv/kv_test_device.h"

namespace llama {
namespace {

using ggml::DType;
using ggml::kKvBlockTokens;

KvGroupSpec full_group(int n_blocks, DType type = DType::f32) {
  KvGroupSpec spec;
  spec.layout.k_type = spec.layout.v_type = type;
  spec.layout.n_head_kv = 2;
  spec.layout.dk = spec.layout.dv = 32;
  spec.layers = {LayerId(0), LayerId(1)};
  spec.n_blocks = n_blocks;
  return spec;
}

KvGroupSpec window_group(int n_blocks, int window) {
  KvGroupSpec spec = full_group(n_blocks);
  spec.kind = KvKind::window;
  spec.window = window;
  spec.layers = {LayerId(2)};
  return spec;
}

void grow(KvCache& cache, SeqId seq, int n) {
  const KvCache::Growth growth{seq, n};
  cache.append({&growth, 1});
  cache.settle(seq);
}

int used(const KvCache& cache, int group = 0) {
  const BlockPool& pool = cache.group(GroupId(group)).pool();
  return pool.total() - pool.free();
}

/// The first key element of a cell in layer 0: what the tests write to tell cells apart.
float* cell_mark(const KvCache& cache, SeqId seq, int cell) {
  const KvGroup& group = cache.group(GroupId(0));
  const auto block = static_cast<std::size_t>(group.table(seq).blocks[static_cast<std::size_t>(cell / kKvBlockTokens)]);
  const std::size_t row = static_cast<std::size_t>(cell % kKvBlockTokens) * 32 * sizeof(float);
  return reinterpret_cast<float*>(group.layer_base(0) + block * group.spec().layout.block_bytes() + row);
}

TEST(KvCache, TwoSequencesSharingAPrefixUseTheSharedBlocksAndTwoTails) {
  MemoryOnlyDevice device;
  const KvGroupSpec spec = full_group(64);
  KvCache cache({&spec, 1}, 2, 4096, device);
  const SeqId a = cache.create();
  const SeqId b = cache.create();
  grow(cache, a, 1000);
  ASSERT_EQ(used(cache), 16);  // 15 full blocks and one with 40 cells
  cache.share_prefix(b, a, 1000);
  EXPECT_EQ(used(cache), 16);
  grow(cache, a, 10);
  grow(cache, b, 10);
  cache.check_integrity();
  EXPECT_EQ(used(cache), 15 + 2);
}

TEST(KvCache, APartlyMatchingBlockIsCopiedSoThatSharingIsByToken) {
  MemoryOnlyDevice device;
  const KvGroupSpec spec = full_group(8);
  KvCache cache({&spec, 1}, 2, 512, device);
  const SeqId a = cache.create();
  const SeqId b = cache.create();
  grow(cache, a, 100);
  for (int cell = 0; cell < 100; ++cell) *cell_mark(cache, a, cell) = static_cast<float>(cell);
  cache.share_prefix(b, a, 70);
  grow(cache, b, 1);
  *cell_mark(cache, b, 70) = -1.0f;
  cache.check_integrity();
  for (int cell = 0; cell < 70; ++cell) EXPECT_EQ(*cell_mark(cache, b, cell), static_cast<float>(cell));
  EXPECT_EQ(*cell_mark(cache, a, 70), 70.0f);
  EXPECT_EQ(cell_mark(cache, a, 3), cell_mark(cache, b, 3));
  EXPECT_NE(cell_mark(cache, a, 65), cell_mark(cache, b, 65));
}

TEST(KvCache, NewBlocksHoldNoNaN) {
  MemoryOnlyDevice device;
  const KvGroupSpec spec = full_group(2);
  KvCache cache({&spec, 1}, 1, 128, device);
  const SeqId a = cache.create();
  grow(cache, a, 1);
  for (int cell = 0; cell < kKvBlockTokens; ++cell) EXPECT_EQ(*cell_mark(cache, a, cell), 0.0f);
}

TEST(KvCache, RefusesToGrowBeyondThePoolAndChangesNothing) {
  MemoryOnlyDevice device;
  const KvGroupSpec spec = full_group(4);
  KvCache cache({&spec, 1}, 2, 256, device);
  const SeqId a = cache.create();
  const SeqId b = cache.create();
  grow(cache, a, 130);
  const KvCache::Growth growths[] = {{a, 1}, {b, 65}};
  EXPECT_FALSE(cache.can_append(growths));
  EXPECT_THROW(cache.append(growths), ggml::Error);
  EXPECT_EQ(cache.length(a), 130);
  EXPECT_EQ(cache.length(b), 0);
  EXPECT_EQ(used(cache), 3);
  cache.check_integrity();
}

TEST(KvCache, AWindowFreesTheBlocksThatItNoLongerReaches) {
  MemoryOnlyDevice device;
  const KvGroupSpec specs[] = {full_group(64), window_group(16, 100)};
  KvCache cache(specs, 1, 4096, device);
  const SeqId a = cache.create();
  for (int i = 0; i < 40; ++i) {
    grow(cache, a, 100);
    cache.check_integrity();
    EXPECT_LE(used(cache, 1), (100 + kWindowMarginCells + 100) / kKvBlockTokens + 2);
  }
  EXPECT_EQ(used(cache, 0), 63);
  EXPECT_EQ(cache.resume_point(a, 4000), 4000);
  EXPECT_EQ(cache.resume_point(a, 4000 - kWindowMarginCells), 4000 - kWindowMarginCells);
  EXPECT_EQ(cache.resume_point(a, 2000), 0);
  EXPECT_THROW(cache.truncate(a, 2000), ggml::Error);
  cache.truncate(a, 3900);
  cache.check_integrity();
  cache.truncate(a, 0);
  cache.check_integrity();
  EXPECT_EQ(used(cache, 1), 0);
}

TEST(KvCache, RandomOperationsKeepEveryInvariant) {
  MemoryOnlyDevice device;
  constexpr int kSequences = 6;
  const KvGroupSpec specs[] = {full_group(40), window_group(40, 50)};
  const std::vector<KvCache::LayerRope> ropes(3);
  for (unsigned seed = 0; seed < 20; ++seed) {
    KvCache cache(specs, kSequences, 4096, device);
    std::mt19937 random(seed);
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (int step = 0; step < 400; ++step) {
      const SeqId seq(pick(kSequences));
      if (!cache.is_alive(seq)) {
        (void)cache.create();
      } else {
        const int n = cache.length(seq);
        const SeqId other(pick(kSequences));
        try {
          switch (pick(7)) {
            case 0:
              cache.remove(seq);
              break;
            case 1:
              cache.truncate(seq, cache.resume_point(seq, pick(n + 1)));
              break;
            case 2:
              cache.share_prefix(other, seq, cache.resume_point(seq, pick(n + 1)));
              break;
            case 3:
              cache.shift(seq, pick(n + 1), 1 + pick(100), ropes);
              break;
            default:
              grow(cache, seq, 1 + pick(150));
              break;
          }
        } catch (const ggml::Error&) {  // refused: the cache must be as it was, which the next line checks
        }
      }
      cache.check_integrity();
    }
  }
}

TEST(KvCache, AShiftMovesCellsAndLeavesSharersAlone) {
  MemoryOnlyDevice device;
  KvGroupSpec spec = full_group(8);
  KvCache cache({&spec, 1}, 2, 512, device);
  const std::vector<KvCache::LayerRope> ropes(2, {{.layout = ggml::RopeLayout::none}, nullptr});
  const SeqId a = cache.create();
  const SeqId b = cache.create();
  grow(cache, a, 200);
  for (int cell = 0; cell < 200; ++cell) *cell_mark(cache, a, cell) = static_cast<float>(cell);
  cache.share_prefix(b, a, 200);
  cache.shift(a, 4, 50, ropes);
  cache.check_integrity();
  ASSERT_EQ(cache.length(a), 150);
  for (int cell = 0; cell < 150; ++cell)
    EXPECT_EQ(*cell_mark(cache, a, cell), static_cast<float>(cell < 4 ? cell : cell + 50));
  for (int cell = 0; cell < 200; ++cell) EXPECT_EQ(*cell_mark(cache, b, cell), static_cast<float>(cell));
}

class ShiftedKeys : public testing::TestWithParam<DType> {};

TEST_P(ShiftedKeys, EqualKeysThatWereRotatedForTheNewPosition) {
  MemoryOnlyDevice device;
  const KvGroupSpec spec = full_group(8, GetParam());
  KvCache cache({&spec, 1}, 1, 512, device);
  ggml::RopeParams rope;
  rope.layout = ggml::RopeLayout::neox;
  rope.n_rot = 32;
  const std::vector<KvCache::LayerRope> ropes(2, {rope, nullptr});
  const SeqId a = cache.create();
  grow(cache, a, 100);
  const ggml::KvLayout& layout = cache.group(GroupId(0)).spec().layout;
  std::vector<float> plain(32);
  for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = std::sin(static_cast<float>(i) * 1.7f + 0.3f);
  // Stores the key of position 90, head 1, by turning a stored plain key, as shift does.
  const KvGroup& group = cache.group(GroupId(0));
  std::byte* block = group.layer_base(0) + static_cast<std::size_t>(group.table(a).blocks[1]) * layout.block_bytes();
  KvCells cells(layout, block);
  std::vector<float> scratch(32);
  const std::size_t head = ggml::KvLayout::head_value_bytes(layout.k_type, 32);
  const std::size_t row = head / kKvBlockTokens;
  std::byte* values = block + head + 26 * row;
  if (GetParam() == DType::q8_0) {
    const std::uint16_t scale = ggml::f32_to_f16(1.0f / 127.0f);
    std::byte* scales = block + layout.k_scales() + ggml::KvLayout::head_scale_bytes(layout.k_type, 32) + 26 * 2;
    std::memcpy(scales, &scale, 2);
    for (std::size_t i = 0; i < 32; ++i)
      values[i] = static_cast<std::byte>(static_cast<std::int8_t>(std::lround(plain[i] * 127.0f)));
  } else {
    ggml::quantise_row(layout.k_type, plain, {}, values);
  }
  cells.rotate_key(26, KeyRotation(rope, nullptr, 90), scratch);
  cache.shift(a, 10, 30, ropes);
  // Cell 90 is now cell 60, in block 0; its key must be the plain one at position 60.
  const std::byte* moved =
      group.layer_base(0) + static_cast<std::size_t>(group.table(a).blocks[0]) * layout.block_bytes();
  std::vector<float> stored(32);
  const std::byte* at = moved + head + 60 * row;
  if (GetParam() == DType::q8_0) {
    std::uint16_t scale = 0;
    std::memcpy(&scale, moved + layout.k_scales() + ggml::KvLayout::head_scale_bytes(layout.k_type, 32) + 60 * 2, 2);
    for (std::size_t i = 0; i < 32; ++i)
      stored[i] = ggml::f16_to_f32(scale) * static_cast<float>(static_cast<std::int8_t>(at[i]));
  } else {
    ggml::dequantise_row(layout.k_type, at, 32, stored.data());
  }
  std::vector<float> expected = plain;
  KeyRotation(rope, nullptr, 60).apply(expected);
  const float bound = GetParam() == DType::f32 ? 1e-5f : GetParam() == DType::f16 ? 2e-3f : 0.03f;
  for (std::size_t i = 0; i < 32; ++i) EXPECT_NEAR(stored[i], expected[i], bound);
}

INSTANTIATE_TEST_SUITE_P(Types, ShiftedKeys, testing::Values(DType::f32, DType::f16, DType::bf16, DType::q8_0),
                         [](const auto& test) { return std::string(ggml::type_info(test.param).id); });

TEST(BlockPool, FreesABlockOnlyAfterItsLastReference) {
  BlockPool pool(2);
  const BlockId block = pool.take();
  pool.retain(block);
  pool.release(block);
  EXPECT_EQ(pool.free(), 1);
  pool.release(block);
  EXPECT_EQ(pool.free(), 2);
  pool.check_integrity();
}

}  // namespace
}  // namespace llama
