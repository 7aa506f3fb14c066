#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/error.h"
#include "ggml/gguf.h"

namespace ggml::gguf {

/// Reads a header front to back, from memory or through a window of a file, and never past its end. All arithmetic is
/// on (position, remaining) so that no sum of hostile numbers is ever formed. Thread-compatible.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string name);
  /// `file` must outlive the cursor.
  explicit Cursor(const Reader& file);

  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }
  [[nodiscard]] std::uint64_t file_bytes() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t remaining() const noexcept { return size_ - position_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Throws unless `bytes` more can be read as header. Called before anything of that size is allocated.
  void require(std::uint64_t bytes, const char* what) const;
  void read(std::span<std::byte> dst, const char* what);
  template <class T>
  T number(const char* what) {
    T value;
    read(std::as_writable_bytes(std::span(&value, 1)), what);
    return value;
  }
  /// A length-prefixed string.
  std::string string(const char* what);

  /// Throws Error naming the file, the offset `at` and the cause; the subject (a key, a tensor) where one is set.
  [[noreturn]] void fail(std::uint64_t at, const std::string& cause, ErrorCode code = ErrorCode::invalid_file) const;
  /// What is being read from here on, for messages: "tensor 3 of 9", "tensor 'output.weight'", nothing for the header
  /// itself. Cheap, since it is called for every entry: the text is made only when there is an error. `kind` must be a
  /// literal.
  void set_subject(const char* kind, std::uint64_t number, std::uint64_t total) {
    subject_ = {kind, {}, number, total};
  }
  void set_subject(const char* kind, std::string_view name) {
    subject_.kind = kind;
    subject_.name.assign(name);
    subject_.number = 0;
  }
  void clear_subject() { subject_.kind = nullptr; }

 private:
  struct Subject {
    const char* kind = nullptr;  // null: no subject
    std::string name;
    std::uint64_t number = 0;  // counted from 1 while the name is not known yet; else 0
    std::uint64_t total = 0;
  };

  void refill();
  [[nodiscard]] std::string subject_text() const;

  std::string name_;
  Subject subject_;
  std::uint64_t size_ = 0;
  std::uint64_t position_ = 0;
  std::span<const std::byte> window_;  // unread bytes at position_
  const Reader* file_ = nullptr;
  std::vector<std::byte> storage_;  // behind window_ when reading a file
};

}  // namespace ggml::gguf
