#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "ggml/error.h"
#include "ggml/hadamard.h"
#include "ggml/kv_rows.h"
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

class RandomOperations : public testing::TestWithParam<DType> {};

TEST_P(RandomOperations, KeepEveryInvariant) {
  MemoryOnlyDevice device;
  constexpr int kSequences = 6;
  const KvGroupSpec specs[] = {full_group(40, GetParam()), window_group(40, 50)};
  const std::vector<KvCache::LayerRope> ropes(3);
  for (unsigned seed = 0; seed < 8; ++seed) {
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

INSTANTIATE_TEST_SUITE_P(Types, RandomOperations,
                         testing::Values(DType::f32, DType::q8_0, DType::q8_kv, DType::q6_0, DType::q5_1, DType::q4_0,
                                         DType::iq4_nl),
                         [](const auto& test) { return std::string(ggml::type_info(test.param).id); });

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

/// The key of one cell and head 1 in layer 0, read and written as the cache keeps it.
class StoredKey {
 public:
  StoredKey(const KvCache& cache, SeqId seq, int cell) : layout_(cache.group(GroupId(0)).spec().layout) {
    const KvGroup& group = cache.group(GroupId(0));
    const auto entry = static_cast<std::size_t>(cell / kKvBlockTokens);
    block_ = group.layer_base(0) +
             static_cast<std::size_t>(group.table(seq).blocks[entry]) * group.spec().layout.block_bytes();
    const ggml::KvForm form = ggml::kv_form(layout_.k_type);
    const auto row =
        static_cast<std::size_t>(kKvBlockTokens) + static_cast<std::size_t>(cell % kKvBlockTokens);  // of head 1
    values_ = block_ + row * form.value_bytes(layout_.dk);
    scales_ = block_ + layout_.k_scales() + row * form.scale_bytes(layout_.dk);
  }
  void write(const std::vector<float>& key) {
    ggml::encode_kv_row(layout_.k_type, key.data(), layout_.dk, values_, scales_);
  }
  [[nodiscard]] std::vector<float> read() const {
    std::vector<float> key(static_cast<std::size_t>(layout_.dk));
    ggml::decode_kv_row(layout_.k_type, values_, scales_, 0, layout_.dk, key.data());
    return key;
  }
  [[nodiscard]] std::vector<std::byte> bytes() const {
    const ggml::KvForm form = ggml::kv_form(layout_.k_type);
    std::vector<std::byte> all(values_, values_ + form.value_bytes(layout_.dk));
    all.insert(all.end(), scales_, scales_ + form.scale_bytes(layout_.dk));
    return all;
  }
  [[nodiscard]] std::byte* block() const { return block_; }

 private:
  const ggml::KvLayout& layout_;
  std::byte *block_, *values_, *scales_;
};

std::vector<float> key_of(int cell) {
  std::vector<float> key(32);
  for (std::size_t i = 0; i < key.size(); ++i)
    key[i] = std::sin(static_cast<float>(i) * 1.7f + 0.3f + static_cast<float>(cell) * 0.11f);
  return key;
}

/// Largest error of an element of size one or less.
double bound_of(DType type) {
  if (type == DType::f32) return 1e-5;
  if (type == DType::f16) return 2e-3;
  const int bits = ggml::kv_form(type).bits;
  return bits == 16 || bits == 8 ? 0.03 : 2.5 / (1 << bits);
}

struct ShiftCase {
  DType type;
  bool hadamard;
};

class ShiftedKeys : public testing::TestWithParam<ShiftCase> {};

TEST_P(ShiftedKeys, EqualKeysThatWereRotatedForTheNewPosition) {
  MemoryOnlyDevice device;
  const auto [type, hadamard] = GetParam();
  const KvGroupSpec spec = full_group(8, type);
  KvCache cache({&spec, 1}, 1, 512, device);
  ggml::RopeParams rope;
  rope.layout = ggml::RopeLayout::neox;
  rope.n_rot = 32;
  const std::vector<KvCache::LayerRope> ropes(2, {rope, nullptr, hadamard});
  const SeqId a = cache.create();
  grow(cache, a, 100);
  const std::vector<float> plain = key_of(0);
  std::vector<float> at_90 = plain;
  KeyRotation(rope, nullptr, 90).apply(at_90);
  if (hadamard) ggml::hadamard(at_90.data(), 32);
  StoredKey(cache, a, 90).write(at_90);
  cache.shift(a, 10, 30, ropes);
  // Cell 90 is now cell 60, in block 0; its key must be the plain one at position 60.
  std::vector<float> stored = StoredKey(cache, a, 60).read();
  if (hadamard) ggml::hadamard(stored.data(), 32);
  std::vector<float> expected = plain;
  KeyRotation(rope, nullptr, 60).apply(expected);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_NEAR(stored[i], expected[i], 2 * bound_of(type));
}

TEST_P(ShiftedKeys, ShareAndCopyOnWriteKeepTheirBytes) {
  MemoryOnlyDevice device;
  const DType type = GetParam().type;
  const KvGroupSpec spec = full_group(16, type);
  KvCache cache({&spec, 1}, 3, 512, device);
  const std::vector<KvCache::LayerRope> ropes(2, {{.layout = ggml::RopeLayout::none}, nullptr, GetParam().hadamard});
  const SeqId a = cache.create(), b = cache.create(), c = cache.create();
  grow(cache, a, 150);
  std::vector<std::vector<std::byte>> written;
  for (int cell = 0; cell < 150; ++cell) {
    StoredKey(cache, a, cell).write(key_of(cell));
    written.push_back(StoredKey(cache, a, cell).bytes());
  }
  cache.share_prefix(b, a, 100);
  cache.share_prefix(c, a, 150);
  grow(cache, b, 20);
  for (int cell = 100; cell < 120; ++cell) StoredKey(cache, b, cell).write(key_of(1000 + cell));
  cache.check_integrity();
  EXPECT_EQ(StoredKey(cache, a, 3).block(), StoredKey(cache, b, 3).block());
  EXPECT_NE(StoredKey(cache, a, 99).block(), StoredKey(cache, b, 99).block());
  cache.shift(c, 20, 40, ropes);
  cache.truncate(b, 110);
  cache.check_integrity();
  for (int cell = 0; cell < 150; ++cell)
    EXPECT_EQ(StoredKey(cache, a, cell).bytes(), written[static_cast<std::size_t>(cell)]) << cell;
  for (int cell = 0; cell < 100; ++cell)
    EXPECT_EQ(StoredKey(cache, b, cell).bytes(), written[static_cast<std::size_t>(cell)]) << cell;
  for (int cell = 0; cell < 110; ++cell) {
    const std::vector<float> moved = StoredKey(cache, c, cell).read();
    const std::vector<float> expected = key_of(cell < 20 ? cell : cell + 40);
    for (std::size_t i = 0; i < 32; ++i) EXPECT_NEAR(moved[i], expected[i], 2 * bound_of(type)) << cell;
  }
}

std::vector<ShiftCase> shift_cases() {
  std::vector<ShiftCase> cases;
  for (int i = 0; i < ggml::kTypeCount; ++i)
    for (const bool hadamard : {false, true})
      if (const auto type = static_cast<DType>(i); ggml::type_info(type).kv_capable) cases.push_back({type, hadamard});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Types, ShiftedKeys, testing::ValuesIn(shift_cases()), [](const auto& test) {
  return std::string(ggml::type_info(test.param.type).id) + (test.param.hadamard ? "_hadamard" : "");
});

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
