#include "sample/infill.h"

#include <algorithm>
#include <cmath>

#include "llama/vocab.h"

namespace llama {

using ggml::Candidate;

namespace {

constexpr float kEndBias = 3.0f;
constexpr float kLeastProbability = 0.2f;

template <class Keep>
std::size_t keep_if(std::span<Candidate> candidates, std::vector<float>& p, Keep keep) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (!keep(i)) continue;
    candidates[kept] = candidates[i];
    p[kept++] = p[i];
  }
  p.resize(kept);
  return kept;
}

void normalise(std::vector<float>& p) {
  float sum = 0;
  for (const float x : p) sum += x;
  for (float& x : p) x /= sum;
}

}  // namespace

std::string_view InfillStage::text_of(Token token) const {
  return vocab_.contains(token) ? vocab_.piece(token, SpecialText::hide) : std::string_view();
}

void InfillStage::merge_common_beginnings(std::span<const Candidate> candidates) {
  by_text_.clear();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::string_view text = text_of(candidates[i].token);
    if (!text.empty()) by_text_.push_back({text, i});
  }
  const auto before = [](const Text& a, const Text& b) {
    return a.text < b.text || (a.text == b.text && a.index < b.index);
  };
  std::sort(by_text_.begin(), by_text_.end(), before);
  const auto first_from = [this](std::string_view text) {
    return std::lower_bound(by_text_.begin(), by_text_.end(), text,
                            [](const Text& a, std::string_view b) { return a.text < b; });
  };
  // From the likeliest down: whoever is still there takes over its relatives. Each is taken over once, and texts that
  // begin alike lie side by side, so the work is linear but for the searches.
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (p_[i] <= 0.0f) continue;
    const std::string_view text = text_of(candidates[i].token);
    if (text.empty()) continue;
    const auto take = [&](std::size_t j) {
      if (j <= i) return;
      p_[i] += p_[j];
      p_[j] = 0.0f;
    };
    for (auto it = first_from(text); it != by_text_.end() && it->text.starts_with(text); ++it) take(it->index);
    for (std::size_t n = 1; n < text.size(); ++n) {
      const std::string_view head = text.substr(0, n);
      for (auto it = first_from(head); it != by_text_.end() && it->text == head; ++it) take(it->index);
    }
  }
}

std::size_t InfillStage::apply(std::span<Candidate> candidates, std::size_t n_all) {
  const auto is_end = [&](std::size_t i) { return vocab_.is_eog(candidates[i].token); };
  p_.clear();
  float sum = 0;
  for (const Candidate& c : candidates) p_.push_back(std::exp(c.logit - candidates.front().logit));
  for (const float x : p_) sum += x;
  for (float& x : p_) x /= sum;

  float p_end = 0, p_text = 0;
  for (std::size_t i = 0; i < p_.size(); ++i) (is_end(i) ? p_end : p_text) += p_[i];
  if (kEndBias * p_end * static_cast<float>(n_all) > p_text) return keep_if(candidates, p_, is_end);

  merge_common_beginnings(candidates);
  std::size_t n_text = 0;
  const auto likely = [&](std::size_t i) {
    if (is_end(i)) return p_[i] > 0.0f;
    if (p_[i] < kLeastProbability) return false;
    ++n_text;
    return true;
  };
  std::size_t kept = keep_if(candidates, p_, likely);
  if (n_text == 0) {
    const SpecialTokens& special = vocab_.special();
    const Token end = special.eot != kNoToken ? special.eot : special.eos;
    if (end == kNoToken) return kept;
    candidates[0] = {1.0f, end};
    return 1;
  }
  normalise(p_);
  const float least = 1.0f / static_cast<float>(n_text + 1);
  kept = keep_if(candidates, p_, [&](std::size_t i) { return is_end(i) || p_[i] >= least; });
  return kept;
}

}  // namespace llama
