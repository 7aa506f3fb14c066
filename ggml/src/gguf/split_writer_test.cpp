#include "ggml/split_writer.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <vector>

#include "ggml/error.h"
#include "ggml/fill_pipeline.h"
#include "test_support.h"

namespace ggml::gguf {
namespace {

class SplitWriting : public ::testing::Test {
 protected:
  SplitWriting() {
    model_.metadata.set_string("general.architecture", "x");
    model_.metadata.set_u32("general.alignment", 64);
    model_.metadata.set_u16("split.count", 7);  // of the source
    model_.tensors = {{"a", DType::f32, Shape(3)}, {"b", DType::f32, Shape(5, 2)}, {"c", DType::f32, Shape(1)}};
  }
  void write_all(SplitWriter& writer) const {
    for (const OutputTensor& tensor : model_.tensors) {
      const std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()),
                                      static_cast<float>(tensor.name[0]));
      writer.write(std::as_bytes(std::span(values)));
    }
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  [[nodiscard]] std::size_t files() const {
    const std::filesystem::directory_iterator entries(folder_.path());
    return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
  }

  SplitModel model_;
  tandem::TempDir folder_;
};

TEST_F(SplitWriting, MakesPartsThatOpenAsOneModelWithEveryKeyInTheFirst) {
  model_.part_tensors = {0, 2, 1};
  SplitWriter writer(path("m"), model_);
  const std::uint64_t total = writer.total_bytes();
  write_all(writer);
  writer.finish();
  EXPECT_EQ(writer.paths()[2], path("m-00003-of-00003.gguf"));
  const File file = File::open(path("m-00001-of-00003.gguf"));
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.find("c")->shard, 2U);
  EXPECT_EQ(file.metadata().get_integer("split.tensors.count"), 3);
  EXPECT_EQ(file.metadata().get_string("general.architecture"), "x");
  std::uint64_t bytes = 0;
  for (const Shard& shard : file.shards()) {
    bytes += shard.file_bytes;
    EXPECT_EQ(shard.alignment, 64U);
  }
  EXPECT_EQ(bytes, total);
  std::array<float, 10> values{};
  const TensorInfo* b = file.find("b");
  Reader(file.shards()[b->shard].path, ReadMode::buffered).read(b->offset, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values[9], static_cast<float>('b'));
}

TEST_F(SplitWriting, RemovesTheKeysOfASplitFromASingleFile) {
  SplitWriter writer(path("m.gguf"), model_);
  write_all(writer);
  writer.finish();
  EXPECT_EQ(File::open(path("m.gguf")).metadata().find("split.count"), nullptr);
}

TEST_F(SplitWriting, LeavesNothingBehindWhenItDiesEarly) {
  model_.part_tensors = {1, 1, 1};
  {
    SplitWriter writer(path("m"), model_);
    const std::vector<float> values(3);
    writer.write(std::as_bytes(std::span(values)));
    writer.write(std::as_bytes(std::span(values)));
    EXPECT_EQ(files(), 2U);
  }
  EXPECT_EQ(files(), 0U);
}

TEST_F(SplitWriting, LeavesNoPartWhenOneCannotHaveItsName) {
  model_.part_tensors = {1, 2};
  SplitWriter writer(path("m"), model_);
  write_all(writer);
  std::filesystem::create_directory(path("m-00002-of-00002.gguf"));
  EXPECT_THROW(writer.finish(), Error);
  EXPECT_EQ(files(), 1U);
}

TEST(FillPipeline, HandsChunksOutInOrderWhateverTheNumberOfWorkers) {
  for (const int workers : {0, 1, 5}) {
    FillPipeline pipeline(
        std::vector<std::size_t>(50, 4),
        [](std::size_t number, std::span<std::byte> dst) { std::memcpy(dst.data(), &number, dst.size()); }, workers);
    for (std::uint32_t i = 0; i < 50; ++i) {
      std::uint32_t seen = 0;
      const std::span<const std::byte> bytes = pipeline.next();
      std::memcpy(&seen, bytes.data(), sizeof(seen));
      EXPECT_EQ(seen, i);
    }
  }
}

}  // namespace
}  // namespace ggml::gguf
