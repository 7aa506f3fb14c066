#include "logits_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "common/score/log_softmax.h"
#include "ggml/error.h"

namespace perplexity {
namespace {

constexpr std::string_view kMagic = "_logits_";
constexpr float kRange = 16;  // what is less likely than exp(-16) of the likeliest is as good as impossible
constexpr float kCodes = 65535;
constexpr std::size_t kHeadWords = 4;  // two floats

struct RecordHead {
  float scale = 0, min_log_p = 0;
};
RecordHead head_of(std::span<const std::uint16_t> record) {
  RecordHead head;
  std::memcpy(&head.scale, record.data(), sizeof(head.scale));
  std::memcpy(&head.min_log_p, record.data() + 2, sizeof(head.min_log_p));
  return head;
}

}  // namespace

double pack_record(std::span<const float> logits, llama::Token token, std::span<std::uint16_t> record) {
  const common::LogSum sum = common::log_sum_of(logits);
  const float least = std::max(*std::min_element(logits.begin(), logits.end()), sum.max - kRange);
  const float scale = (sum.max - least) / kCodes;
  const auto min_log_p = static_cast<float>(static_cast<double>(least - sum.max) - sum.log_sum);
  std::memcpy(record.data(), &scale, sizeof(scale));
  std::memcpy(record.data() + 2, &min_log_p, sizeof(min_log_p));
  std::fill(record.begin() + kHeadWords, record.end(), std::uint16_t{0});
  if (scale > 0) {
    const float inverse = 1 / scale;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] <= least) continue;
      const float code = std::min(std::nearbyint(inverse * (logits[i] - least)), kCodes);
      record[kHeadWords + i] = static_cast<std::uint16_t>(code);
    }
  }
  return static_cast<double>(logits[static_cast<std::size_t>(token)] - sum.max) - sum.log_sum;
}

void unpack_record(std::span<const std::uint16_t> record, std::span<float> log_p) {
  const RecordHead head = head_of(record);
  for (std::size_t i = 0; i < log_p.size(); ++i)
    log_p[i] = head.scale * static_cast<float>(record[kHeadWords + i]) + head.min_log_p;
}

LogitsWriter::LogitsWriter(const std::string& path, const LogitsHeader& header)
    : path_(path), part_(path + ".part"), file_(std::fopen(part_.c_str(), "wb")) {
  if (!file_) fail();
  put(kMagic.data(), kMagic.size());
  const std::int32_t numbers[] = {header.n_ctx, header.n_vocab, header.n_chunk};
  put(numbers, sizeof(numbers));
  put(header.tokens.data(), header.tokens.size() * sizeof(llama::Token));
}

LogitsWriter::~LogitsWriter() {
  if (file_) ::unlink(part_.c_str());
}

void LogitsWriter::fail() {
  const int reason = errno;
  throw ggml::Error(ggml::ErrorCode::io,
                    // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread writes
                    fmt::format("{}: cannot write: {}", part_, std::strerror(reason)));
}

void LogitsWriter::put(const void* data, std::size_t bytes) {
  if (bytes > 0 && std::fwrite(data, bytes, 1, file_.get()) != 1) fail();
}

void LogitsWriter::write(std::span<const std::uint16_t> records) {
  put(records.data(), records.size_bytes());
}

void LogitsWriter::finish() {
  if (std::fflush(file_.get()) != 0 || std::rename(part_.c_str(), path_.c_str()) != 0) fail();
  file_.reset();
}

LogitsReader::LogitsReader(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rb")) {
  if (!file_) throw ggml::Error(ggml::ErrorCode::not_found, path + ": cannot be opened");
  std::string magic(kMagic.size(), '\0');
  get(magic.data(), magic.size());
  if (magic != kMagic)
    throw ggml::Error(ggml::ErrorCode::invalid_file, path + ": is no file of log-probabilities",
                      "make one with --kl-divergence-base and without --kl-divergence");
  std::int32_t numbers[3] = {};
  get(numbers, sizeof(numbers));
  header_.n_ctx = numbers[0];
  header_.n_vocab = numbers[1];
  header_.n_chunk = numbers[2];
  std::error_code no_size;  // a pipe has none
  const std::uintmax_t size = std::filesystem::file_size(path, no_size);
  if (no_size)
    throw ggml::Error(ggml::ErrorCode::invalid_file, path + ": is no regular file, so its size is unknown",
                      "write it to disk first");
  const auto tokens =
      static_cast<std::uintmax_t>(std::max(numbers[0], 0)) * static_cast<std::uintmax_t>(std::max(numbers[2], 0));
  if (header_.n_ctx < 4 || header_.n_vocab < 1 || header_.n_chunk < 1 || tokens > size / sizeof(llama::Token) ||
      header_.record_words() > size / sizeof(std::uint16_t)) {
    throw ggml::Error(ggml::ErrorCode::invalid_file,
                      fmt::format("{}: {} chunks of {} tokens and a vocabulary of {} cannot be in {} bytes", path,
                                  numbers[2], numbers[0], numbers[1], size));
  }
  header_.tokens.resize(static_cast<std::size_t>(tokens));
  get(header_.tokens.data(), header_.tokens.size() * sizeof(llama::Token));
  for (const llama::Token token : header_.tokens) {
    if (token >= 0 && token < header_.n_vocab) continue;
    throw ggml::Error(ggml::ErrorCode::invalid_file,
                      fmt::format("{}: token {} is not in a vocabulary of {}", path, token, header_.n_vocab));
  }
}

void LogitsReader::get(void* data, std::size_t bytes) {
  if (bytes == 0 || std::fread(data, bytes, 1, file_.get()) == 1) return;
  throw ggml::Error(ggml::ErrorCode::invalid_file,
                    fmt::format("{}: ends early, at byte {}", path_, std::ftell(file_.get())),
                    "the run that wrote it did not end; make it anew");
}

void LogitsReader::read(std::span<std::uint16_t> records) {
  get(records.data(), records.size_bytes());
  for (std::size_t at = 0; at < records.size(); at += header_.record_words(), ++records_read_) {
    const RecordHead head = head_of(records.subspan(at));
    if (head.scale >= 0 && std::isfinite(head.min_log_p) && std::isfinite(head.scale * kCodes + head.min_log_p))
      continue;
    throw ggml::Error(ggml::ErrorCode::invalid_file,
                      fmt::format("{}: record {} has the scale {} and the least log-probability {}", path_,
                                  records_read_, head.scale, head.min_log_p),
                      "the model that wrote it gave logits that are no numbers, or the file is damaged");
  }
}

}  // namespace perplexity
