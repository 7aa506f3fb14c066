#include <gtest/gtest.h>

#include <array>

#include "raw_gguf.h"
#include "test_support.h"

namespace ggml::gguf {
namespace {

/// What one part of a split model says of itself; tests spoil one field at a time.
struct Part {
  std::uint16_t number = 0;
  std::uint16_t count = 3;
  std::int32_t n_tensors = 3;
  std::string tensor;
};

class ThreeParts : public ::testing::Test {
 protected:
  ThreeParts() : parts_{{0, 3, 3, "a"}, {1, 3, 3, "b"}, {2, 3, 3, "c"}} {}

  [[nodiscard]] std::string path(std::size_t i) const {
    return (folder_.path() / ("model-0000" + std::to_string(i + 1) + "-of-00003.gguf")).string();
  }

  void write() const {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      Writer writer(path(i));
      if (i == 0) writer.metadata.set_string("general.architecture", "test");
      writer.metadata.set_u16("split.no", part.number);
      writer.metadata.set_u16("split.count", part.count);
      writer.metadata.set_i32("split.tensors.count", part.n_tensors);
      writer.add_tensor(part.tensor, DType::f32, Shape(4));
      writer.begin_data();
      writer.write(std::vector<std::byte>(16, static_cast<std::byte>(i + 1)));
      writer.finish();
    }
  }

  [[nodiscard]] Error open_error() const {
    write();
    return error_of([&] { (void)File::open(path(0)); });
  }

  tandem::TempDir folder_;
  std::vector<Part> parts_;
};

void expect_says(const Error& error, const std::string& words) {
  EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
}

TEST_F(ThreeParts, LoadsAllPartsFromTheFirst) {
  write();
  const File file = File::open(path(0));
  ASSERT_EQ(file.shards().size(), 3U);
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.metadata().get_string("general.architecture"), "test");
  const TensorInfo* c = file.find("c");
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->shard, 2U);
  EXPECT_EQ(file.shards()[2].path, path(2));
  std::array<std::byte, 16> data{};
  Reader(file.shards()[c->shard].path, ReadMode::buffered).read(c->offset, data);
  EXPECT_EQ(data[15], std::byte{3});
}

TEST_F(ThreeParts, LoadsRenamedPartsFromAList) {
  write();
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < 3; ++i) {
    paths.push_back((folder_.path() / ("renamed" + std::to_string(i))).string());
    std::filesystem::rename(path(i), paths.back());
  }
  EXPECT_EQ(File::open_parts(paths).tensors().size(), 3U);
  expect_says(error_of([&] { (void)File::open(paths[0]); }), "must end with -00001-of-00003.gguf");
  std::swap(paths[1], paths[2]);
  expect_says(error_of([&] { (void)File::open_parts(paths); }), "split.no is 2, 1 was expected");
  paths.pop_back();
  expect_says(error_of([&] { (void)File::open_parts(paths); }), "in 3 parts, but 2 files are given");
}

TEST_F(ThreeParts, RefusesAPartThatIsNotTheFirstAndNamesTheFirst) {
  write();
  const Error error = error_of([&] { (void)File::open(path(1)); });
  expect_says(error, "this is part 2 of a model in 3 parts");
  EXPECT_NE(error.hint().find(path(0)), std::string::npos) << error.hint();
}

TEST_F(ThreeParts, RefusesAWrongPartNumber) {
  parts_[1].number = 2;
  expect_says(open_error(), path(1) + ": split.no is 2, 1 was expected");
}

TEST_F(ThreeParts, RefusesAPartOfAnotherCount) {
  parts_[2].count = 4;
  expect_says(open_error(), path(2) + ": split.count is 4, the first part says 3");
}

TEST_F(ThreeParts, RefusesAMissingPart) {
  write();
  std::filesystem::remove(path(2));
  const Error error = error_of([&] { (void)File::open(path(0)); });
  EXPECT_EQ(error.code(), ErrorCode::not_found);
  expect_says(error, path(2));
}

TEST_F(ThreeParts, RefusesATensorNameThatOccursInTwoParts) {
  parts_[2].tensor = "a";
  expect_says(open_error(), path(2) + ": tensor 'a' is in " + path(0) + " already");
}

TEST_F(ThreeParts, RefusesATensorCountThatTheFilesDoNotHold) {
  parts_[0].n_tensors = 4;
  expect_says(open_error(), "split.tensors.count is 4, but the 3 parts hold 3 tensors");
}

TEST_F(ThreeParts, RefusesATensorCountBelowZero) {
  parts_[0].n_tensors = -1;
  expect_says(open_error(), path(0) + ": split.tensors.count is -1, a number of tensors was expected");
}

TEST_F(ThreeParts, RefusesADamagedPartByItsName) {
  write();
  std::filesystem::resize_file(path(1), 20);
  expect_says(error_of([&] { (void)File::open(path(0)); }), path(1) + ": byte 16: ");
}

TEST_F(ThreeParts, TakesAFileWithACountOfOneOrZeroAsWhole) {
  for (const std::uint16_t count : {0, 1}) {
    const std::string name = (folder_.path() / "whole.gguf").string();
    Writer writer(name);
    writer.metadata.set_u16("split.count", count);
    writer.begin_data();
    writer.finish();
    EXPECT_EQ(File::open(name).shards().size(), 1U);
  }
}

}  // namespace
}  // namespace ggml::gguf
