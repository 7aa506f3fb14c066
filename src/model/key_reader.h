#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/gguf.h"

namespace llama {

struct IntRange {
  std::int64_t min = 0;
  std::int64_t max = 0;
};
struct RealRange {
  double min = 0;
  double max = 0;
};

/// Typed, range-checked reads of the `<architecture>.*` keys. A key that is missing, of another type or out of range
/// does not end the reading: it is noted, a value inside the range is returned, and finish() reports all of them.
class KeyReader {
 public:
  KeyReader(const ggml::gguf::Metadata& metadata, std::string arch, std::string file);

  /// `fallback` empty: the key is required.
  [[nodiscard]] int integer(std::string_view suffix, IntRange range, std::optional<int> fallback);
  [[nodiscard]] float real(std::string_view suffix, RealRange range, std::optional<float> fallback);
  [[nodiscard]] bool flag(std::string_view suffix, bool fallback);
  [[nodiscard]] std::string text(std::string_view suffix, std::string_view fallback);
  /// One value for each of `n` layers: a scalar stands for all, an array must have exactly `n` entries.
  [[nodiscard]] std::vector<int> per_layer(std::string_view suffix, int n, IntRange range,
                                           const std::vector<int>& fallback);
  /// Up to `max_count` values of an array; empty when the file has no such key.
  [[nodiscard]] std::vector<int> list(std::string_view suffix, std::size_t max_count, IntRange range);
  /// A key that does not begin with the architecture's name; required.
  [[nodiscard]] int integer_of(std::string_view key, IntRange range);
  [[nodiscard]] bool contains(std::string_view suffix) const;
  [[nodiscard]] bool is_array(std::string_view suffix) const;

  void problem(std::string text) { problems_.push_back(std::move(text)); }
  [[nodiscard]] std::string full_name(std::string_view suffix) const;
  /// Throws Error(invalid_file) with every problem noted so far, if there is one.
  void finish() const;

 private:
  [[nodiscard]] int read_integer(const std::string& key, IntRange range, std::optional<int> fallback);

  const ggml::gguf::Metadata& metadata_;
  std::string arch_;
  std::string file_;
  std::vector<std::string> problems_;
};

/// "n problems with `file`:" and one line for each of them, at most 20.
[[nodiscard]] std::string list_problems(const std::string& file, const std::vector<std::string>& problems);

}  // namespace llama
