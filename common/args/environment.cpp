#include "common/args/environment.h"

#include <cstdlib>

namespace common {

std::optional<std::string> environment(const std::string& name) {
  // Nobody calls setenv, so reading is safe from any thread.
  const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

}  // namespace common
