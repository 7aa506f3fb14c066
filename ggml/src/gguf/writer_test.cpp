#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <csignal>
#include <limits>

#include "raw_gguf.h"
#include "test_support.h"

namespace ggml::gguf {
namespace {

std::vector<std::byte> pattern(std::size_t n, unsigned seed) {
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) {
    seed = seed * 1664525U + 1013904223U;
    bytes[i] = static_cast<std::byte>(seed >> 24);
  }
  return bytes;
}

void copy_file(const File& file, const std::string& from, const std::string& to) {
  Writer writer(to);
  for (const auto& [key, value] : file.metadata().entries()) writer.metadata.set(key, value);
  for (const TensorInfo& tensor : file.tensors()) writer.add_tensor(tensor.name, tensor.type, tensor.shape);
  const std::uint64_t expected_bytes = writer.file_bytes();
  writer.begin_data();
  const Reader reader(from, ReadMode::buffered);
  for (const TensorInfo& tensor : file.tensors()) {
    std::vector<std::byte> data(static_cast<std::size_t>(tensor.bytes));
    reader.read(tensor.offset, data);
    writer.write(data);
  }
  writer.finish();
  EXPECT_EQ(std::filesystem::file_size(to), expected_bytes);
}

void expect_equal(const Value& a, const Value& b) {
  ASSERT_EQ(a.type, b.type);
  ASSERT_EQ(a.data.index(), b.data.index());
  if (const auto* array = std::get_if<Array>(&a.data)) {
    const auto& other = std::get<Array>(b.data);
    EXPECT_EQ(array->element, other.element);
    EXPECT_EQ(array->numbers, other.numbers);
    EXPECT_EQ(array->strings, other.strings);
  } else if (const auto* number = std::get_if<double>(&a.data)) {
    const double other = std::get<double>(b.data);
    EXPECT_TRUE(*number == other || (*number != *number && other != other));
  } else {
    EXPECT_TRUE(std::visit(
        [&](const auto& x) {
          using T = std::decay_t<decltype(x)>;
          if constexpr (std::is_same_v<T, Array>) {
            return false;
          } else {
            return x == std::get<T>(b.data);
          }
        },
        a.data));
  }
}

TEST(GgufWriter, WritesEveryValueTypeSoThatTheReaderFindsTheSame) {
  const tandem::TempDir folder;
  const std::string path = (folder.path() / "copy.gguf").string();
  const std::string source = (tandem::data_dir() / "gguf/bad/ok_all_value_types.gguf").string();
  const File original = File::open(source);
  copy_file(original, source, path);
  const File copy = File::open(path);
  std::array<bool, 13> seen{};
  ASSERT_EQ(copy.metadata().entries().size(), original.metadata().entries().size());
  for (std::size_t i = 0; i < copy.metadata().entries().size(); ++i) {
    const auto& [key, value] = original.metadata().entries()[i];
    SCOPED_TRACE(key);
    EXPECT_EQ(copy.metadata().entries()[i].first, key);
    expect_equal(copy.metadata().entries()[i].second, value);
    seen[static_cast<std::size_t>(value.type)] = true;
  }
  for (std::size_t type = 0; type < seen.size(); ++type) EXPECT_TRUE(seen[type]) << "no value of type " << type;
}

TEST(GgufWriter, CopiesAFileOfAnotherWriterByteForByte) {
  const tandem::TempDir folder;
  const std::string path = (folder.path() / "copy.gguf").string();
  const std::string source = (tandem::data_dir() / "gguf/bad/ok_trailing_bytes.gguf").string();
  copy_file(File::open(source), source, path);
  const std::vector<std::byte> copy = file_content(path);
  std::vector<std::byte> original = file_content(source);
  ASSERT_LE(copy.size(), original.size());
  original.resize(copy.size());
  EXPECT_EQ(copy, original);
}

TEST(GgufWriter, GivesBackTensorsOfEveryTypeWithPaddingAndAlignment) {
  const tandem::TempDir folder;
  const std::string path = (folder.path() / "types.gguf").string();
  Writer writer(path);
  writer.metadata.set_u32("general.alignment", 256);
  const Shape shape(512, 16, 2);  // whole blocks and whole groups of interleaved rows
  std::vector<std::vector<std::byte>> data;
  for (int i = 0; i < kTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    writer.add_tensor("tensor." + std::string(type_info(type).id), type, shape);
    data.push_back(pattern(tensor_bytes(type, shape), static_cast<unsigned>(i)));
  }
  writer.begin_data();
  EXPECT_FALSE(std::filesystem::exists(path)) << "the name appears only when the file is complete";
  EXPECT_TRUE(std::filesystem::exists(path + ".part"));
  for (const std::vector<std::byte>& bytes : data) {
    const std::size_t half = bytes.size() / 2;
    writer.write(std::span(bytes).first(half));
    writer.write(std::span(bytes).subspan(half));
  }
  writer.finish();
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));

  const File file = File::open(path);
  const Mapping mapping(path);
  ASSERT_EQ(file.tensors().size(), data.size());
  for (std::size_t i = 0; i < data.size(); ++i) {
    const TensorInfo& tensor = file.tensors()[i];
    EXPECT_EQ(tensor.offset % 256, 0U);
    ASSERT_EQ(tensor.bytes, data[i].size()) << tensor.name;
    const auto stored = mapping.bytes().subspan(tensor.offset, tensor.bytes);
    EXPECT_TRUE(std::equal(stored.begin(), stored.end(), data[i].begin())) << tensor.name;
  }
  EXPECT_EQ(mapping.bytes().size() % 256, 0U) << "the last tensor is padded too";
}

