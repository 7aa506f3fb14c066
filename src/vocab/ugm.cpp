#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "trie.h"
#include "utf8_decode.h"
#include "vocab_data.h"

// Unigram (T5): normalise, then the segmentation with the best sum of scores, by Viterbi over characters.

namespace llama {

namespace {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

/// SentencePiece's compiled normaliser: a double array of u32 whose leaves point at NUL-terminated replacements. Every
/// index comes from the file and is checked where it is used.
class CharsMap {
 public:
  CharsMap() = default;
  CharsMap(const std::string& file, std::string bytes) {
    constexpr const char* kKey = "tokenizer.ggml.precompiled_charsmap";
    std::uint32_t table_bytes = 0;
    if (bytes.size() >= sizeof table_bytes) std::memcpy(&table_bytes, bytes.data(), sizeof table_bytes);
    if (bytes.size() < sizeof table_bytes || table_bytes % 4 != 0 || table_bytes == 0 ||
        table_bytes >= bytes.size() - sizeof table_bytes) {
      throw Error(ErrorCode::invalid_file,
                  strf("%s: %s: a table of %u bytes in %zu bytes, a multiple of 4 and room for replacements expected",
                       file.c_str(), kKey, table_bytes, bytes.size()));
    }
    if (bytes.back() != '\0') {
      throw Error(ErrorCode::invalid_file,
                  strf("%s: %s: the last replacement is not ended by a NUL byte", file.c_str(), kKey));
    }
    table_.resize(table_bytes / 4);
    std::memcpy(table_.data(), bytes.data() + sizeof table_bytes, table_bytes);
    replacements_ = bytes.substr(sizeof table_bytes + table_bytes);
  }

  struct Match {
    std::size_t length = 0;  // bytes replaced; 0 for none
    std::string_view replacement;
  };
  /// The longest prefix of `text` that has a replacement.
  [[nodiscard]] Match longest(std::string_view text) const {
    Match best;
    if (table_.empty()) return best;
    std::size_t node = base(table_[0]);
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      node ^= byte;
      if (node >= table_.size()) break;
      const std::uint32_t entry = table_[node];
      if ((entry & kCheckMask) != byte) break;
      node ^= base(entry);
      if ((entry & kLeafBit) == 0) continue;
      if (node >= table_.size()) break;
      const std::size_t at = table_[node] & kValueMask;
      if (at >= replacements_.size()) break;
      best = {i + 1, std::string_view(replacements_.data() + at)};
    }
    return best;
  }

  /// Whether this ASCII character is replaced alone or together with an ASCII character behind it.
  [[nodiscard]] bool replaces_ascii(unsigned char first) const {
    for (int second = 0; second < 0x80; ++second) {
      const char text[] = {static_cast<char>(first), static_cast<char>(second)};
      if (reach({text, 2}) == 2 || longest({text, 2}).length > 0) return true;
    }
    return false;
  }

 private:
  /// How many bytes of `text` lead somewhere.
  [[nodiscard]] std::size_t reach(std::string_view text) const {
    std::size_t node = table_.empty() ? 0 : base(table_[0]);
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      node ^= byte;
      if (node >= table_.size() || (table_[node] & kCheckMask) != byte) return i;
      node ^= base(table_[node]);
    }
    return text.size();
  }

  static constexpr std::uint32_t kCheckMask = 0x800000FF;
  static constexpr std::uint32_t kLeafBit = 0x100;
  static constexpr std::uint32_t kValueMask = 0x7FFFFFFF;
  static std::size_t base(std::uint32_t entry) { return std::size_t{entry >> 10} << ((entry & 0x200) >> 6); }

  std::vector<std::uint32_t> table_;
  std::string replacements_;
};

