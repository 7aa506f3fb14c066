#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "merge_queue.h"
#include "utf8_decode.h"
#include "vocab_data.h"

// SentencePiece BPE: characters are merged pairwise, the pair whose concatenation is the token of the highest score
// first.
//
// The algorithm knows no words; it looks at a whole text. Where no token has the bytes at both sides of a place,
// though, nothing ever merges across it, and what stands before it can be merged alone. Almost every space is such a
// place. So words are merged one by one, in arrays that stay in the cache, and words that were met before need not be
// merged.

namespace llama {

namespace {

// A stretch of the word between its neighbours; size 0 once it was merged into its left neighbour.
struct Symbol {
  std::int32_t prev = -1;
  std::int32_t next = -1;
  std::uint32_t begin = 0;
  std::uint32_t size = 0;
  Token token = kNoToken;
};

/// An open merge; its key is the place of the token's score among all scores, the highest first.
struct Bigram {
  std::int32_t left = -1;
  std::uint32_t size = 0;  // bytes of both when it was found; another sum means that it is stale
  Token token = kNoToken;
};

/// The tokens of short words that a text had so far. A word drives out another one that falls into the same place.
class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 30;
  static constexpr std::size_t kMaxTokens = 8;
  struct Entry {
    std::uint8_t size = 0;  // 0: free
    std::uint8_t n_tokens = 0;
    std::array<char, kMaxBytes> bytes;
    std::array<Token, kMaxTokens> tokens;
    [[nodiscard]] bool holds(std::string_view word) const {
      return size == word.size() && std::memcmp(bytes.data(), word.data(), word.size()) == 0;
    }
  };

  // Small for a short text, which must not pay for a table that it cannot fill; at most the size of an L2 cache.
  void make_room_for(std::size_t text_bytes) {
    constexpr std::size_t kBytesPerEntry = 32, kMost = 4096;
    const std::size_t wanted = std::min(std::bit_ceil(text_bytes / kBytesPerEntry + 1), kMost);
    if (wanted > entries_.size()) entries_.assign(wanted, Entry{});
  }
  [[nodiscard]] Entry& place(std::string_view word) { return entries_[hash_text(word) & (entries_.size() - 1)]; }

 private:
  std::vector<Entry> entries_;
};

class SpmTokenizer final : public Tokenizer {
 public:
  explicit SpmTokenizer(const VocabData& data) : data_(data) {
    for (const std::string& text : data.texts) note_joints(text);
    for (const std::string& text : data.aliases) note_joints(text);
    order_scores();
  }

  void tokenize(std::span<const Fragment> fragments, std::vector<Token>& out) const override {
    bool after_special = true;  // the start of the text counts as one
    Work work;
    std::string text;
    for (const Fragment& fragment : fragments) {
      if (fragment.token != kNoToken) {
        out.push_back(fragment.token);
        after_special = true;
        continue;
      }
      text = data_.add_space_prefix && after_special ? std::string(kSpaceMark) : std::string();
      text += spaces_to_marks(fragment.text);
      tokenize_words(text, work, out);
      after_special = false;
    }
  }

 private:
  struct Work {  // scratch of one call
    std::vector<Symbol> symbols;
    HeapQueue<Bigram> heap;
    BucketQueue<Bigram> buckets;
    WordCache cache;
  };

  void note_joints(std::string_view text) {
    for (std::size_t at = 1; (at = text.find(kSpaceMark, at)) != std::string_view::npos; ++at) {
      joins_mark_[static_cast<unsigned char>(text[at - 1])] = true;
    }
  }

  // What is no number has no place among the scores: last.
  [[nodiscard]] float score(Token t) const {
    const float given = data_.score(t);
    return std::isnan(given) ? -std::numeric_limits<float>::infinity() : given;
  }

  void order_scores() {
    std::vector<float> scores;
    scores.reserve(data_.texts.size());
    for (Token t = 0; t < data_.n_tokens(); ++t) scores.push_back(score(t));
    std::sort(scores.begin(), scores.end(), std::greater<>{});
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    n_keys_ = scores.size();
    keys_.reserve(data_.texts.size());
    for (Token t = 0; t < data_.n_tokens(); ++t) {
      const auto at = std::lower_bound(scores.begin(), scores.end(), score(t), std::greater<>{});
      keys_.push_back(static_cast<std::uint32_t>(at - scores.begin()));
    }
  }

  // A mark never lies inside a character (see split), so a cut in front of it leaves all characters whole.
  void tokenize_words(std::string_view text, Work& work, std::vector<Token>& out) const {
    work.cache.make_room_for(text.size());
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = begin;
      do {
        end = text.find(kSpaceMark, end + 1);
      } while (end != std::string_view::npos && joins_mark_[static_cast<unsigned char>(text[end - 1])]);
      end = std::min(end, text.size());
      tokenize_word(text.substr(begin, end - begin), work, out);
      begin = end;
    }
  }

