#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>
#include <thread>

#include "raw_gguf.h"
#include "test_support.h"

namespace ggml::gguf {
namespace {

/// A file of random bytes whose size is no multiple of anything.
class ThreeWays : public ::testing::Test {
 protected:
  ThreeWays() : path_((folder_.path() / "data.bin").string()) {
    std::mt19937_64 random(7);
    std::vector<std::uint64_t> words(std::size_t{10} << 17);
    for (std::uint64_t& word : words) word = random();
    std::ofstream file(path_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(words.data()), static_cast<std::streamsize>(words.size() * 8));
    file << "odd";
  }

  tandem::TempDir folder_;
  std::string path_;
};

TEST_F(ThreeWays, DirectReadsEqualBufferedReadsAndTheMapping) {
  const Mapping mapping(path_);
  const Reader buffered(path_, ReadMode::buffered);
  const Reader direct(path_, ReadMode::direct);
  const std::size_t size = mapping.bytes().size();
  ASSERT_EQ(buffered.file_bytes(), size);
  if (direct.mode() != ReadMode::direct) GTEST_LOG_(INFO) << "this file system has no direct I/O";
  std::mt19937 random(3);
  std::vector<std::pair<std::size_t, std::size_t>> ranges{
      {0, size}, {0, 4096}, {4096, 8192}, {1, 1}, {size - 1, 1}, {size - 5000, 5000}, {4095, 2}, {0, 0}, {size, 0}};
  for (int i = 0; i < 50; ++i) {
    const std::size_t offset = random() % size;
    ranges.emplace_back(offset, random() % (size - offset));
  }
  std::vector<std::byte> a(size + 1);
  std::vector<std::byte> b(size + 1);
  for (const auto& [offset, bytes] : ranges) {
    const std::size_t shift = offset % 2;  // aligned and unaligned memory
    const auto into_a = std::span(a).subspan(shift, bytes);
    const auto into_b = std::span(b).subspan(shift, bytes);
    buffered.read(offset, into_a);
    direct.read(offset, into_b);
    const auto mapped = mapping.bytes().subspan(offset, bytes);
    ASSERT_TRUE(std::equal(mapped.begin(), mapped.end(), into_a.begin())) << offset << " " << bytes;
    ASSERT_TRUE(std::equal(mapped.begin(), mapped.end(), into_b.begin())) << offset << " " << bytes;
  }
}

TEST_F(ThreeWays, ReadsFromManyThreadsAtOnce) {
  const Mapping mapping(path_);
  for (const ReadMode mode : {ReadMode::buffered, ReadMode::direct}) {
    const Reader reader(path_, mode);
    std::vector<std::thread> threads;
    std::array<bool, 4> equal{};
    for (std::size_t t = 0; t < equal.size(); ++t) {
      threads.emplace_back([&, t] {
        std::vector<std::byte> bytes(1 << 20);
        const std::size_t offset = t * 777777 + 13;
        reader.read(offset, bytes);
        equal[t] =
            std::equal(bytes.begin(), bytes.end(), mapping.bytes().begin() + static_cast<std::ptrdiff_t>(offset));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const bool same : equal) EXPECT_TRUE(same);
  }
}

TEST_F(ThreeWays, ReadingPastTheEndNamesFileOffsetAndSize) {
  for (const ReadMode mode : {ReadMode::buffered, ReadMode::direct}) {
    const Reader reader(path_, mode);
    std::vector<std::byte> bytes(100);
    for (const std::uint64_t offset : {reader.file_bytes() - 50, reader.file_bytes() + 5000, ~std::uint64_t{0}}) {
      const Error error = error_of([&] { reader.read(offset, bytes); });
      EXPECT_EQ(error.code(), ErrorCode::io);
      EXPECT_EQ(error.message().find(path_ + ": byte "), 0U) << error.message();
    }
  }
}

TEST_F(ThreeWays, AdviceAndLocksOutsideTheFileAreCutToIt) {
  const Mapping mapping(path_);
  mapping.will_need(0, ~std::uint64_t{0});
  mapping.will_need(~std::uint64_t{0}, 1);
  EXPECT_NO_THROW(mapping.lock(mapping.bytes().size(), 10));
  Mapping moved = Mapping(path_);
  Mapping target(std::move(moved));
  EXPECT_EQ(target.bytes().size(), mapping.bytes().size());
  EXPECT_TRUE(moved.bytes().empty());  // NOLINT: moved-from is empty by contract
}

TEST(GgufReader, OpensOnlyRegularFiles) {
  const tandem::TempDir folder;
  const std::string pipe = (folder.path() / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Error error = error_of([&] { const Reader reader(pipe, ReadMode::buffered); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_NE(error.message().find("a regular file was expected"), std::string::npos) << error.message();
  EXPECT_EQ(error_of([] { const Mapping mapping("/nonexistent"); }).code(), ErrorCode::not_found);
}

TEST(GgufMapping, OfAnEmptyFileIsEmpty) {
  const tandem::TempDir folder;
  const std::string path = (folder.path() / "empty").string();
  std::ofstream(path).flush();
  EXPECT_TRUE(Mapping(path).bytes().empty());
}

}  // namespace
}  // namespace ggml::gguf
