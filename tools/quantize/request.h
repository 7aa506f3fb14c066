#pragma once

#include <string>

#include "common/args/settings.h"
#include "llama/quantize.h"

namespace quantize {

/// What the command line asks for, resolved.
struct Request {
  std::string input, output;
  llama::QuantizeParams params;
};

/// Throws ggml::Error(invalid_argument) for words that are no request: an unknown type (with the list of types), a bad
/// number of threads, a broken file of rules. Reads the importance matrix into `importance`, which must outlive the
/// request.
[[nodiscard]] Request make_request(const common::Settings& settings, llama::ImportanceMatrix& importance);

}  // namespace quantize
