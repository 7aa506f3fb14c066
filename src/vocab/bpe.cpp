#include <deque>
#include <unordered_map>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "ggml/quoted.h"
#include "llama/utf8.h"
#include "merge_queue.h"
#include "nfc.h"
#include "utf8_decode.h"
#include "vocab_data.h"

// Byte-pair encoding by ranked merges inside the pieces of the pre-tokenizer.
//
// Symbols are numbers: ids below n_tokens are tokens, ids from there on are texts that occur in merges only, and -1 is
// a character that neither knows. A merge is then one look-up of a pair of numbers, without touching text.

namespace llama {

namespace {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

class SymbolTable {
 public:
  explicit SymbolTable(const VocabData& data) : data_(data) {}

  // The number of `text`; a text that is no token gets a new one.
  std::int32_t intern(std::string text) {
    if (const std::int32_t known = find(text); known >= 0) return known;
    const auto id = static_cast<std::int32_t>(data_.n_tokens() + static_cast<std::int32_t>(extra_.size()));
    extra_.push_back(std::move(text));
    extra_index_.insert(extra_.back(), id);
    return id;
  }

  [[nodiscard]] std::int32_t find(std::string_view text) const {
    const Token token = data_.index.find(text);
    return token != kNoToken ? token : extra_index_.find(text);
  }

 private:
  const VocabData& data_;
  std::deque<std::string> extra_;  // a deque, since the index keeps views
  TextIndex extra_index_;
};

struct Symbol {
  std::int32_t id = -1;
  std::int32_t prev = -1;
  std::int32_t next = -1;
  std::uint32_t begin = 0;  // in the piece, for symbols that are no tokens
  std::uint32_t size = 0;   // 0 once merged into the left neighbour
};

/// An open merge: the symbol on its left; its key is the rank.
struct Candidate {
  std::int32_t left = -1;
};

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(const VocabData& data, const ggml::gguf::Array* merges)
      : data_(data),
        symbols_(data),
        n_ranks_(merges != nullptr ? merges->size() : 0),
        merges_(n_ranks_),
        splitter_(data.pre->group),
        byte_level_(data.pre->form == BpeForm::byte_level) {
    if (merges != nullptr) read_merges(*merges);
    base_.fill(-1);
    if (!byte_level_) return;
    for (int byte = 0; byte < 256; ++byte) {
      std::string text;
      append_utf8(text, byte_to_printable(static_cast<unsigned char>(byte)));
      base_[static_cast<std::size_t>(byte)] = symbols_.find(text);
    }
    if (data.pre->ignore_merges) index_whole_pieces();
  }

  void tokenize(std::span<const Fragment> fragments, std::vector<Token>& out) const override {
    std::vector<std::string_view> pieces;
    Work work;
    for (const Fragment& fragment : fragments) {
      if (fragment.token != kNoToken) {
        out.push_back(fragment.token);
        continue;
      }
      splitter_.split(normalise(fragment.text, work), pieces);
      for (const std::string_view piece : pieces) tokenize_piece(piece, work, out);
    }
  }

 private:
  struct Work {  // scratch of one call
    std::string valid, composed, marked;
    std::vector<Symbol> symbols;
    std::vector<Merge> pairs;
    HeapQueue<Candidate> heap;
    BucketQueue<Candidate> buckets;
  };

  void read_merges(const ggml::gguf::Array& merges) {
    for (std::size_t rank = 0; rank < merges.strings.size(); ++rank) {
      const std::string& line = merges.strings[rank];
      const std::size_t space = line.find(' ', 1);
      if (space == std::string::npos || space + 1 == line.size()) {
        throw Error(ErrorCode::invalid_file,
                    strf("%s: tokenizer.ggml.merges: element %zu is %s, two symbols with a space between expected",
                         data_.file.c_str(), rank, ggml::gguf::quoted(line).c_str()));
      }
      const std::int32_t left = symbols_.intern(line.substr(0, space));
      const std::int32_t right = symbols_.intern(line.substr(space + 1));
      const std::int32_t merged = symbols_.intern(line.substr(0, space) + line.substr(space + 1));
      merges_.insert(left, right, {static_cast<std::uint32_t>(rank), merged});
    }
  }

