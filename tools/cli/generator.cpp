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

bool ends_with_any(const std::string& text, const std::vector<std::string>& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& ending) {
    return !ending.empty() && text.size() >= ending.size() &&
           text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
  });
}

}  // namespace

Generator::Generator(llama::Context& context, const llama::SamplingParams& sampling, bool (*interrupted)())
    : context_(context),
      sampling_(sampling),
      sampler_(sampling, context.model().vocab(), context.params().n_ctx),
      interrupted_(interrupted),
      seq_(context.create_sequence()) {}

void Generator::set_prompt(const std::vector<Token>& tokens) {
  if (static_cast<int>(tokens.size()) >= context_.params().n_ctx) {
    throw Error(ErrorCode::exceeds_limit,
                ggml::strf("the prompt has %zu tokens, the context holds %d", tokens.size(), context_.params().n_ctx),
                "use a larger -c");
  }
  const std::size_t known = std::min(n_cached_, tokens.size());
  const auto differs =
      std::mismatch(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(known), tokens_.begin());
  const int common = static_cast<int>(differs.first - tokens.begin());
  const int keep = context_.resume_point(seq_, common);
  context_.truncate(seq_, keep);
  n_cached_ = static_cast<std::size_t>(keep);
  tokens_ = tokens;
  sampler_ = llama::Sampler(sampling_, context_.model().vocab(), context_.params().n_ctx);
  sampler_.accept_prompt(tokens_);
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

Ending Generator::generate(int n_predict, const std::vector<std::string>& reverse_prompts,
                           const std::function<void(std::string_view)>& on_text) {
  const llama::Vocab& vocab = context_.model().vocab();
  llama::Utf8Stream characters;
  std::string tail;  // enough of the text's end to recognise a reverse prompt
  std::size_t longest = 0;
  for (const std::string& reverse : reverse_prompts) longest = std::max(longest, reverse.size());

  for (int n = 0; n_predict < 0 || n < n_predict; ++n) {
    if (static_cast<int>(tokens_.size()) >= context_.params().n_ctx) return Ending::limit;
    if (interrupted_()) return Ending::interrupted;
    Token token = llama::kNoToken;
    try {
      token = next_token();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::cancelled) return Ending::interrupted;
      throw;
    }
    sampler_.accept(token);
    tokens_.push_back(token);
    const bool end = vocab.is_eog(token);
    if (!end || show_special_) {
      const std::string text =
          characters.push(vocab.piece(token, show_special_ ? llama::SpecialText::show : llama::SpecialText::hide));
      on_text(text);
      tail += text;
      if (tail.size() > longest + 64) tail.erase(0, tail.size() - longest);
    }
    if (end) return Ending::end_of_generation;
    if (ends_with_any(tail, reverse_prompts)) return Ending::reverse_prompt;
  }
  return Ending::limit;
}

}  // namespace cli
