#include "common/setup/output_file.h"

#include <filesystem>
#include <system_error>

#include "ggml/error.h"
#include "ggml/log.h"

namespace common {

void check_output(const std::string& output, std::span<const std::string> inputs) {
  namespace fs = std::filesystem;
  using ggml::Error;
  using ggml::ErrorCode;
  if (output.empty()) throw Error(ErrorCode::invalid_argument, "the output has no name", "give a file");
  std::error_code failed;
  const fs::file_status there = fs::status(output, failed);
  if (!fs::exists(there)) return;
  if (!fs::is_regular_file(there))
    throw Error(ErrorCode::invalid_argument, output + ": is there and not a regular file", "give another output");
  for (const std::string& input : inputs) {
    if (input.empty() || !fs::equivalent(input, output, failed)) continue;
    throw Error(ErrorCode::invalid_argument,
                ggml::strf("%s: would be written over %s, which this run reads", output.c_str(), input.c_str()),
                "give another output");
  }
}

}  // namespace common
