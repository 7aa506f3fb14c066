#include "common/args/tensor_rules.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <memory>

namespace common {
namespace {

struct CodeDeleter {
  void operator()(pcre2_code* code) const noexcept { pcre2_code_free(code); }
};

[[noreturn]] void fail(const Argument& argument, const std::string& why, std::string hint = {}) {
  throw ggml::Error(ggml::ErrorCode::invalid_argument,
                    "error while handling " +
                        std::string(argument.from_environment ? "environment variable" : "argument") + " \"" +
                        argument.name + "\": " + why,
                    std::move(hint));
}

/// Compiles the pattern the way ECMAScript means it, only to learn whether it is one.
void check_pattern(const Argument& argument, const std::string& pattern) {
  constexpr std::uint32_t kOptions =
      PCRE2_ALT_BSUX | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_DOLLAR_ENDONLY | PCRE2_MATCH_UNSET_BACKREF | PCRE2_DOTALL;
  int code = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, CodeDeleter> compiled(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), kOptions, &code, &offset, nullptr));
  if (compiled) return;
  std::array<PCRE2_UCHAR, 256> reason{};
  pcre2_get_error_message(code, reason.data(), reason.size());
  fail(argument, "pattern \"" + pattern + "\" does not compile: at position " + std::to_string(offset) + ": " +
                     reinterpret_cast<const char*>(reason.data()));
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t comma = text.find(','); comma != std::string::npos; comma = text.find(',', begin)) {
    parts.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

/// The `=` that ends the pattern: the first one that is not part of a lookahead (?= or lookbehind (?<=.
std::size_t separator(const std::string& item) {
  std::size_t at = item.find('=');
  while (at != std::string::npos) {
    const std::string_view before(item.data(), at);
    if (!before.ends_with("(?") && !before.ends_with("(?<")) break;
    at = item.find('=', at + 1);
  }
  return at;
}

}  // namespace

std::vector<std::string> buffer_types() {
  return {"CPU"};
}

std::vector<TensorRule> parse_tensor_rules(const Argument& argument) {
  std::vector<TensorRule> rules;
  const std::vector<std::string> parts = split_at_commas(argument.value());
  for (const std::string& item : parts) {
    const std::size_t equals = separator(item);
    if (equals == std::string::npos || equals == 0) {
      fail(argument,
           "invalid value: \"" + item + "\" is not PATTERN=BUFFER" +
               (parts.size() > 1 ? " (a comma always begins the next item, so a pattern cannot hold one)" : ""));
    }
    TensorRule rule{item.substr(0, equals), item.substr(equals + 1)};
    check_pattern(argument, rule.first);
    const std::vector<std::string> known = buffer_types();
    if (std::find(known.begin(), known.end(), rule.second) == known.end()) {
      std::string list = "Available buffer types:";
      for (const std::string& name : known) list += "\n  " + name;
      fail(argument, "unknown buffer type \"" + rule.second + "\"\nerror: Invalid tensor buffer type override: " + item,
           std::move(list));
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace common
