#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ggml/gguf.h"
#include "ggml/log.h"
#include "llama/vocab.h"
#include "nfc.h"
#include "test_vocab.h"
#include "trie.h"
#include "utf8_decode.h"

// The fast forms against plain ones that look at the whole text, on random vocabularies and texts.

namespace llama {
namespace {

using Random = std::mt19937;

std::size_t below(Random& random, std::size_t n) {
  return static_cast<std::size_t>(random()) % n;
}

// Few characters, so that random texts are full of tokens; the space mark stands inside tokens too.
const char* const kAlphabet[] = {"a", "b", "c", "▁", "é", "日", "😀"};

std::string random_piece(Random& random, std::size_t longest) {
  std::string text;
  for (std::size_t n = 1 + below(random, longest); n > 0; --n) text += kAlphabet[below(random, std::size(kAlphabet))];
  return text;
}

std::string random_text(Random& random) {
  std::string text;
  for (std::size_t n = below(random, 60); n > 0; --n) {
    const std::size_t i = below(random, std::size(kAlphabet) + 4);
    text += i < std::size(kAlphabet) ? kAlphabet[i] : " ";
    if (below(random, 50) == 0) text += static_cast<char>(random());
  }
  return text;
}

std::vector<std::string> random_pieces(Random& random) {
  std::map<std::string, bool> seen;
  std::vector<std::string> pieces;
  for (std::size_t n = 3 + below(random, 40); n > 0; --n) {
    if (std::string piece = random_piece(random, 5); !std::exchange(seen[piece], true)) pieces.push_back(piece);
  }
  return pieces;
}

// Scores of few values, so that many are equal.
void set_random_scores(Random& random, ggml::gguf::Metadata& metadata) {
  std::vector<float> scores(metadata.get_array("tokenizer.ggml.tokens")->size());
  for (float& score : scores) score = -static_cast<float>(below(random, 6)) / 2;
  metadata.set_f32s("tokenizer.ggml.scores", scores);
}

/// Merges the best pair of the whole text until none is left.
std::vector<Token> plain_spm(const Vocab& vocab, std::string text) {
  if (text.empty()) return {};
  text = std::string(kSpaceMark) + spaces_to_marks(text);
  std::vector<std::string> symbols;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t size = std::min(announced_utf8_size(static_cast<unsigned char>(text[i])), text.size() - i);
    if (const std::size_t mark = text.find(kSpaceMark, i + 1); mark < i + size) size = mark - i;
    symbols.push_back(text.substr(i, size));
    i += size;
  }
  for (;;) {
    std::size_t best = symbols.size();
    float best_score = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Token token = vocab.find(symbols[i] + symbols[i + 1]);
      if (token == kNoToken || (best < symbols.size() && vocab.score(token) <= best_score)) continue;
      best = i;
      best_score = vocab.score(token);
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<Token> tokens;
  for (const std::string& symbol : symbols) {
    if (const Token token = vocab.find(symbol); token != kNoToken) {
      tokens.push_back(token);
      continue;
    }
    for (const char c : symbol) tokens.push_back(vocab.find(ggml::strf("<0x%02X>", static_cast<unsigned char>(c))));
  }
  return tokens;
}

TEST(Reference, MergingWordByWordGivesWhatMergingTheWholeTextGives) {
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    ggml::gguf::Metadata metadata = testing::spm_metadata(random_pieces(random));
    set_random_scores(random, metadata);
    const Vocab vocab = Vocab::load(metadata, "random");
    for (int i = 0; i < 40; ++i) {
      const std::string text = random_text(random);
      ASSERT_EQ(vocab.tokenize(text, {}), plain_spm(vocab, text)) << "round " << round << ": " << text;
    }
  }
}

/// The best segmentation of the whole text. Texts hold no broken characters and no runs of spaces.
std::vector<Token> plain_ugm(const Vocab& vocab, const std::map<std::string, Token>& pieces, double unknown,
                             const std::string& text) {
  struct Best {
    double score = 0;
    std::size_t begin = 0;
    Token token = kNoToken;
    bool reached = false;
  };
  std::vector<Best> best(text.size() + 1);
  best[0].reached = true;
  const auto offer = [&](std::size_t begin, std::size_t end, double score, Token token) {
    if (!best[end].reached || score > best[end].score) best[end] = {score, begin, token, true};
  };
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = announced_utf8_size(static_cast<unsigned char>(text[i]));
    for (std::size_t length = 1; i + length <= text.size(); ++length) {
      const auto piece = pieces.find(text.substr(i, length));
      if (piece != pieces.end())
        offer(i, i + length, best[i].score + double{vocab.score(piece->second)}, piece->second);
    }
    if (!pieces.contains(text.substr(i, size))) offer(i, i + size, best[i].score + unknown, vocab.special().unk);
    i += size;
  }
  std::vector<Token> tokens;
  for (std::size_t end = text.size(); end > 0; end = best[end].begin) {
    const bool joins = !tokens.empty() && tokens.back() == vocab.special().unk && best[end].token == tokens.back();
    if (!joins) tokens.push_back(best[end].token);
  }
  std::reverse(tokens.begin(), tokens.end());
  return tokens;
}

