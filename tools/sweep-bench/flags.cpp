#include "flags.h"

#include "ggml/error.h"
#include "ggml/log.h"

namespace sweep {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

}  // namespace

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;  // a word has begun, if only with an empty pair of quotes
  char quote = 0;
  std::size_t opened = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c == '\\' && quote != '\'' && (next == '"' || next == '\'' || next == '\\' || is_blank(next))) {
      word += next;
      inside = true;
      ++i;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
      opened = i;
      inside = true;
    } else if (!is_blank(c)) {
      word += c;
      inside = true;
    } else if (inside) {
      words.push_back(std::move(word));
      word.clear();
      inside = false;
    }
  }
  if (quote != 0) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument,
                      ggml::strf("the quote %c at position %zu is not closed", quote, opened + 1));
  }
  if (inside) words.push_back(std::move(word));
  return words;
}

}  // namespace sweep
