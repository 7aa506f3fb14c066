#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ggml/error.h"
#include "llama/importance.h"
#include "test_support.h"

namespace {

/// What could be read must be usable: finite means, and both formats written and read again.
void use(const llama::ImportanceMatrix& matrix, const std::string& folder) {
  constexpr std::size_t kMostOfGguf = 63 - std::string_view(".in_sum2").size();
  bool any_reached = false;
  bool fits_gguf = true;
  for (const auto& [name, entry] : matrix.entries) {
    for (const float mean : llama::ImportanceMatrix::means(entry))
      if (!std::isfinite(mean) || mean < 0) std::abort();
    fits_gguf = fits_gguf && name.size() <= kMostOfGguf;
    for (const float count : entry.counts) any_reached = any_reached || count > 0;
  }
  if (!any_reached) return;  // the file would hold no entry
  const std::string legacy = folder + "/legacy";
  matrix.save_legacy(legacy);
  if (llama::ImportanceMatrix::load(legacy).entries.empty()) std::abort();
  if (!fits_gguf) return;
  const std::string gguf = folder + "/gguf";
  matrix.save_gguf(gguf);
  if (llama::ImportanceMatrix::load(gguf).entries.empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tandem::TempDir folder;  // removed when the process ends
  const std::string path = (folder.path() / "input").string();
  tandem::save_bytes(path, {data, size});
  llama::ImportanceMatrix matrix;
  try {
    matrix = llama::ImportanceMatrix::load(path);
  } catch (const ggml::Error& error) {
    if (error.message().find(path) != 0) std::abort();
    return 0;
  }
  use(matrix, folder.path().string());
  return 0;
}
