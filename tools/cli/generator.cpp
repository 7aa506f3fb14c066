#include "generator.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "ggml/error.h"
#include "ggml/log.h"
#include "llama/utf8.h"

namespace cli {
namespace {

using Clock = std::chrono::steady_clock;
using ggml::Error;
using ggml::ErrorCode;
using llama::Token;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Whether one of `words` ends within the last `n_new` bytes of `text`: a token may end behind the word.
bool has_new(const std::string& text, std::size_t n_new, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    const std::size_t reach = std::min(text.size(), n_new + word.size() - 1);
    return !word.empty() && text.find(word, text.size() - reach) != std::string::npos;
  });
}

}  // namespace

Generator::Generator(llama::Context& context, const llama::SamplingParams& sampling, bool (*interrupted)())
    : context_(context),
      sampler_(sampling, context.model().vocab(), context.params().n_ctx),
      interrupted_(interrupted),
      seq_(context.create_sequence()) {}

void Generator::check_fits(const std::vector<Token>& tokens) const {
  if (fits(tokens)) return;
  throw Error(ErrorCode::exceeds_limit,
              ggml::strf("the prompt has %zu tokens, the context holds %d", tokens.size(), context_.params().n_ctx),
              "use a larger -c");
}

void Generator::set_prompt(const std::vector<Token>& tokens) {
  if (tokens.empty()) {
    throw Error(ErrorCode::invalid_argument, "the prompt has no tokens",
                "its text is empty, or nothing in the vocabulary of the model is a part of it: llama-gguf FILE --json");
  }
  check_fits(tokens);
  const std::size_t known = std::min(n_cached_, tokens.size());
  const auto differs =
      std::mismatch(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(known), tokens_.begin());
  const int common = static_cast<int>(differs.first - tokens.begin());
  const int keep = context_.resume_point(seq_, common);
  context_.truncate(seq_, keep);
  n_cached_ = static_cast<std::size_t>(keep);
  // One generator serves the whole conversation: a sampler of its own per prompt would draw the same numbers each time.
  const auto is_new = std::mismatch(tokens.begin(), tokens.end(), tokens_.begin(), tokens_.end()).first;
  sampler_.accept_prompt(std::span(tokens).subspan(static_cast<std::size_t>(is_new - tokens.begin())));
  tokens_ = tokens;
  n_prompt_ = tokens.size();
}

Token Generator::next_token() {
  const auto n_batch = static_cast<std::size_t>(context_.params().n_batch);
  const ggml::StopToken stop{[](void* self) { return static_cast<Generator*>(self)->interrupted_(); }, this};
  while (true) {
    const std::span<const Token> chunk =
        std::span(tokens_).subspan(n_cached_, std::min(n_batch, tokens_.size() - n_cached_));
    const bool last = n_cached_ + chunk.size() == tokens_.size();
    const llama::StepSequence rows{seq_, chunk, last ? llama::Outputs::last : llama::Outputs::none,
                                   last ? &sampler_ : nullptr};
    const Clock::time_point start = Clock::now();
    const llama::StepResult& result = context_.run({{&rows, 1}}, stop);
    const bool is_generation = last && chunk.size() == 1 && timings_.n_prompt > 0;
    (is_generation ? timings_.generate_ms : timings_.prompt_ms) += ms_since(start);
    (is_generation ? timings_.n_generated : timings_.n_prompt) += static_cast<int>(chunk.size());
    n_cached_ += chunk.size();
    if (last) return result.sequences.front().sampled->token;
  }
}

void Generator::shift() {
  const int bos = context_.model().vocab().add_bos() ? 1 : 0;
  const int wish = *n_keep_ < 0 ? static_cast<int>(n_prompt_) : *n_keep_ + bos;
  const int cached = static_cast<int>(n_cached_);
  const int keep = std::clamp(wish, 0, std::max(0, cached - 2));
  const int discard = std::max(1, (cached - keep) / 2);
  context_.shift(seq_, keep, discard);
  const auto first = tokens_.begin() + keep;
  tokens_.erase(first, first + discard);
  n_cached_ -= static_cast<std::size_t>(discard);
}

bool Generator::is_shown(Token token) const {
  return show_special_ || std::binary_search(shown_tokens_.begin(), shown_tokens_.end(), token);
}

Ending Generator::generate(int n_predict, const std::vector<std::string>& reverse_prompts,
                           const std::function<void(std::string_view)>& on_text) {
  const llama::Vocab& vocab = context_.model().vocab();
  llama::Utf8Stream characters;
  std::string tail;  // enough of the text's end to recognise a reverse prompt
  std::size_t longest = 0;
  for (const std::string& reverse : reverse_prompts) longest = std::max(longest, reverse.size());

  if (make_mask_) mask_ = make_mask_();
  sampler_.set_mask(mask_.get());
  for (int n = 0; n_predict < 0 || n < n_predict; ++n) {
    if (static_cast<int>(tokens_.size()) >= context_.params().n_ctx) {
      constexpr int kUntilFull = -2;
      if (!n_keep_.has_value() || n_predict == kUntilFull) return Ending::limit;
      shift();
    }
    if (interrupted_()) return Ending::interrupted;
    Token token = llama::kNoToken;
    try {
      token = next_token();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::cancelled) return Ending::interrupted;
      throw;
    }
    if (token == llama::kNoToken) {
      // --ignore-eos or biases have taken all that the grammar leaves: where it is finished, the end.
      if (mask_ != nullptr && mask_->failure().empty()) return Ending::end_of_generation;
      const std::string reason = mask_ != nullptr ? mask_->failure() : std::string();
      throw Error(ErrorCode::invalid_argument,
                  "no token can be chosen: " + (reason.empty() ? "biases, or infinite logits, leave none" : reason),
                  reason.empty() ? "look at --logit-bias, and check the model with --check-tensors" : "");
    }
    sampler_.accept(token);
    tokens_.push_back(token);
    const bool end = vocab.is_eog(token);
    std::size_t n_new = 0;
    if (!end || show_special_) {
      const std::string text =
          characters.push(vocab.piece(token, is_shown(token) ? llama::SpecialText::show : llama::SpecialText::hide));
      on_text(text);
      n_new = text.size();
      if (tail.size() > longest) tail.erase(0, tail.size() - longest);
      tail += text;
    }
    if (end) return Ending::end_of_generation;
    if (has_new(tail, n_new, reverse_prompts)) return Ending::reverse_prompt;
  }
  return Ending::limit;
}

}  // namespace cli