  // Tokens by the bytes they stand for, so that a piece need not be mapped to printable characters for the look-up.
  void index_whole_pieces() {
    whole_.reserve(data_.texts.size());
    for (Token t = 0; t < data_.n_tokens(); ++t) {
      std::string bytes;
      bool mapped = true;
      const std::string_view text = data_.text(t);
      for (std::size_t i = 0; i < text.size() && mapped;) {
        const Utf8Char c = decode_utf8(text.substr(i));
        const int byte = c.valid ? printable_to_byte(c.code) : -1;
        mapped = byte >= 0;
        bytes += static_cast<char>(byte);
        i += c.size;
      }
      if (!mapped) continue;
      whole_texts_.push_back(std::move(bytes));
      whole_.insert(whole_texts_.back(), t);
    }
  }

  // The text that the pre-tokenizer sees: valid UTF-8, in the model's normal form, spaces as the vocabulary writes
  // them. Copies only when needed.
  std::string_view normalise(std::string_view text, Work& work) const {
    if (!is_valid_utf8(text)) {
      work.valid = replace_invalid_utf8(text);
      text = work.valid;
    }
    if (data_.pre->nfc) text = to_nfc(text, work.composed);
    if (!data_.uses_marks()) return text;
    work.marked = spaces_to_marks(text);
    return work.marked;
  }

  void tokenize_piece(std::string_view piece, Work& work, std::vector<Token>& out) const {
    if (byte_level_ && piece.size() == 1) {  // a byte has nothing to merge with
      emit(base_[static_cast<unsigned char>(piece[0])], piece, out);
      return;
    }
    if (data_.pre->ignore_merges) {
      const Token token = byte_level_ ? whole_.find(piece) : data_.index.find(piece);
      if (token != kNoToken) {
        out.push_back(token);
        return;
      }
    }
    if (data_.pre->form == BpeForm::marks_lines && piece.find_first_not_of('\n') == std::string_view::npos) {
      if (const Token token = data_.index.find(piece); token != kNoToken) {
        out.push_back(token);
        return;
      }
    }
    split(piece, work.symbols);
    // Scanning all pairs for each merge beats a queue while they fit a few cache lines.
    constexpr std::size_t kScanLimit = 48;
    if (work.symbols.size() <= kScanLimit) {
      merge_by_scan(work);
    } else if (work.symbols.size() <= BucketQueue<Candidate>::kWorthwhile) {
      merge_by(work.heap, work.symbols);
    } else {
      work.buckets.reserve_keys(n_ranks_);
      merge_by(work.buckets, work.symbols);
    }
    for (const Symbol& symbol : work.symbols) {
      if (symbol.size > 0) emit(symbol.id, piece.substr(symbol.begin, symbol.size), out);
    }
  }

  void split(std::string_view piece, std::vector<Symbol>& symbols) const {
    symbols.clear();
    for (std::size_t i = 0; i < piece.size();) {
      const auto byte = static_cast<unsigned char>(piece[i]);
      const std::size_t size = byte_level_ ? 1 : std::min(announced_utf8_size(byte), piece.size() - i);
      Symbol symbol;
      symbol.id = byte_level_ ? base_[byte] : symbols_.find(piece.substr(i, size));
      symbol.begin = static_cast<std::uint32_t>(i);
      symbol.size = static_cast<std::uint32_t>(size);
      symbol.prev = static_cast<std::int32_t>(symbols.size()) - 1;
      i += size;
      symbol.next = i < piece.size() ? symbol.prev + 2 : -1;
      symbols.push_back(symbol);
    }
  }