  void tokenize_word(std::string_view word, Work& work, std::vector<Token>& out) const {
    if (word.size() > WordCache::kMaxBytes) {
      merge(word, work, out);
      return;
    }
    WordCache::Entry& known = work.cache.place(word);
    if (known.holds(word)) {
      out.insert(out.end(), known.tokens.begin(), known.tokens.begin() + known.n_tokens);
      return;
    }
    const std::size_t before = out.size();
    merge(word, work, out);
    const std::size_t n = out.size() - before;
    if (n > WordCache::kMaxTokens) return;
    known.size = static_cast<std::uint8_t>(word.size());
    known.n_tokens = static_cast<std::uint8_t>(n);
    std::copy(word.begin(), word.end(), known.bytes.begin());
    std::copy(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(), known.tokens.begin());
  }

  void merge(std::string_view word, Work& work, std::vector<Token>& out) const {
    const std::vector<Symbol>& symbols = work.symbols;
    split(word, work.symbols);
    if (symbols.size() <= BucketQueue<Bigram>::kWorthwhile) {
      merge_by(work.heap, word, work.symbols);
    } else {
      work.buckets.reserve_keys(n_keys_);
      merge_by(work.buckets, word, work.symbols);
    }
    for (std::int32_t i = symbols.empty() ? -1 : 0; i >= 0;) {
      const Symbol& symbol = symbols[static_cast<std::size_t>(i)];
      emit(symbol.token, word.substr(symbol.begin, symbol.size), out);
      i = symbol.next;
    }
  }

  template <class Queue>
  void merge_by(Queue& queue, std::string_view word, std::vector<Symbol>& symbols) const {
    const auto at = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
    const auto offer = [&](std::int32_t left) {
      Bigram b;
      if (left >= 0 && look_up(word, symbols, left, b)) queue.push(keys_[static_cast<std::size_t>(b.token)], b);
    };
    for (std::int32_t i = 1; i < static_cast<std::int32_t>(symbols.size()); ++i) offer(i - 1);
    std::uint32_t key = 0;
    for (Bigram best; queue.pop(key, best);) {
      Symbol& left = at(best.left);
      if (left.size == 0 || left.next < 0) continue;
      Symbol& right = at(left.next);
      if (left.size + right.size != best.size) continue;
      left.size = best.size;
      left.token = best.token;
      right.size = 0;
      left.next = right.next;
      if (right.next >= 0) at(right.next).prev = best.left;
      offer(left.prev);
      offer(best.left);
    }
  }

  // Characters by what their lead byte announces; broken ones are kept together just so and end as byte tokens. They
  // may not swallow a space, though: its mark, torn into bytes, would come back as U+2581.
  void split(std::string_view word, std::vector<Symbol>& symbols) const {
    symbols.clear();
    for (std::size_t i = 0; i < word.size();) {
      std::size_t size = std::min(announced_utf8_size(static_cast<unsigned char>(word[i])), word.size() - i);
      for (std::size_t k = 1; k < size; ++k) {
        if (word[i + k] == kSpaceMark[0] && word.substr(i + k).starts_with(kSpaceMark)) size = k;
      }
      Symbol symbol;
      symbol.prev = static_cast<std::int32_t>(symbols.size()) - 1;
      symbol.begin = static_cast<std::uint32_t>(i);
      symbol.size = static_cast<std::uint32_t>(size);
      symbol.token = data_.index.find(word.substr(i, size));
      i += size;
      symbol.next = i < word.size() ? symbol.prev + 2 : -1;
      symbols.push_back(symbol);
    }
  }

  // Whether the symbol and the one behind it are a token together.
  bool look_up(std::string_view word, const std::vector<Symbol>& symbols, std::int32_t left, Bigram& out) const {
    const Symbol& l = symbols[static_cast<std::size_t>(left)];
    if (l.next < 0) return false;
    const std::uint32_t size = l.size + symbols[static_cast<std::size_t>(l.next)].size;
    const Token token = data_.index.find(word.substr(l.begin, size));  // neighbours lie side by side in the text
    if (token == kNoToken) return false;
    out = {left, size, token};
    return true;
  }

  // A merged symbol is a token by construction; a single character may be none and falls to its bytes.
  void emit(Token symbol, std::string_view text, std::vector<Token>& out) const {
    if (symbol != kNoToken) {
      out.push_back(symbol);
      return;
    }
    for (const char c : text) {
      Token token = data_.byte_tokens[static_cast<unsigned char>(c)];
      if (token == kNoToken) token = data_.special.unk;
      if (token != kNoToken) out.push_back(token);
    }
  }

  const VocabData& data_;
  std::size_t n_keys_ = 0;
  std::vector<std::uint32_t> keys_;     // [n_tokens] places of the scores, the highest first
  std::array<bool, 256> joins_mark_{};  // whether some token has this byte in front of a mark
};

}  // namespace

std::unique_ptr<Tokenizer> make_spm(const VocabData& data, const ggml::gguf::Metadata& /*metadata*/) {
  return std::make_unique<SpmTokenizer>(data);
}

}  // namespace llama
