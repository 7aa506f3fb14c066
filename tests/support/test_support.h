#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem {

/// The folder with the big golden files: $TANDEM_SHARED, else ../shared beside the source tree; nothing when it is
/// absent. Tests run in the root of the source tree.
[[nodiscard]] std::optional<std::filesystem::path> shared_dir();
/// tests/data of the source tree.
[[nodiscard]] std::filesystem::path data_dir();

/// How often a test goes through random cases: `n` times, but a tenth of that under a sanitizer. Those look for faults
/// that most cases would show alike, and each case costs them a multiple.
[[nodiscard]] int rounds(int n);
/// Whether this is a build with AddressSanitizer or ThreadSanitizer.
[[nodiscard]] bool is_sanitized();

/// A numpy array file. `bytes` are the packed elements in C order; `shape` is slowest axis first, as numpy prints it.
struct Npy {
  std::string dtype;  // "<f4", "|u1", "<i4", "<f8" ...
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
  [[nodiscard]] std::vector<float> floats() const;    // from <f4 or <f8
  [[nodiscard]] std::vector<double> doubles() const;  // from <f4 or <f8
};
[[nodiscard]] Npy load_npy(const std::filesystem::path& path);
[[nodiscard]] std::string load_text(const std::filesystem::path& path);
/// A file of these bytes and no others.
void save_bytes(const std::filesystem::path& path, std::span<const std::uint8_t> bytes);

/// A folder that is removed with its contents at the end of the scope.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace tandem
