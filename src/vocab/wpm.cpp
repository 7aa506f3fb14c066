#include <utf8proc.h>

#include <array>

#include "ggml/gguf.h"
#include "trie.h"
#include "utf8_decode.h"
#include "vocab_data.h"

// WordPiece (BERT): normalise, cut into words, then take the longest known piece from the left.

namespace llama {

namespace {

bool is_punctuation(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return true;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return code < 0x7F;
    default:
      return false;
  }
}

// The blocks of BERT's own tokenizer. The last supplement block begins at 2B920 there, not at 2B820.
bool is_cjk(char32_t code) {
  struct Range {
    char32_t first, last;
  };
  static constexpr Range kRanges[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                                      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  for (const Range& range : kRanges) {
    if (code >= range.first && code <= range.last) return true;
  }
  return false;
}

bool is_white_space(char32_t code) {
  if (code == ' ' || (code >= 0x09 && code <= 0x0D) || code == 0x85) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return true;
    default:
      return false;
  }
}

// Controls, formats, surrogates and private use. Unassigned code points stay, and end as unknown words.
bool is_dropped(char32_t code) {
  if (code == 0 || code == 0xFFFD) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return true;
    default:
      return false;
  }
}

bool is_mark(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return true;
    default:
      return false;
  }
}

class WpmTokenizer final : public Tokenizer {
 public:
  WpmTokenizer(const VocabData& data, bool lowercase, bool strip_accents)
      : data_(data), lowercase_(lowercase), strip_accents_(strip_accents) {
    std::vector<Trie::Entry> entries;
    entries.reserve(data.texts.size());
    for (Token t = 0; t < data.n_tokens(); ++t) entries.push_back({data.text(t), t});
    pieces_ = Trie(std::move(entries));
  }

  void tokenize(std::span<const Fragment> fragments, std::vector<Token>& out) const override {
    std::string word;
    for (const Fragment& fragment : fragments) {
      if (fragment.token != kNoToken) {
        out.push_back(fragment.token);
        continue;
      }
      std::string_view text = fragment.text;
      while (!text.empty()) {
        const Utf8Char c = decode_utf8(text);
        text.remove_prefix(c.size);
        add_char(c.code, word, out);
      }
      flush(word, out);
    }
  }

 private:
  void add_char(char32_t code, std::string& word, std::vector<Token>& out) const {
    if (is_white_space(code)) {
      flush(word, out);
      return;
    }
    if (is_dropped(code)) return;
    if (strip_accents_) {
      code = base_letter(code);
      if (is_mark(code)) return;
    }
    if (lowercase_) code = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
    const bool alone = is_punctuation(code) || is_cjk(code);
    if (alone) flush(word, out);
    if (word.empty()) word = kSpaceMark;
    append_utf8(word, code);
    if (alone) flush(word, out);
  }

  // The first code point of the canonical decomposition (of a Hangul syllable its first letter, as the references do).
  static char32_t base_letter(char32_t code) {
    if (code < 0x80) return code;
    std::array<utf8proc_int32_t, 8> parts{};
    int boundary = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(),
                                           static_cast<utf8proc_ssize_t>(parts.size()), UTF8PROC_DECOMPOSE, &boundary);
    return n > 0 ? static_cast<char32_t>(parts[0]) : code;
  }

  // Emits the collected word: its pieces, or one unknown token if any part of it has none.
  void flush(std::string& word, std::vector<Token>& out) const {
    if (word.empty()) return;
    const std::size_t before = out.size();
    for (std::string_view rest = word; !rest.empty();) {
      const Trie::Match match = pieces_.longest(rest);
      if (match.length == 0) {
        out.resize(before);
        if (data_.special.unk != kNoToken) out.push_back(data_.special.unk);
        break;
      }
      out.push_back(match.value);
      rest.remove_prefix(match.length);
    }
    word.clear();
  }

  const VocabData& data_;
  bool lowercase_;
  bool strip_accents_;
  Trie pieces_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_wpm(const VocabData& data, const ggml::gguf::Metadata& metadata) {
  const bool lowercase = metadata.get_bool("tokenizer.ggml.normalizer.lowercase").value_or(true);
  const bool strip_accents = metadata.get_bool("tokenizer.ggml.normalizer.strip_accents").value_or(lowercase);
  return std::make_unique<WpmTokenizer>(data, lowercase, strip_accents);
}

}  // namespace llama
