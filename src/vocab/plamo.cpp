#include <algorithm>
#include <cmath>
#include <cstdint>

#include "trie.h"
#include "utf8_decode.h"
#include "vocab_data.h"

// PLaMo-2: the segmentation with the best sum of scores, found from the end of the text, in whole numbers of 1e-4.

namespace llama {

namespace {

class PlamoTokenizer final : public Tokenizer {
 public:
  explicit PlamoTokenizer(const VocabData& data) : data_(data) {
    std::vector<Trie::Entry> pieces;
    scores_.reserve(data.texts.size());
    for (Token t = 0; t < data.n_tokens(); ++t) {
      scores_.push_back(whole(data.score(t)));
      if (data.type(t) != TokenType::byte) pieces.push_back({data.text(t), t});
    }
    pieces_ = Trie(std::move(pieces));
  }

  void tokenize(std::span<const Fragment> fragments, std::vector<Token>& out) const override {
    std::vector<Step> steps;
    for (const Fragment& fragment : fragments) {
      if (fragment.token != kNoToken) {
        out.push_back(fragment.token);
      } else {
        segment(replace_invalid(fragment.text), steps, out);
      }
    }
  }

 private:
  /// The best way on from one byte of the text.
  struct Step {
    std::int64_t score = 0;
    std::uint32_t length = 0;  // bytes
    Token token = kNoToken;    // none: the bytes of one character
  };

  // An absurd score of a hostile file must neither overflow the sums nor be a number that does not fit.
  static std::int64_t whole(float score) {
    constexpr double kScale = 1e4, kMost = 1e9;
    return std::llround(std::clamp(static_cast<double>(score) * kScale, -kMost, kMost));
  }

  static std::string replace_invalid(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
      const Utf8Char c = decode_utf8(text);
      append_utf8(out, c.code);
      text.remove_prefix(c.size);
    }
    return out;
  }

  void segment(std::string_view text, std::vector<Step>& steps, std::vector<Token>& out) const {
    constexpr std::int64_t kUnknownScore = -10'000'000;
    steps.assign(text.size() + 1, {});
    for (std::size_t end = text.size(); end > 0;) {
      std::size_t i = end - 1;
      while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U) --i;
      Step best{kUnknownScore + steps[end].score, static_cast<std::uint32_t>(end - i), kNoToken};
      // Shortest first, so that of equal sums the longest piece stays.
      pieces_.matches(text.substr(i), [&](std::size_t length, Token token) {
        // A piece of a broken file may end inside a character, from where there is no way on.
        if (i + length < text.size() && (static_cast<unsigned char>(text[i + length]) & 0xC0U) == 0x80U) return;
        const std::int64_t score = scores_[static_cast<std::size_t>(token)] + steps[i + length].score;
        if (score >= best.score) best = {score, static_cast<std::uint32_t>(length), token};
      });
      steps[i] = best;
      end = i;
    }
    for (std::size_t i = 0; i < text.size(); i += steps[i].length) {
      if (steps[i].token != kNoToken) {
        out.push_back(steps[i].token);
        continue;
      }
      for (const char c : text.substr(i, steps[i].length)) {
        const Token byte = data_.byte_tokens[static_cast<unsigned char>(c)];
        const Token token = byte != kNoToken ? byte : data_.special.unk;
        if (token != kNoToken) out.push_back(token);
      }
    }
  }

  const VocabData& data_;
  std::vector<std::int64_t> scores_;
  Trie pieces_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_plamo(const VocabData& data, const ggml::gguf::Metadata& /*metadata*/) {
  return std::make_unique<PlamoTokenizer>(data);
}

}  // namespace llama
