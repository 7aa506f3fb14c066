#include "trie.h"
#include "vocab_data.h"

// RWKV World: the longest token that matches, byte by byte from the left.

namespace llama {

namespace {

class RwkvTokenizer final : public Tokenizer {
 public:
  explicit RwkvTokenizer(const VocabData& data) : data_(data) {
    std::vector<Trie::Entry> entries;
    entries.reserve(data.texts.size());
    for (Token t = 0; t < data.n_tokens(); ++t) entries.push_back({unescape_rwkv(data.text(t)), t});
    tokens_ = Trie(std::move(entries));
  }

  void tokenize(std::span<const Fragment> fragments, std::vector<Token>& out) const override {
    for (const Fragment& fragment : fragments) {
      if (fragment.token != kNoToken) {
        out.push_back(fragment.token);
        continue;
      }
      for (std::string_view rest = fragment.text; !rest.empty();) {
        const Trie::Match match = tokens_.longest(rest);
        const Token token = match.length > 0 ? match.value : data_.special.unk;
        if (token != kNoToken) out.push_back(token);
        rest.remove_prefix(match.length > 0 ? match.length : 1);
      }
    }
  }

 private:
  const VocabData& data_;
  Trie tokens_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_rwkv(const VocabData& data, const ggml::gguf::Metadata& /*metadata*/) {
  return std::make_unique<RwkvTokenizer>(data);
}

}  // namespace llama