  // Short pieces: the symbols stay packed in front of the array; the rest is dropped at the end.
  void merge_by_scan(Work& work) const {
    std::vector<Symbol>& symbols = work.symbols;
    std::vector<Merge>& pairs = work.pairs;
    pairs.clear();
    for (std::size_t i = 1; i < symbols.size(); ++i) pairs.push_back(merges_.find(symbols[i - 1].id, symbols[i].id));
    while (!pairs.empty()) {
      std::size_t best = 0;
      for (std::size_t i = 1; i < pairs.size(); ++i) {
        if (pairs[i].rank < pairs[best].rank) best = i;
      }
      if (pairs[best].symbol < 0) return;
      symbols[best].id = pairs[best].symbol;
      symbols[best].size += symbols[best + 1].size;
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      pairs.erase(pairs.begin() + static_cast<std::ptrdiff_t>(best));
      if (best > 0) pairs[best - 1] = merges_.find(symbols[best - 1].id, symbols[best].id);
      if (best < pairs.size()) pairs[best] = merges_.find(symbols[best].id, symbols[best + 1].id);
    }
  }

  template <class Queue>
  void merge_by(Queue& queue, std::vector<Symbol>& symbols) const {
    const auto at = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
    const auto offer = [&](std::int32_t left, std::int32_t right) {
      if (left < 0 || right < 0) return;
      const Merge merge = merges_.find(at(left).id, at(right).id);
      if (merge.symbol >= 0) queue.push(merge.rank, {left});
    };
    for (std::int32_t i = 1; i < static_cast<std::int32_t>(symbols.size()); ++i) offer(i - 1, i);
    std::uint32_t rank = 0;
    for (Candidate best; queue.pop(rank, best);) {
      Symbol& left = at(best.left);
      if (left.size == 0 || left.next < 0) continue;
      Symbol& right = at(left.next);
      const Merge merge = merges_.find(left.id, right.id);
      if (merge.symbol < 0 || merge.rank != rank) continue;  // other symbols stand there now
      left.id = merge.symbol;
      left.size += right.size;
      right.size = 0;
      left.next = right.next;
      if (left.next >= 0) at(left.next).prev = best.left;
      offer(left.prev, best.left);
      offer(best.left, left.next);
    }
  }

  void emit(std::int32_t symbol, std::string_view text, std::vector<Token>& out) const {
    if (symbol >= 0 && symbol < data_.n_tokens()) {
      out.push_back(symbol);
      return;
    }
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      Token token = byte_level_ ? base_[byte] : data_.byte_tokens[byte];
      if (token >= data_.n_tokens()) token = kNoToken;
      if (token != kNoToken) out.push_back(token);
    }
  }

  const VocabData& data_;
  SymbolTable symbols_;
  std::size_t n_ranks_;
  MergeIndex merges_;
  Splitter splitter_;
  bool byte_level_;
  std::array<std::int32_t, 256> base_{};  // byte-level form: the symbol of each byte
  std::deque<std::string> whole_texts_;
  TextIndex whole_;  // with ignore_merges: tokens by the bytes they stand for
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe(const VocabData& data, const ggml::gguf::Metadata& metadata) {
  const ggml::gguf::Array* merges = metadata.get_array("tokenizer.ggml.merges");
  if (merges == nullptr && data.pre->name != "kimi-k2") {
    throw Error(ErrorCode::invalid_file,
                data.file + ": tokenizer.ggml.merges: the key is missing, byte-pair encoding needs it",
                "convert the model again, with its tokenizer");
  }
  if (merges != nullptr && merges->element != ggml::gguf::ValueType::string) {
    throw Error(ErrorCode::invalid_file,
                strf("%s: tokenizer.ggml.merges: an array of strings expected, the file has an array of %s",
                     data.file.c_str(), std::string(ggml::gguf::value_type_name(merges->element)).c_str()));
  }
  return std::make_unique<BpeTokenizer>(data, merges);
}

}  // namespace llama
