#include <cmath>
#include <cstdlib>
#include <string>

#include "ggml/error.h"
#include "logits_file.h"
#include "test_support.h"

namespace {

/// Reads all records that the header promises, one at a time; log-probabilities are finite.
void walk(perplexity::LogitsReader& reader) {
  const perplexity::LogitsHeader& header = reader.header();
  std::vector<std::uint16_t> record(header.record_words());
  std::vector<float> log_p(static_cast<std::size_t>(header.n_vocab));
  for (int row = 0; row < header.n_chunk * header.rows_per_chunk(); ++row) {
    reader.read(record);
    perplexity::unpack_record(record, log_p);
    for (const float value : log_p)
      if (!std::isfinite(value)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tandem::TempDir folder;  // removed when the process ends
  const std::string path = (folder.path() / "input").string();
  tandem::save_bytes(path, {data, size});
  try {
    perplexity::LogitsReader reader(path);
    walk(reader);
  } catch (const ggml::Error& error) {
    if (error.message().find(path) != 0) std::abort();
  }
  return 0;
}
