#include <queue>

#include "utf8_decode.h"
#include "vocab_data.h"

// SentencePiece BPE: characters are merged pairwise, the pair whose concatenation is the token of the highest score
// first.

namespace llama {

namespace {

// A stretch of the text between its neighbours; size 0 once it was merged into its left neighbour.
struct Symbol {
  std::int32_t prev = -1;
  std::int32_t next = -1;
  const char* data = nullptr;
  std::size_t size = 0;
};

struct Bigram {
  float score = 0;
  std::int32_t left = -1;
  std::int32_t right = -1;
  std::size_t size = 0;  // bytes of both when it was found; another sum means that it is stale
};

struct WorseBigram {
  bool operator()(const Bigram& a, const Bigram& b) const {
    return a.score != b.score ? a.score < b.score : a.left > b.left;
  }
};

class SpmTokenizer final : public Tokenizer {
 public:
  explicit SpmTokenizer(const VocabData& data) : data_(data) {}

  void tokenize(std::span<const Fragment> fragments, std::vector<Token>& out) const override {
    bool after_special = true;  // the start of the text counts as one
    std::string text;
    for (const Fragment& fragment : fragments) {
      if (fragment.token != kNoToken) {
        out.push_back(fragment.token);
        after_special = true;
        continue;
      }
      text = data_.add_space_prefix && after_special ? std::string(kSpaceMark) : std::string();
      text += spaces_to_marks(fragment.text);
      merge(text, out);
      after_special = false;
    }
  }

 private:
  void merge(std::string_view text, std::vector<Token>& out) const {
    std::vector<Symbol> symbols = split(text);
    std::vector<Bigram> initial;
    for (std::int32_t i = 1; i < static_cast<std::int32_t>(symbols.size()); ++i) {
      if (Bigram b; look_up(symbols, i - 1, i, b)) initial.push_back(b);
    }
    std::priority_queue<Bigram, std::vector<Bigram>, WorseBigram> queue(WorseBigram{}, std::move(initial));
    while (!queue.empty()) {
      const Bigram best = queue.top();
      queue.pop();
      Symbol& left = symbols[static_cast<std::size_t>(best.left)];
      Symbol& right = symbols[static_cast<std::size_t>(best.right)];
      if (left.size == 0 || right.size == 0 || left.size + right.size != best.size) continue;
      left.size += right.size;
      right.size = 0;
      left.next = right.next;
      if (right.next >= 0) symbols[static_cast<std::size_t>(right.next)].prev = best.left;
      if (Bigram b; look_up(symbols, left.prev, best.left, b)) queue.push(b);
      if (Bigram b; look_up(symbols, best.left, left.next, b)) queue.push(b);
    }
    for (std::int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
      emit({symbols[static_cast<std::size_t>(i)].data, symbols[static_cast<std::size_t>(i)].size}, out);
    }
  }

  // Characters by what their lead byte announces; broken ones are kept together just so and end as byte tokens. They
  // may not swallow a space, though: its mark, torn into bytes, would come back as U+2581.
  [[nodiscard]] static std::vector<Symbol> split(std::string_view text) {
    std::vector<Symbol> symbols;
    symbols.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
      std::size_t size = std::min(announced_utf8_size(static_cast<unsigned char>(text[i])), text.size() - i);
      for (std::size_t k = 1; k < size; ++k) {
        if (text[i + k] == kSpaceMark[0] && text.substr(i + k).starts_with(kSpaceMark)) size = k;
      }
      const auto index = static_cast<std::int32_t>(symbols.size());
      i += size;
      symbols.push_back({index - 1, i < text.size() ? index + 1 : -1, text.data() + i - size, size});
    }
    return symbols;
  }

  bool look_up(const std::vector<Symbol>& symbols, std::int32_t left, std::int32_t right, Bigram& out) const {
    if (left < 0 || right < 0) return false;
    const Symbol& l = symbols[static_cast<std::size_t>(left)];
    const std::size_t size = l.size + symbols[static_cast<std::size_t>(right)].size;
    const Token token = data_.index.find({l.data, size});  // neighbours lie side by side in the text
    if (token == kNoToken) return false;
    out = {data_.score(token), left, right, size};
    return true;
  }

  // A merged symbol is a token by construction; a single character may be none and falls to its bytes.
  void emit(std::string_view symbol, std::vector<Token>& out) const {
    if (const Token token = data_.index.find(symbol); token != kNoToken) {
      out.push_back(token);
      return;
    }
    for (const char c : symbol) {
      Token token = data_.byte_tokens[static_cast<unsigned char>(c)];
      if (token == kNoToken) token = data_.special.unk;
      if (token != kNoToken) out.push_back(token);
    }
  }

  const VocabData& data_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_spm(const VocabData& data, const ggml::gguf::Metadata& /*metadata*/) {
  return std::make_unique<SpmTokenizer>(data);
}

}  // namespace llama
