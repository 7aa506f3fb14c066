#include "common/grammar/trigger.h"

#include <algorithm>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "ggml/error.h"
#include "ggml/log.h"
#include "llama/vocab.h"
#include "regex/regex_message.h"

namespace common::grammar {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

/// A compiled regular expression. Immutable.
class Trigger::Pattern {
 public:
  explicit Pattern(const std::string& text) {
    int code = 0;
    PCRE2_SIZE offset = 0;
    const std::uint32_t options = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C;
    regex_.reset(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options, &code, &offset, nullptr));
    if (regex_ == nullptr) {
      throw Error(ErrorCode::invalid_argument,
                  "grammar trigger: " + llama::regex_fault(text, static_cast<std::size_t>(offset), code));
    }
    (void)pcre2_jit_compile(regex_.get(), PCRE2_JIT_COMPLETE);  // without it matching is slower, no more
    limits_.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(limits_.get(), kMaxSteps);
  }

  /// Where the grammar begins: the first group that took part, else the whole match.
  [[nodiscard]] std::optional<std::size_t> find(const std::string& text, std::size_t from) const {
    const std::unique_ptr<pcre2_match_data, FreeData> data(pcre2_match_data_create_from_pattern(regex_.get(), nullptr));
    const std::string_view part = std::string_view(text).substr(from);
    const int n = pcre2_match(regex_.get(), reinterpret_cast<PCRE2_SPTR>(part.data()), part.size(), 0, 0, data.get(),
                              limits_.get());
    if (n <= 0) return std::nullopt;  // no match, or one that costs too much to look for
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    for (int group = 1; group < n; ++group) {
      if (range[2 * group] != PCRE2_UNSET) return from + range[2 * group];
    }
    return from + range[0];
  }

 private:
  static constexpr std::uint32_t kMaxSteps = 1'000'000;
  struct FreeCode {
    void operator()(pcre2_code* p) const noexcept { pcre2_code_free(p); }
  };
  struct FreeData {
    void operator()(pcre2_match_data* p) const noexcept { pcre2_match_data_free(p); }
  };
  struct FreeContext {
    void operator()(pcre2_match_context* p) const noexcept { pcre2_match_context_free(p); }
  };
  std::unique_ptr<pcre2_code, FreeCode> regex_;
  std::unique_ptr<pcre2_match_context, FreeContext> limits_;
};

Trigger::Trigger(const LazyTriggers& triggers, const llama::Vocab& vocab)
    : tokens_(triggers.tokens), only_after_(triggers.only_after), is_armed_(triggers.only_after.empty()) {
  for (const std::string& word : triggers.words) {
    if (word.empty()) throw Error(ErrorCode::invalid_argument, "grammar trigger: a word is empty");
    words_.push_back(word);
  }
  for (const llama::Token token : tokens_) {
    if (!vocab.contains(token))
      throw Error(ErrorCode::invalid_argument,
                  strf("grammar trigger: token %d is outside the vocabulary of %d tokens", token, vocab.n_tokens()));
  }
  for (const std::string& pattern : triggers.patterns) patterns_.push_back(std::make_shared<const Pattern>(pattern));
}

std::optional<std::size_t> Trigger::find(std::size_t n_new) const {
  std::optional<std::size_t> first;
  const auto take = [&](std::size_t offset) {
    if (!first.has_value() || offset < *first) first = offset;
  };
  for (const std::string& word : words_) {
    // A word that ended earlier would have been found earlier.
    const std::size_t reach = std::min(text_.size(), n_new + word.size() - 1);
    const std::size_t offset = text_.find(word, std::max(search_from_, text_.size() - reach));
    if (offset != std::string::npos) take(offset);
  }
  for (const auto& pattern : patterns_) {
    if (const auto offset = pattern->find(text_, search_from_)) take(*offset);
  }
  return first;
}

Trigger::Start Trigger::start_at(std::size_t offset) const {
  Start start;
  const auto whole = std::find_if(seen_.begin(), seen_.end(), [&](const Seen& s) { return s.begin >= offset; });
  const std::size_t end = whole == seen_.end() ? text_.size() : whole->begin;
  start.text = text_.substr(offset, end - offset);
  for (auto it = whole; it != seen_.end(); ++it) start.tokens.push_back(it->token);
  return start;
}

std::optional<Trigger::Start> Trigger::add(llama::Token token, std::string_view piece) {
  if (is_armed_ && std::find(tokens_.begin(), tokens_.end(), token) != tokens_.end()) return Start{{}, {token}};
  seen_.push_back({token, text_.size()});
  return add_text(piece);
}

std::optional<Trigger::Start> Trigger::add_text(std::string_view text) {
  text_ += text;
  if (!is_armed_) {
    const std::size_t found =
        text_.find(only_after_, text_.size() - std::min(text_.size(), text.size() + only_after_.size()));
    if (found == std::string::npos) return std::nullopt;
    is_armed_ = true;
    search_from_ = found + only_after_.size();
  }
  const auto offset = find(text.size());
  if (!offset.has_value()) return std::nullopt;
  return start_at(*offset);
}

}  // namespace common::grammar
