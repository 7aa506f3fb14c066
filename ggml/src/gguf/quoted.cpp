#include "ggml/quoted.h"

#include "ggml/log.h"

namespace ggml::gguf {

std::string quoted(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += strf("\\x%02x", byte);
    } else {
      out += c;
    }
  }
  out += text.size() > kLongest ? "...'" : "'";
  return out;
}

}  // namespace ggml::gguf
