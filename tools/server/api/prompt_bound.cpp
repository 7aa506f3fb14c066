#include "api/prompt_bound.h"

#include <algorithm>

namespace server {

namespace {

// Normalisation composes letters and marks, the most of them three to one.
constexpr std::size_t kComposition = 3;

bool is_ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

bool is_blank(char c) {
  return static_cast<unsigned char>(c) <= ' ' || c == 0x7F;
}

}  // namespace

PromptBound::PromptBound(const llama::Vocab& vocab) {
  using llama::VocabKind;
  constexpr VocabKind kFaithful[] = {VocabKind::spm, VocabKind::bpe, VocabKind::rwkv, VocabKind::plamo};
  if (std::find(std::begin(kFaithful), std::end(kFaithful), vocab.kind()) == std::end(kFaithful)) return;
  for (llama::Token token = 0; token < vocab.n_tokens(); ++token) {
    const std::string_view piece = vocab.piece(token, llama::SpecialText::show);
    // A byte without a token of its own may be dropped; blanks may belong to the special token beside them.
    if (piece.size() == 1 && !is_blank(piece[0])) counts_[static_cast<unsigned char>(piece[0])] = true;
    const auto n = piece.size() - static_cast<std::size_t>(std::count_if(piece.begin(), piece.end(), is_blank));
    longest_ = std::max(longest_, n);
  }
}

std::size_t PromptBound::least_tokens(std::string_view text) const {
  if (longest_ == 0) return 0;
  std::size_t n_ascii = 0;
  std::size_t n_other = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!counts_[static_cast<unsigned char>(text[i])]) continue;
    if (!is_ascii(text[i])) {
      ++n_other;
    } else if (i + 1 == text.size() || is_ascii(text[i + 1])) {  // no mark follows that it could be composed with
      ++n_ascii;
    }
  }
  return (n_ascii + n_other / kComposition) / longest_;
}

}  // namespace server
