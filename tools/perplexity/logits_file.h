#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llama/types.h"

namespace perplexity {

/// What a file of log-probabilities begins with. Users exchange such files, so the layout is fixed: "_logits_", i32
/// n_ctx, i32 n_vocab, i32 n_chunk, i32 tokens[n_chunk * n_ctx], then one record per evaluated position.
struct LogitsHeader {
  int n_ctx = 0, n_vocab = 0, n_chunk = 0;
  std::vector<llama::Token> tokens;  // [n_chunk * n_ctx]
  /// Evaluated positions of a chunk: the second half but the last.
  [[nodiscard]] int rows_per_chunk() const { return n_ctx - 1 - n_ctx / 2; }
  /// u16 words of a record: f32 scale, f32 least log-probability, a code per token, padded to even.
  [[nodiscard]] std::size_t record_words() const { return 2 * ((static_cast<std::size_t>(n_vocab) + 1) / 2) + 4; }
};

/// Packs one row of logits into `record` (record_words() words): 16-bit codes over the range from the greatest
/// log-probability down by at most 16. Returns the exact log-probability of `token`.
double pack_record(std::span<const float> logits, llama::Token token, std::span<std::uint16_t> record);
/// The log-probabilities that a record holds, [n_vocab].
void unpack_record(std::span<const std::uint16_t> record, std::span<float> log_p);

struct FileCloser {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

/// Writes such a file under a temporary name; finish() renames it.
class LogitsWriter {
 public:
  /// Throws ggml::Error(io).
  LogitsWriter(const std::string& path, const LogitsHeader& header);
  ~LogitsWriter();
  LogitsWriter(const LogitsWriter&) = delete;
  LogitsWriter& operator=(const LogitsWriter&) = delete;
  void write(std::span<const std::uint16_t> records);
  void finish();

 private:
  void put(const void* data, std::size_t bytes);
  [[noreturn]] void fail();
  const std::string path_, part_;
  std::unique_ptr<std::FILE, FileCloser> file_;
};

/// Reads one. Throws ggml::Error(invalid_file) for a file that is none, that ends early or whose numbers are none.
class LogitsReader {
 public:
  explicit LogitsReader(const std::string& path);
  [[nodiscard]] const LogitsHeader& header() const { return header_; }
  /// The next records; `records` is a multiple of record_words().
  void read(std::span<std::uint16_t> records);

 private:
  void get(void* data, std::size_t bytes);
  const std::string path_;
  std::unique_ptr<std::FILE, FileCloser> file_;
  LogitsHeader header_;
  std::size_t records_read_ = 0;
};

}  // namespace perplexity
