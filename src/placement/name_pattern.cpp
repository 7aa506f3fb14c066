#include "llama/name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "ggml/log.h"
#include "regex/regex_message.h"

namespace llama {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

namespace {

// What ECMAScript writes and means otherwise than Perl: \u, empty classes, $ only at the end, unset back references
// that match nothing. Names are bytes that should be UTF-8 and need not be.
constexpr std::uint32_t kOptions = PCRE2_ALT_BSUX | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_DOLLAR_ENDONLY |
                                   PCRE2_MATCH_UNSET_BACKREF | PCRE2_DOTALL | PCRE2_UTF | PCRE2_MATCH_INVALID_UTF;
constexpr std::uint32_t kMatchLimit = 1000000;

struct FreeMatch {
  void operator()(pcre2_match_data* p) const noexcept { pcre2_match_data_free(p); }
};
struct FreeContext {
  void operator()(pcre2_match_context* p) const noexcept { pcre2_match_context_free(p); }
};

}  // namespace

struct NamePattern::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code;
};

NamePattern::NamePattern(std::string text, std::shared_ptr<const Code> code)
    : text_(std::move(text)), code_(std::move(code)) {}

ggml::Result<NamePattern> NamePattern::compile(const std::string& text) {
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), kOptions, &code, &offset, nullptr);
  if (compiled == nullptr)
    return Error(ErrorCode::invalid_argument, strf("pattern \"%s\" does not compile: at position %zu: %s", text.c_str(),
                                                   offset, regex_message(code).c_str()));
  return NamePattern(text, std::make_shared<const Code>(compiled));
}

bool NamePattern::found_in(std::string_view name) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeContext> context(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), kMatchLimit);
  const int rc = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, match.get(),
                             context.get());
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0)
    throw Error(ErrorCode::exceeds_limit,
                strf("pattern \"%s\": the search in \"%s\" was given up: %s", text_.c_str(), std::string(name).c_str(),
                     regex_message(rc).c_str()),
                "write it without repetitions inside repetitions");
  return true;
}

std::string NamePattern::literal_part() const {
  std::string literal;
  for (std::size_t i = 0; i < text_.size(); ++i) {
    const char c = text_[i];
    if (c == '\\' && i + 1 < text_.size()) {
      literal += text_[++i];
    } else if (std::string_view("^$.*+?()[]{}|").find(c) == std::string_view::npos) {
      literal += c;
    }
  }
  return literal;
}

}  // namespace llama
