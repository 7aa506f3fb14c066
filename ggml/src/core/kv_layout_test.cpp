#include "ggml/kv_layout.h"

#include <gtest/gtest.h>

namespace ggml {
namespace {

TEST(KvLayout, PutsPlanesOneAfterAnotherAligned) {
  const KvLayout f16{DType::f16, DType::f16, 8, 128, 128};
  EXPECT_EQ(f16.k_values(), 0u);
  EXPECT_EQ(f16.k_scales(), 8u * 64 * 128 * 2);
  EXPECT_EQ(f16.v_values(), f16.k_scales()) << "float types have no scales";
  EXPECT_EQ(f16.block_bytes(), 2u * 8 * 64 * 128 * 2);

  const KvLayout mixed{DType::q8_0, DType::f32, 3, 96, 80};
  EXPECT_EQ(mixed.k_scales(), 3u * 64 * 96);
  EXPECT_EQ(mixed.v_values() - mixed.k_scales(), 3u * 64 * 3 * 2);
  EXPECT_EQ(mixed.v_scales() - mixed.v_values(), 3u * 64 * 80 * 4);
  EXPECT_EQ(mixed.block_bytes(), mixed.v_scales());
}

TEST(KvLayout, TakesForEachTypeTheBytesOfItsBlocks) {
  for (int i = 0; i < kTypeCount; ++i) {
    const TypeInfo& info = type_info(static_cast<DType>(i));
    if (!info.kv_capable) continue;
    const KvForm form = kv_form(info.type);
    EXPECT_EQ(form.quantised, info.block_weights > 1) << info.id;
    const std::size_t bytes = form.value_bytes(128) + form.scale_bytes(128);
    // A row has the bytes that it has in files; of a header of eight bytes the cache keeps the scale alone.
    EXPECT_EQ(bytes, row_bytes(info.type, 128) - (info.row_header_bytes == 8 ? 4 : 0)) << info.id;
    const KvLayout kv{info.type, info.type, 4, 128, 128};
    EXPECT_EQ(kv.block_bytes(), 2 * 64 * 4 * bytes) << info.id << ": planes of whole lines have no gaps";
  }
  EXPECT_EQ((KvLayout{DType::q4_1, DType::q5_0, 1, 64, 64}.block_bytes()), 64u * (40 + 44));
  EXPECT_EQ(kv_form(DType::q6_0).bits, 6);
  EXPECT_EQ(kv_form(DType::q8_kv).row_bytes, 4);
}

TEST(KvLayout, AlignsEveryPlaneTo64Bytes) {
  for (DType type :
       {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0, DType::q5_1, DType::q6_0, DType::q8_kv})
    for (int heads : {1, 3, 5})
      for (int dim : {32, 64, 96, 160}) {
        const KvLayout kv{type, type, heads, dim, dim};
        ASSERT_TRUE(kv.supported());
        for (std::size_t at : {kv.k_scales(), kv.v_values(), kv.v_scales(), kv.block_bytes()}) EXPECT_EQ(at % 64, 0u);
        EXPECT_EQ(KvLayout::head_value_bytes(type, dim) % 64, 0u) << "heads stay aligned inside a plane";
        EXPECT_EQ(KvLayout::head_scale_bytes(type, dim) % 64, 0u);
      }
}

TEST(KvLayout, HasNoValuePlaneWithoutValues) {
  const KvLayout latent{DType::f16, DType::f16, 1, 576, 0};
  EXPECT_EQ(latent.block_bytes(), 64u * 576 * 2);
}

TEST(KvLayout, RefusesWhatItCannotHold) {
  EXPECT_FALSE((KvLayout{DType::q8_0, DType::f16, 1, 80, 80}.supported()));
  EXPECT_FALSE((KvLayout{DType::f16, DType::q4_0, 1, 64, 48}.supported()));
  EXPECT_TRUE((KvLayout{DType::q4_0, DType::f16, 1, 64, 48}.supported()));
  EXPECT_TRUE((KvLayout{DType::q4_0, DType::q4_0, 1, 64, 0}.supported()));
  EXPECT_FALSE((KvLayout{DType::f16, DType::q4_k, 1, 64, 64}.supported()));
}

}  // namespace
}  // namespace ggml
