#include "common/log/standard_output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "ggml/error.h"

namespace common {

void flush_standard_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  const int reason = errno;  // 0 when an earlier write failed
  throw ggml::Error(ggml::ErrorCode::io, "standard output could not be written" +
                                             (reason == 0 ? std::string() : std::string(": ") + std::strerror(reason)));
}

void write_standard_output(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  flush_standard_output();
}

}  // namespace common
