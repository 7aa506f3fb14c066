#include "regex/regex_message.h"

#include <array>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "ggml/log.h"

namespace llama {

std::string regex_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  if (pcre2_get_error_message(code, text.data(), text.size()) < 0) return ggml::strf("error %d", code);
  return reinterpret_cast<const char*>(text.data());
}

std::string regex_fault(std::string_view pattern, std::size_t offset, int code) {
  constexpr std::size_t kShown = 200;
  return ggml::strf("pattern \"%s\", offset %zu: %s", std::string(pattern.substr(0, kShown)).c_str(), offset,
                    regex_message(code).c_str());
}

}  // namespace llama