class UgmTokenizer final : public Tokenizer {
 public:
  UgmTokenizer(const VocabData& data, CharsMap charsmap, bool space_as_suffix)
      : data_(data), charsmap_(std::move(charsmap)), space_as_suffix_(space_as_suffix) {
    std::vector<Trie::Entry> pieces;
    std::vector<Trie::Entry> verbatim;
    double lowest = std::numeric_limits<double>::max();
    scores_.reserve(data.texts.size());
    for (Token t = 0; t < data.n_tokens(); ++t) {
      const TokenType type = data.type(t);
      scores_.push_back(type == TokenType::user_defined ? 0.0F : data.score(t));
      if (type == TokenType::normal) lowest = std::min(lowest, double{data.score(t)});
      if (type == TokenType::normal || type == TokenType::user_defined || type == TokenType::unused) {
        pieces.push_back({data.text(t), t});
        note_joints(data.text(t));
      }
      if (type == TokenType::user_defined) verbatim.push_back({data.text(t), t});
    }
    constexpr double kUnknownPenalty = 10;
    unknown_score_ = (lowest == std::numeric_limits<double>::max() ? 0.0 : lowest) - kUnknownPenalty;
    pieces_ = Trie(std::move(pieces));
    verbatim_ = Trie(std::move(verbatim));
    for (int c = 0; c < 0x80; ++c) {
      const auto byte = static_cast<unsigned char>(c);
      stays_[byte] = byte != ' ' && !verbatim_.starts_with(byte) && !charsmap_.replaces_ascii(byte);
    }
  }

  void tokenize(std::span<const Fragment> fragments, std::vector<Token>& out) const override {
    Work work;
    for (const Fragment& fragment : fragments) {
      if (fragment.token != kNoToken) {
        out.push_back(fragment.token);
        continue;
      }
      normalise(fragment.text, work);
      segment(work, out);
    }
  }

 private:
  /// The best way to one byte of a word.
  struct Best {
    double score = 0;
    std::uint32_t length = 0;  // of the token that ends here; 0: not reached yet
    Token token = kNoToken;
  };
  struct Work {                     // scratch of one call
    std::string marked;             // the normalised text
    std::vector<std::size_t> ends;  // of its words
    std::vector<Best> best;
  };

  /// Writes the normalised text, spaces as marks. Where no token has both the byte in front of a mark and the mark,
  /// every segmentation has a border, and a word ends.
  class Writer {
   public:
    Writer(const UgmTokenizer& tokenizer, Work& work) : tokenizer_(tokenizer), out_(work.marked), ends_(work.ends) {
      out_.clear();
      ends_.clear();
      if (tokenizer_.data_.add_space_prefix && !tokenizer_.space_as_suffix_) out_ = kSpaceMark;
      prefix_ = out_.size();
    }

    /// Pre: `text` has no spaces.
    void put(std::string_view text) {
      if (std::exchange(waiting_, false)) mark();
      out_.append(text);
    }
    void space() {
      if (!tokenizer_.data_.remove_extra_whitespaces) {
        mark();
      } else {
        waiting_ = out_.size() > prefix_;  // only text behind it makes a space of it
      }
    }
    /// What the normaliser puts in a character's place, spaces among it.
    void put_any(std::string_view text) {
      for (std::size_t at = 0; (at = text.find(' ')) != std::string_view::npos; text.remove_prefix(at + 1)) {
        if (at > 0) put(text.substr(0, at));
        space();
      }
      if (!text.empty()) put(text);
    }
    void finish() {
      if (out_.size() == prefix_) out_.clear();
      if (tokenizer_.data_.add_space_prefix && tokenizer_.space_as_suffix_ && !out_.empty()) out_ += kSpaceMark;
      if (!out_.empty()) ends_.push_back(out_.size());
    }

   private:
    void mark() {
      if (!out_.empty() && !tokenizer_.joins_mark_[static_cast<unsigned char>(out_.back())])
        ends_.push_back(out_.size());
      out_ += kSpaceMark;
    }

    const UgmTokenizer& tokenizer_;
    std::string& out_;
    std::vector<std::size_t>& ends_;
    std::size_t prefix_ = 0;
    bool waiting_ = false;  // a space
  };

  void note_joints(std::string_view text) {
    for (std::size_t at = 1; (at = text.find(kSpaceMark, at)) != std::string_view::npos; ++at) {
      joins_mark_[static_cast<unsigned char>(text[at - 1])] = true;
    }
  }

  void normalise(std::string_view text, Work& work) const {
    Writer out(*this, work);
    for (std::size_t i = 0; i < text.size();) {
      // Runs of ASCII that nothing replaces are copied whole. The last of a run may combine with what follows it.
      std::size_t end = i;
      while (end < text.size() && stays_[static_cast<unsigned char>(text[end])]) ++end;
      if (end > i && end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80) --end;
      if (end > i) {
        out.put(text.substr(i, end - i));
        i = end;
      } else {
        i += normalise_char(text.substr(i), out);
      }
    }
    out.finish();
  }

