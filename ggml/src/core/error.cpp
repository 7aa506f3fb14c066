#include "ggml/error.h"

#include <cstdio>
#include <cstdlib>

namespace ggml {

void assertion_failed(const char* file, int line, const char* condition, const char* what) noexcept {
  std::fprintf(stderr, "%s:%d: assertion failed: %s: %s\n", file, line, condition, what);
  std::abort();
}

}  // namespace ggml
