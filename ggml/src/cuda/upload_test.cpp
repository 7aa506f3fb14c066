#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cuda/upload.h"
#include "ggml/cuda.h"
#include "ggml/quant.h"

// Weights that come to a card as they are in the file, in parts and in any order, against what the host writes there.
namespace ggml::cuda {
namespace {

std::vector<std::byte> random_weight(DType type, const Shape& shape, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const std::int64_t k = shape[0];
  const std::size_t bytes = tensor_bytes(type, shape) / static_cast<std::size_t>(shape.rows());
  std::vector<std::byte> weight(tensor_bytes(type, shape));
  std::vector<float> row(static_cast<std::size_t>(k));
  for (std::int64_t r = 0; r < shape.rows(); ++r) {
    // Sizes far apart, so that scales take all their bits.
    const float size = std::ldexp(1.0f, static_cast<int>(random() % 24) - 16);
    for (float& v : row) v = size * normal(random);
    quantise_row(type, row, {}, weight.data() + static_cast<std::size_t>(r) * bytes);
  }
  return weight;
}

std::vector<std::byte> bytes_on_card(Device& card, const std::byte* from, std::size_t bytes) {
  std::vector<std::byte> host(bytes);
  card.copy(host.data(), from, bytes);
  return host;
}

TEST(Upload, GivesThePlanesThatTheHostWrites) {
  const CudaDevices cuda = find_cuda_devices();
  ASSERT_FALSE(cuda.devices.empty());
  Device& card = *cuda.devices.front();
  const std::unique_ptr<Executor> copier = card.make_copier();
  const auto landing = card.allocate(card.landing_bytes(), BufferKind::device);
  std::mt19937 random(7);
  // The second one takes more places than there are.
  for (const Shape& shape : {Shape{768, 40, 5}, Shape{2048, 2304, 9}}) {
    int n_types = 0;
    for (int i = 0; i < kTypeCount; ++i) {
      const auto type = static_cast<DType>(i);
      const bool large = shape[0] > 1024;
      if (!can_upload(type) || (large && type != DType::q6_k)) continue;
      ++n_types;
      const std::vector<std::byte> src = random_weight(type, shape, random);
      const std::size_t bytes = card.weight_bytes(type, shape);
      const auto want = card.allocate(bytes, BufferKind::device), got = card.allocate(bytes, BufferKind::device);
      for (Buffer* buffer : {want.get(), got.get()}) card.clear(buffer->data(), bytes);
      card.load_weight(type, shape, src.data(), want->data());
      (void)bytes_on_card(card, want->data(), 1);  // the card is idle
      const std::unique_ptr<PinnedMemory> pinned = i % 2 == 0 ? card.pin(src) : nullptr;
      for (const std::int64_t expert : {3, 1, 0, 4, 2}) {
        const std::int64_t n = shape[1];
        const std::int64_t end = expert == 4 ? shape.rows() : (expert + 1) * n;
        copier->load_rows({type, shape, src.data(), expert * n, end}, got->data(), landing->data());
      }
      copier->synchronise();
      EXPECT_EQ(bytes_on_card(card, got->data(), bytes), bytes_on_card(card, want->data(), bytes))
          << type_info(type).id << " " << shape.text();
    }
    EXPECT_EQ(n_types, shape[0] > 1024 ? 1 : 14);
  }
}

TEST(Upload, TakesMemoryThatIsPinnedAlready) {
  const CudaDevices cuda = find_cuda_devices();
  ASSERT_FALSE(cuda.devices.empty());
  Device& card = *cuda.devices.front();
  std::vector<std::byte> memory(std::size_t{3} << 20);
  const std::unique_ptr<PinnedMemory> first = card.pin(memory);
  ASSERT_NE(first, nullptr);
  EXPECT_NE(card.pin(memory), nullptr);  // shares the first one
  const auto own = card.allocate(16384, BufferKind::host_pinned);
  EXPECT_EQ(card.pin({own->data(), own->bytes()}), nullptr);
}

}  // namespace
}  // namespace ggml::cuda
