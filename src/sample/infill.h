#pragma once

#include <string_view>
#include <vector>

#include "ggml/sampler_chain.h"
#include "llama/types.h"

namespace llama {

class Vocab;

/// The infill sampler, for text between a prefix and a suffix: ends when the model is nearly sure of nothing else, and
/// adds up the probabilities of candidates that begin alike, so that one of them is clearly the likeliest.
/// Thread-compatible; `vocab` must outlive it.
class InfillStage final : public ggml::HostStage {
 public:
  explicit InfillStage(const Vocab& vocab) : vocab_(vocab) {}

  std::size_t apply(std::span<ggml::Candidate> candidates, std::size_t n_all) override;

 private:
  struct Text {
    std::string_view text;
    std::size_t index;  // of the candidate
  };

  /// Empty for tokens without text, and for rows of the logits that have no token.
  [[nodiscard]] std::string_view text_of(Token token) const;
  /// Gives the probability of each candidate whose text begins another's, or begins with it, to the likelier of the
  /// two.
  void merge_common_beginnings(std::span<const ggml::Candidate> candidates);

  const Vocab& vocab_;
  std::vector<float> p_;       // [candidates]
  std::vector<Text> by_text_;  // of the candidates with text, ascending
};

}  // namespace llama
