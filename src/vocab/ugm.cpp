#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

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

 private:
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
    for (Token t = 0; t < data.n_tokens(); ++t) {
      const TokenType type = data.type(t);
      if (type == TokenType::normal) lowest = std::min(lowest, double{data.score(t)});
      if (type == TokenType::normal || type == TokenType::user_defined || type == TokenType::unused) {
        pieces.push_back({data.text(t), t});
      }
      if (type == TokenType::user_defined) verbatim.push_back({data.text(t), t});
    }
    constexpr double kUnknownPenalty = 10;
    unknown_score_ = (lowest == std::numeric_limits<double>::max() ? 0.0 : lowest) - kUnknownPenalty;
    pieces_ = Trie(std::move(pieces));
    verbatim_ = Trie(std::move(verbatim));
  }

  void tokenize(std::span<const Fragment> fragments, std::vector<Token>& out) const override {
    for (const Fragment& fragment : fragments) {
      if (fragment.token != kNoToken) {
        out.push_back(fragment.token);
      } else {
        segment(mark_spaces(replace_chars(fragment.text)), out);
      }
    }
  }

 private:
  // Replaced characters, spaces still as spaces.
  [[nodiscard]] std::string replace_chars(std::string_view text) const {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
      std::size_t used = verbatim_.longest(text).length;
      if (used > 0) {
        out.append(text.substr(0, used));
      } else if (const CharsMap::Match match = charsmap_.longest(text); match.length > 0) {
        used = match.length;
        out.append(match.replacement);
      } else {
        const Utf8Char c = decode_utf8(text);
        used = c.size;
        append_utf8(out, c.code);
      }
      text.remove_prefix(used);
    }
    return out;
  }

  [[nodiscard]] std::string mark_spaces(std::string_view text) const {
    std::string out;
    if (data_.remove_extra_whitespaces) {
      for (std::size_t begin = 0; (begin = text.find_first_not_of(' ', begin)) != std::string_view::npos;) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        if (!out.empty()) out += kSpaceMark;
        out += text.substr(begin, end - begin);
        begin = end;
      }
    } else {
      out = spaces_to_marks(text);
    }
    if (!data_.add_space_prefix || out.empty()) return out;
    return space_as_suffix_ ? out.append(kSpaceMark) : std::string(kSpaceMark) + out;
  }

  void segment(std::string_view text, std::vector<Token>& out) const {
    struct Best {
      double score = -std::numeric_limits<double>::infinity();
      std::size_t begin = 0;  // where the token that ends here begins
      Token token = kNoToken;
    };
    std::vector<Best> best(text.size() + 1);
    best[0].score = 0;
    const auto offer = [&](std::size_t begin, std::size_t end, double score, Token token) {
      if (score > best[end].score || (end > begin && best[end].begin == end)) best[end] = {score, begin, token};
    };
    for (std::size_t i = 1; i < best.size(); ++i) best[i].begin = i;  // not reached yet
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t size = std::min(announced_utf8_size(static_cast<unsigned char>(text[i])), text.size() - i);
      bool has_char = false;
      pieces_.matches(text.substr(i), [&](std::size_t length, Token token) {
        const bool user = data_.type(token) == TokenType::user_defined;
        offer(i, i + length, best[i].score + (user ? 0.0 : double{data_.score(token)}), token);
        has_char = has_char || length == size;
      });
      if (!has_char) offer(i, i + size, best[i].score + unknown_score_, data_.special.unk);
      i += size;
    }
    const std::size_t before = out.size();
    bool after_unknown = false;
    for (std::size_t end = text.size(); end > 0; end = best[end].begin) {
      const Token token = best[end].token;
      const bool unknown = token == data_.special.unk;
      if (token != kNoToken && !(unknown && after_unknown)) out.push_back(token);
      after_unknown = unknown;
    }
    std::reverse(out.begin() + static_cast<std::ptrdiff_t>(before), out.end());
  }

  const VocabData& data_;
  CharsMap charsmap_;
  bool space_as_suffix_;
  double unknown_score_ = 0;
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
