#include "common/args/tensor_rules.h"

#include "llama/name_pattern.h"

namespace common {
namespace {

[[noreturn]] void fail(const Argument& argument, const std::string& why) {
  throw ggml::Error(ggml::ErrorCode::invalid_argument,
                    "error while handling " +
                        std::string(argument.from_environment ? "environment variable" : "argument") + " \"" +
                        argument.name + "\": " + why);
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
    const ggml::Result<llama::NamePattern> pattern = llama::NamePattern::compile(rule.first);
    if (!pattern.ok()) fail(argument, pattern.error().message());
    if (rule.second.empty()) fail(argument, "invalid value: \"" + item + "\" names no buffer type behind the =");
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace common
