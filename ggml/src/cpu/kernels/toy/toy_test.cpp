// A type that exists only here: a row, a block struct, a codec and a decoder. Nothing else was touched for it, and
// every table of kernels can do it.
#include <gtest/gtest.h>

#include "cpu/kernels/matmul_checker.h"
#include "ggml/quant.h"

namespace ggml::cpu {
namespace {

TEST(ToyType, IsKnownByItsRowAlone) {
  EXPECT_EQ(type_from_name("TOY4"), DType::toy4);
  EXPECT_EQ(type_from_gguf(9999), DType::toy4);
  EXPECT_TRUE(is_weight_type(DType::toy4));
  EXPECT_EQ(row_bytes(DType::toy4, 64), 36u);
}

TEST(ToyType, IsMultipliedByEveryTable) {
  for (const KernelTable* table : available_tables()) {
    for (const std::int64_t k : {32, 96, 256, 800}) {
      for (const std::int64_t m : {1, 2, 5, 9, 33}) {
        EXPECT_EQ(check::fault_of(*table, {.type = DType::toy4, .k = k, .n = 35, .m = m}), "");
      }
    }
  }
}

TEST(ToyType, IsNotItsNeighbour) {
  for (const KernelTable* table : available_tables()) {
    KernelTable mutant = *table;
    mutant.types[static_cast<std::size_t>(DType::toy4)] = table->of(DType::q4_0);
    EXPECT_NE(check::fault_of(mutant, {.type = DType::toy4, .k = 256, .n = 4, .m = 2}), "");
  }
}

}  // namespace
}  // namespace ggml::cpu