TEST(GgufWriter, LeavesHolesThatReadAsZeros) {
  const tandem::TempDir folder;
  const std::string path = (folder.path() / "sparse.gguf").string();
  constexpr std::int64_t kElements = 64 << 20;
  Writer writer(path);
  writer.add_tensor("first", DType::f32, Shape(1));
  writer.add_tensor("hole", DType::f32, Shape(kElements));
  writer.add_tensor("last", DType::f32, Shape(3));
  const std::uint64_t expected_bytes = writer.file_bytes();
  writer.begin_data();
  writer.write(pattern(4, 1));
  writer.write_hole(kElements * 4);
  writer.write_hole(12);
  writer.finish();
  EXPECT_EQ(std::filesystem::file_size(path), expected_bytes);
  const File file = File::open(path);
  std::array<std::byte, 12> end{};
  end.fill(std::byte{1});
  Reader(path, ReadMode::buffered).read(file.find("last")->offset, end);
  EXPECT_EQ(end, (std::array<std::byte, 12>{}));
}

TEST(GgufWriter, RefusesNamesAndShapesThatNoReaderAccepts) {
  Writer writer("/nonexistent/x.gguf");
  writer.add_tensor("a", DType::f32, Shape(4));
  const auto code = [&](const std::string& name, DType type, const Shape& shape) {
    return error_of([&] { writer.add_tensor(name, type, shape); }).code();
  };
  EXPECT_EQ(code("a", DType::f32, Shape(4)), ErrorCode::invalid_argument);
  EXPECT_EQ(code("", DType::f32, Shape(4)), ErrorCode::invalid_argument);
  EXPECT_EQ(code(std::string(64, 'x'), DType::f32, Shape(4)), ErrorCode::invalid_argument);
  EXPECT_EQ(code("b", DType::q4_k, Shape(128)), ErrorCode::invalid_argument);
  EXPECT_EQ(code("b", DType::f32, Shape(0)), ErrorCode::invalid_argument);
  EXPECT_EQ(code("b", DType::f32, Shape(std::int64_t{1} << 40, std::int64_t{1} << 40)), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { writer.begin_data(); }).code(), ErrorCode::io);
  writer.metadata.set_u32("general.alignment", 48);
  EXPECT_EQ(error_of([&] { writer.begin_data(); }).code(), ErrorCode::invalid_argument);
}

TEST(GgufWriter, LeavesNothingBehindWhenTensorsAreIncomplete) {
  const tandem::TempDir folder;
  const std::string path = (folder.path() / "x.gguf").string();
  {
    Writer writer(path);
    writer.add_tensor("a", DType::f32, Shape(4));
    writer.begin_data();
    writer.write(pattern(12, 1));
    EXPECT_NE(error_of([&] { writer.finish(); }).message().find("lacks 4 bytes"), std::string::npos);
  }
  {
    Writer abandoned(path);
    abandoned.begin_data();
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

/// Limits the size of files for the time of its life, as a full disk would.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(GgufWriter, WritesOverRegularFilesOnly) {
  const tandem::TempDir folder;
  const std::filesystem::path path = folder.path() / "target";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  for (const std::string& target : {path.string(), folder.path().string()}) {
    Writer writer(target);
    const Error error = error_of([&] { writer.begin_data(); });
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_NE(error.message().find(target + ": is not a regular file"), std::string::npos) << error.message();
  }
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

TEST(GgufWriter, ReportsAFullDiskOnceAndLeavesNoFile) {
  const tandem::TempDir folder;
  const std::string path = (folder.path() / "big.gguf").string();
  {
    Writer writer(path);
    writer.add_tensor("a", DType::f32, Shape(1 << 20));
    writer.begin_data();
    const FileSizeLimit limit(1 << 20);
    const Error error = error_of([&] {
      for (int i = 0; i < 8; ++i) writer.write(pattern(512 << 10, 1));
      writer.finish();
    });
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_NE(error.message().find(path + ".part: byte "), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("cannot write: File too large"), std::string::npos) << error.message();
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace ggml::gguf
