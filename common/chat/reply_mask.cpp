#include "common/chat/reply_mask.h"

#include <algorithm>

#include "ggml/error.h"
#include "ggml/log.h"
#include "llama/utf8.h"
#include "llama/vocab.h"

namespace common::chat {

namespace {

/// Whether `piece` goes on with the character that `begun` is the beginning of, and leaves no other one begun.
bool finishes_or_goes_on(std::string_view begun, std::string_view piece) {
  const std::string text = std::string(begun).append(piece);
  const std::size_t left = llama::unfinished_utf8_bytes(text);
  return left == text.size() || (left == 0 && llama::is_valid_utf8(text));
}

}  // namespace

ReplyMask::ReplyMask(std::shared_ptr<const ReplyRules> rules, const llama::Vocab& vocab)
    : rules_(std::move(rules)), vocab_(vocab), parser_(rules_->reading) {
  if (rules_->grammar && !rules_->lazy) {
    grammar_.emplace(rules_->grammar);
    if (!rules_->grammar_opening.empty() && !grammar_->feed(rules_->grammar_opening)) {
      // The template opens the reply in a way the format does not know: then the grammar begins after it.
      ggml::logf(ggml::LogLevel::debug, "chat: the generation prompt does not fit the grammar: %s",
                 rules_->grammar_opening.c_str());
      grammar_.emplace(rules_->grammar);
    }
  }
  if (parser_.in_reasoning()) count_reasoning(false);
}

bool ReplyMask::fill(std::span<std::uint32_t> words) {
  if (forced_) {
    std::fill(words.begin(), words.end(), 0U);
    const auto token = static_cast<std::size_t>(rules_->reasoning_end[*forced_]);
    words[token / 32] |= 1U << (token % 32);
    return true;
  }
  if (spent_) return fill_rest_of_character(words);
  return grammar_ && grammar_->fill(words);
}

/// The tokens that finish the character which is begun, and those that bring it nearer to its end. Each adds a byte to
/// it at least, so three are enough.
bool ReplyMask::fill_rest_of_character(std::span<std::uint32_t> words) {
  const bool limited = grammar_ && grammar_->fill(words);
  if (!limited) std::fill(words.begin(), words.end(), 0U);
  bool any = false;
  for (llama::Token token = 0; token < vocab_.n_tokens(); ++token) {
    std::uint32_t& word = words[static_cast<std::size_t>(token) / 32];
    const std::uint32_t bit = 1U << (token % 32);
    if (limited && (word & bit) == 0) continue;
    const std::string_view piece = vocab_.piece(token, llama::SpecialText::show);
    const bool goes_on = !piece.empty() && !vocab_.is_eog(token) && finishes_or_goes_on(unfinished_, piece);
    word = goes_on ? word | bit : word & ~bit;
    any = any || goes_on;
  }
  if (any) return true;
  // A vocabulary that cannot write the rest: then the character stays broken.
  spent_ = false;
  forced_ = 0;
  return fill(words);
}

void ReplyMask::accept(llama::Token token) {
  if (forced_ && ++*forced_ >= rules_->reasoning_end.size()) forced_.reset();
  if (grammar_) grammar_->accept(token);
  if (vocab_.is_eog(token) || !vocab_.contains(token)) return;
  // Once a grammar that waited for a call is at work, nothing else is left to be decided.
  if (grammar_ && rules_->lazy) return;
  const bool was_inside = parser_.in_reasoning();
  const std::string_view piece = vocab_.piece(token, llama::SpecialText::show);
  read(piece);
  unfinished_.append(piece);
  unfinished_.erase(0, unfinished_.size() - llama::unfinished_utf8_bytes(unfinished_));
  spent_ = false;
  if (parser_.in_reasoning()) count_reasoning(was_inside);
}

/// Byte by byte: the grammar begins where the call does, which may be inside a token.
void ReplyMask::read(std::string_view piece) {
  const bool waits = rules_->grammar && rules_->lazy && !grammar_;
  if (!waits) {
    (void)parser_.push(piece);
    return;
  }
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const bool was_call = parser_.in_call();
    (void)parser_.push(piece.substr(i, 1));
    if (!was_call && parser_.in_call()) {
      start_grammar(parser_.part_text() + std::string(piece.substr(i + 1)));
      if (grammar_) return;
    }
  }
}

void ReplyMask::start_grammar(const std::string& text) {
  grammar_.emplace(rules_->grammar);
  if (grammar_->feed(text)) return;
  ggml::logf(ggml::LogLevel::debug, "chat: the beginning of a call does not fit its grammar: %s", text.c_str());
  grammar_.reset();
}

void ReplyMask::count_reasoning(bool was_inside) {
  if (was_inside) ++n_reasoning_;
  if (rules_->reasoning_budget < 0 || n_reasoning_ < rules_->reasoning_budget) return;
  if (forced_ || rules_->reasoning_end.empty()) return;
  spent_ = !unfinished_.empty();
  if (!spent_) forced_ = 0;
}

std::string ReplyMask::failure() const {
  return grammar_ ? grammar_->failure() : std::string();
}

std::vector<llama::Token> tokens_of_marks(const ReplyFormat& format, const llama::Vocab& vocab) {
  const std::vector<std::string> marks = format.marks();
  std::vector<llama::Token> tokens;
  for (llama::Token token = 0; token < vocab.n_tokens(); ++token) {
    if (!vocab.is_control(token) && vocab.type(token) != llama::TokenType::unknown) continue;
    const std::string_view text = vocab.piece(token, llama::SpecialText::show);
    if (text.empty()) continue;
    const bool occurs = std::any_of(marks.begin(), marks.end(),
                                    [&](const std::string& mark) { return mark.find(text) != std::string::npos; });
    if (occurs) tokens.push_back(token);
  }
  return tokens;
}

}  // namespace common::chat
