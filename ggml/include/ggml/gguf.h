#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "ggml/tensor.h"

/// The GGUF container: reading headers, reading tensor data, writing. Every number in a file is treated as hostile.
namespace ggml::gguf {

enum class ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
[[nodiscard]] std::string_view value_type_name(ValueType type) noexcept;

/// An array value. Numbers are kept as stored (little endian, packed), strings as strings.
struct Array {
  ValueType element = ValueType::u8;
  std::vector<std::byte> numbers;    // packed elements, unless strings
  std::vector<std::string> strings;  // when element == string
  [[nodiscard]] std::size_t size() const noexcept;
  /// Element i as a number, whatever its stored type. Pre: element is not string; i < size().
  [[nodiscard]] double number(std::size_t i) const;
  [[nodiscard]] std::int64_t integer(std::size_t i) const;
};

/// One metadata value with its stored type. Unsigned types hold uint64_t, signed ones int64_t, floats double.
struct Value {
  ValueType type = ValueType::u8;
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string, Array> data;
};

/// Hashes strings and views alike, so that look-ups by view allocate nothing.
struct NameHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>{}(text); }
};
using NameIndex = std::unordered_map<std::string, std::size_t, NameHash, std::equal_to<>>;

/// Key-value pairs in file order, with typed reads that name the key in their errors.
class Metadata {
 public:
  /// Replaces an existing key in place. Pre: value.data is the alternative that value.type asks for.
  void set(std::string key, Value value);
  /// Adds a new key; false, and nothing changed, when it exists.
  [[nodiscard]] bool insert(std::string key, Value value);
  void set_string(std::string key, std::string value);
  void set_u32(std::string key, std::uint32_t value);
  void set_i32(std::string key, std::int32_t value);
  void set_u16(std::string key, std::uint16_t value);
  void set_f32(std::string key, float value);
  void set_bool(std::string key, bool value);
  void set_strings(std::string key, std::vector<std::string> values);
  void set_f32s(std::string key, std::span<const float> values);
  void set_i32s(std::string key, std::span<const std::int32_t> values);
  bool erase(std::string_view key);

  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] bool contains(std::string_view key) const { return find(key) != nullptr; }
  [[nodiscard]] std::span<const std::pair<std::string, Value>> entries() const { return entries_; }

  /// Absent keys give nullopt; a key of another kind throws Error(invalid_file) naming key, stored type and wanted
  /// type. Integers of any stored width are accepted where they fit (a u32 key stored as u64 is fine), as are bools for
  /// integers.
  [[nodiscard]] std::optional<std::uint32_t> get_u32(std::string_view key) const;
  [[nodiscard]] std::optional<std::int64_t> get_integer(std::string_view key) const;
  [[nodiscard]] std::optional<float> get_f32(std::string_view key) const;
  [[nodiscard]] std::optional<bool> get_bool(std::string_view key) const;
  [[nodiscard]] std::optional<std::string_view> get_string(std::string_view key) const;
  [[nodiscard]] const Array* get_array(std::string_view key) const;

 private:
  std::vector<std::pair<std::string, Value>> entries_;
  NameIndex index_;
};

struct TensorInfo {
  std::string name;
  DType type = DType::f32;
  Shape shape;
  int n_dims = 1;            // as stored
  std::size_t shard = 0;     // index into File::shards()
  std::uint64_t offset = 0;  // absolute, in the shard's file
  std::uint64_t bytes = 0;
};

struct Shard {
  std::string path;
  std::uint64_t file_bytes = 0;
  std::uint64_t data_start = 0;
  std::uint32_t version = 3;
  std::uint32_t alignment = 32;
};

/// The checked headers of a model in one or more files. Immutable after open(); holds no file open.
class File {
 public:
  /// Reads and checks the headers of `path` and, when it is the first part of a split model, of all parts.
  /// Throws Error (invalid_file | unsupported | io | not_found) naming file, byte offset and cause.
  static File open(const std::string& path);
  /// The same for a split model whose parts the caller lists, in order; their names may be anything.
  static File open_parts(std::span<const std::string> paths);
  /// Parses one header from memory (fuzzing, tests); `name` stands for the path in messages.
  static File parse(std::span<const std::byte> bytes, const std::string& name);

  [[nodiscard]] const Metadata& metadata() const noexcept { return metadata_; }
  [[nodiscard]] Metadata& metadata() noexcept { return metadata_; }  // --override-kv edits before the model reads
  [[nodiscard]] std::span<const TensorInfo> tensors() const noexcept { return tensors_; }
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  [[nodiscard]] std::span<const Shard> shards() const noexcept { return shards_; }

 private:
  friend class Parser;
  static File open_one(const std::string& path);
  void append_part(File part, std::size_t number, std::int64_t n_parts);
  void check_tensor_count() const;

  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  NameIndex tensor_index_;
  std::vector<Shard> shards_;
};

/// A read-only memory mapping of a whole file. Move-only; thread-safe to read. Truncating the file elsewhere while it
/// is mapped raises SIGBUS on access: read mode avoids that.
class Mapping {
 public:
  explicit Mapping(const std::string& path);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  void will_need(std::uint64_t offset, std::uint64_t bytes) const noexcept;  // starts read-ahead
  /// Pins the range in memory; throws Error(out_of_memory) with the current limit and how to raise it.
  void lock(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::span<const std::byte> bytes_;
};

enum class ReadMode : std::uint8_t { buffered, direct };

/// Positional reads of one file; direct mode bypasses the page cache (O_DIRECT) and falls back, with one warning, where
/// the file system refuses it. Thread-safe.
class Reader {
 public:
  Reader(const std::string& path, ReadMode mode);
  ~Reader();
  Reader(Reader&& other) noexcept;
  Reader& operator=(Reader&& other) noexcept;
  /// Fills `dst` from `offset`; throws Error(io) naming file, offset and wanted bytes when the file ends early.
  void read(std::uint64_t offset, std::span<std::byte> dst) const;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t file_bytes() const noexcept { return file_bytes_; }
  /// The mode in force: buffered after a fall-back.
  [[nodiscard]] ReadMode mode() const noexcept { return mode_; }

 private:
  void read_direct(std::uint64_t offset, std::span<std::byte> dst) const;

  std::string path_;
  std::uint64_t file_bytes_ = 0;
  ReadMode mode_ = ReadMode::buffered;
  int fd_ = -1;
};

/// Writes one GGUF v3 file: metadata and tensor list first, then the data in order. The file appears under its final
/// name only after finish(); until then it is `path` + ".part", removed if the writer dies early or a write fails.
/// Thread-compatible. Errors: io (what the operating system refused, with offset), invalid_argument (a name, shape or
/// alignment that no reader would accept), internal (calls out of order).
class Writer {
 public:
  explicit Writer(std::string path);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  Metadata metadata;  // final when begin_data() is called; "general.alignment" (u32) is obeyed
  void add_tensor(std::string name, DType type, const Shape& shape);
  /// Bytes the finished file will have, with the metadata and tensors of now.
  [[nodiscard]] std::uint64_t file_bytes() const;
  /// Writes header and tensor list; after it the tensors' data follow in the order they were added.
  void begin_data();
  /// Appends data of the current tensor; may be called repeatedly until the tensor is full. A call never crosses from
  /// one tensor into the next.
  void write(std::span<const std::byte> data);
  /// Leaves the next `bytes` of the current tensor as a hole that reads as zeros and takes no space on disk.
  void write_hole(std::uint64_t bytes);
  /// Checks that every tensor is complete, pads the last and gives the file its name.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ggml::gguf