TEST(Reference, SegmentingWordByWordGivesWhatSegmentingTheWholeTextGives) {
  Random random(2);
  for (int round = 0; round < 60; ++round) {
    ggml::gguf::Metadata metadata = testing::ugm_metadata();
    std::vector<std::string> texts{"<pad>", "</s>", "<unk>"};
    std::vector<std::int32_t> types{3, 3, 2};
    for (const std::string& piece : random_pieces(random)) texts.push_back(piece);
    types.resize(texts.size(), 1);
    metadata.set_strings("tokenizer.ggml.tokens", texts);
    metadata.set_i32s("tokenizer.ggml.token_type", types);
    metadata.set_bool("tokenizer.ggml.remove_extra_whitespaces", false);
    set_random_scores(random, metadata);
    const Vocab vocab = Vocab::load(metadata, "random");
    std::map<std::string, Token> pieces;
    double lowest = 0;
    for (Token t = 3; t < vocab.n_tokens(); ++t) {
      pieces.emplace(vocab.text(t), t);
      lowest = std::min(lowest, double{vocab.score(t)});
    }
    for (int i = 0; i < 40; ++i) {
      std::string text = random_piece(random, 40);
      const std::string marked = std::string(kSpaceMark) + text;
      if (below(random, 2) == 0) text = marks_to_spaces(text);
      ASSERT_EQ(vocab.tokenize(text, {}), plain_ugm(vocab, pieces, lowest - 10, marked))
          << "round " << round << ": " << text;
    }
  }
}

TEST(Reference, TheTrieFindsEveryBeginningAndNothingElse) {
  Random random(3);
  for (int round = 0; round < 30; ++round) {
    std::map<std::string, Token> texts;
    std::vector<Trie::Entry> entries;
    const std::size_t n_bytes = 1 + below(random, 255);  // of the alphabet
    for (std::size_t n = below(random, 3000); n > 0; --n) {
      std::string text;
      for (std::size_t k = 1 + below(random, 6); k > 0; --k) text += static_cast<char>(below(random, n_bytes));
      const auto value = static_cast<Token>(entries.size());
      entries.push_back({text, value});
      texts.emplace(text, value);  // the first of equal texts
    }
    const Trie trie{entries};
    EXPECT_EQ(trie.empty(), entries.empty());
    for (int i = 0; i < 500; ++i) {
      std::string text = texts.empty() || below(random, 4) == 0 ? "" : entries[below(random, entries.size())].text;
      for (std::size_t k = below(random, 4); k > 0; --k) text += static_cast<char>(below(random, n_bytes + 1));
      std::vector<std::pair<std::size_t, Token>> expected, got;
      for (std::size_t length = 1; length <= text.size(); ++length) {
        const auto it = texts.find(text.substr(0, length));
        if (it != texts.end()) expected.emplace_back(length, it->second);
      }
      trie.matches(text, [&](std::size_t length, Token value) { got.emplace_back(length, value); });
      ASSERT_EQ(got, expected);
    }
  }
}

TEST(Reference, NormalFormCIsTheLibrarysOnRandomText) {
  // Letters that join with marks, marks of several classes, Hangul by letters and whole, signs that are another's name.
  const char32_t kCodes[] = {'a',     'e',     ' ',    0xE9,   0x1ED9, 0x301,  0x300,  0x323,  0x308,
                             0x344,   0x1100,  0x1161, 0x11A8, 0xAC00, 0x212B, 0x2126, 0x915,  0x93C,
                             0x958,   0xF71,   0xF72,  0xF74,  0x304B, 0x3099, 0x3042, 0x65E5, 0xF900,
                             0x1D15E, 0x1F600, 0x436,  0x306,  0x5D0,  0x5BC,  0xFB1D, 0x340,  0x2ADC};
  Random random(4);
  for (int round = 0; round < 5000; ++round) {
    std::string text, storage;
    for (std::size_t n = below(random, 12); n > 0; --n) append_utf8(text, kCodes[below(random, std::size(kCodes))]);
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> expected(
        utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str())), &std::free);
    ASSERT_EQ(to_nfc(text, storage), reinterpret_cast<const char*>(expected.get())) << text;
  }
}

TEST(Reference, ALongRunOfMarksIsNormalisedInTime) {
  std::string text = "a", storage;
  for (int i = 0; i < 200000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::string_view composed = to_nfc(text, storage);
  EXPECT_EQ(composed.substr(0, 3), "\u1EA1") << "the dot below goes to the letter first";
  // ạ (3 bytes) for a (1) and the dot (2).
  EXPECT_EQ(composed.size(), text.size());
}

}  // namespace
}  // namespace llama