  // Writes what stands for the characters at the front; returns how many bytes that were.
  std::size_t normalise_char(std::string_view text, Writer& out) const {
    if (const std::size_t length = verbatim_.longest(text).length; length > 0) {
      out.put_any(text.substr(0, length));
      return length;
    }
    if (const CharsMap::Match match = charsmap_.longest(text); match.length > 0) {
      out.put_any(match.replacement);
      return match.length;
    }
    const Utf8Char c = decode_utf8(text);
    if (c.code == ' ') {
      out.space();
    } else {
      out.put(c.valid ? text.substr(0, c.size) : kReplacement);
    }
    return c.size;
  }

  // The best segmentation of the text is that of its words. Sums go on from word to word, so that rounding falls out as
  // if there were none.
  void segment(Work& work, std::vector<Token>& out) const {
    double score = 0;
    bool after_unknown = false;
    std::size_t begin = 0;
    for (const std::size_t word_end : work.ends) {
      const std::string_view word = std::string_view(work.marked).substr(begin, word_end - begin);
      score = find_best(word, score, work.best);
      const std::size_t before = out.size();
      // From the end; of unknown tokens side by side one is enough.
      bool unknown_behind = false;
      for (std::size_t end = word.size(); end > 0; end -= work.best[end].length) {
        const Token token = work.best[end].token;
        const bool unknown = token == data_.special.unk;
        if (token != kNoToken && !(unknown && unknown_behind)) out.push_back(token);
        unknown_behind = unknown;
      }
      if (after_unknown && unknown_behind && data_.special.unk != kNoToken) out.pop_back();
      std::reverse(out.begin() + static_cast<std::ptrdiff_t>(before), out.end());
      after_unknown = work.best[word.size()].token == data_.special.unk;
      begin = word_end;
    }
  }

  // Fills `best` [bytes of word + 1]; returns the score at the end of the word.
  double find_best(std::string_view word, double score, std::vector<Best>& best) const {
    best.assign(word.size() + 1, {});
    best[0].score = score;
    const auto offer = [](Best& at, double sum, std::size_t length, Token token) {
      if (at.length == 0 || sum > at.score) at = {sum, static_cast<std::uint32_t>(length), token};
    };
    for (std::size_t i = 0; i < word.size();) {
      const std::size_t size = std::min(announced_utf8_size(static_cast<unsigned char>(word[i])), word.size() - i);
      const double here = best[i].score;
      bool has_char = false;
      pieces_.matches(word.substr(i), [&](std::size_t length, Token token) {
        offer(best[i + length], here + double{scores_[static_cast<std::size_t>(token)]}, length, token);
        has_char = has_char || length == size;
      });
      if (!has_char) offer(best[i + size], here + unknown_score_, size, data_.special.unk);
      i += size;
    }
    return best[word.size()].score;
  }

  const VocabData& data_;
  CharsMap charsmap_;
  bool space_as_suffix_;
  double unknown_score_ = 0;
  std::vector<float> scores_;           // [n_tokens]; user-defined tokens cost nothing
  std::array<bool, 256> stays_{};       // ASCII but the space that nothing replaces, whatever ASCII follows
  std::array<bool, 256> joins_mark_{};  // whether some token has this byte in front of a mark
  Trie pieces_;
  Trie verbatim_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_ugm(const VocabData& data, const ggml::gguf::Metadata& metadata) {
  CharsMap charsmap;
  const ggml::gguf::Array* map = metadata.get_array("tokenizer.ggml.precompiled_charsmap");
  if (map != nullptr && map->size() > 0) {
    using ggml::gguf::ValueType;
    if (map->element != ValueType::u8 && map->element != ValueType::i8) {
      throw Error(
          ErrorCode::invalid_file,
          strf("%s: tokenizer.ggml.precompiled_charsmap: an array of bytes expected, the file has an array of %s",
               data.file.c_str(), std::string(ggml::gguf::value_type_name(map->element)).c_str()));
    }
    charsmap =
        CharsMap(data.file, std::string(reinterpret_cast<const char*>(map->numbers.data()), map->numbers.size()));
  }
  const bool suffix = metadata.get_bool("tokenizer.ggml.treat_whitespace_as_suffix").value_or(false);
  return std::make_unique<UgmTokenizer>(data, std::move(charsmap), suffix);
}

}  // namespace llama
