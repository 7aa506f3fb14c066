#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llama/vocab.h"
#include "pretokenizer.h"
#include "text_index.h"

namespace llama {

/// White space beside a special token that belongs to it and vanishes.
struct Strip {
  bool left = false;
  bool right = false;
};

/// What every algorithm needs of a vocabulary. Filled by load_vocab_data(), immutable afterwards.
struct VocabData {
  std::string file;  // for messages
  VocabKind kind = VocabKind::none;
  std::vector<std::string> texts;  // as stored; index = id
  std::vector<TokenType> types;
  std::vector<float> scores;         // empty: all 0
  std::vector<std::string> aliases;  // texts of `index` beyond the stored ones
  TextIndex index;
  SpecialTokens special;
  std::array<Token, 256> byte_tokens{};  // kNoToken where the vocabulary has none
  const PreTokenizerRow* pre = nullptr;  // BPE only
  bool add_bos = false;
  bool add_eos = false;
  bool add_sep = false;
  bool add_space_prefix = false;
  bool remove_extra_whitespaces = false;
  bool clean_spaces = false;
  std::vector<Token> eog;       // ascending
  std::vector<Token> suppress;  // ascending
  std::vector<Strip> strips;    // empty: none strips

  [[nodiscard]] std::int32_t n_tokens() const noexcept { return static_cast<std::int32_t>(texts.size()); }
  [[nodiscard]] const std::string& text(Token t) const { return texts[static_cast<std::size_t>(t)]; }
  [[nodiscard]] TokenType type(Token t) const { return types[static_cast<std::size_t>(t)]; }
  [[nodiscard]] float score(Token t) const { return scores.empty() ? 0.0F : scores[static_cast<std::size_t>(t)]; }
  /// Spaces are stored as U+2581.
  [[nodiscard]] bool uses_marks() const noexcept {
    if (kind == VocabKind::bpe) return pre->form == BpeForm::marks || pre->form == BpeForm::marks_lines;
    return kind == VocabKind::spm || kind == VocabKind::wpm || kind == VocabKind::ugm;
  }
};

/// A stretch of text to be tokenised, or a special token that was found in it.
struct Fragment {
  std::string_view text;
  Token token = kNoToken;
};

/// One algorithm, text to tokens. Immutable and thread-safe; keeps a reference to the VocabData it was made from.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Appends the tokens of all fragments. Neither BOS nor EOS are its concern.
  virtual void tokenize(std::span<const Fragment> fragments, std::vector<Token>& out) const = 0;
};

/// One row per `tokenizer.ggml.model`: the defaults that hold before the keys are read, and how to build it.
struct ModelRow {
  std::string_view model;
  VocabKind kind = VocabKind::none;
  Token bos = kNoToken;
  Token eos = kNoToken;
  Token unk = kNoToken;
  Token sep = kNoToken;
  Token pad = kNoToken;
  Token mask = kNoToken;
  bool add_bos = false;
  bool add_eos = false;
  bool add_sep = false;
  bool add_space_prefix = false;
  bool clean_spaces = false;
  std::string_view pre = {};  // the pre-tokenizer when the file names none; empty: "default" with a warning
  std::unique_ptr<Tokenizer> (*make)(const VocabData& data, const ggml::gguf::Metadata& metadata) = nullptr;
};

[[nodiscard]] std::span<const ModelRow> model_rows();

std::unique_ptr<Tokenizer> make_spm(const VocabData& data, const ggml::gguf::Metadata& metadata);
std::unique_ptr<Tokenizer> make_bpe(const VocabData& data, const ggml::gguf::Metadata& metadata);
std::unique_ptr<Tokenizer> make_wpm(const VocabData& data, const ggml::gguf::Metadata& metadata);
std::unique_ptr<Tokenizer> make_ugm(const VocabData& data, const ggml::gguf::Metadata& metadata);
std::unique_ptr<Tokenizer> make_plamo(const VocabData& data, const ggml::gguf::Metadata& metadata);
std::unique_ptr<Tokenizer> make_rwkv(const VocabData& data, const ggml::gguf::Metadata& metadata);

/// Reads and checks the keys; see Vocab::load for the errors. `row` receives the model's row.
void load_vocab_data(const ggml::gguf::Metadata& metadata, VocabData& data, const ModelRow*& row);
/// Finds special ids by text, builds the end-of-generation set and corrects types accordingly.
void resolve_special_tokens(VocabData& data);

/// The bytes each token stands for, in one pool.
class PieceTable {
 public:
  PieceTable() = default;
  explicit PieceTable(const VocabData& data);
  [[nodiscard]] std::string_view get(Token token) const {
    const auto t = static_cast<std::size_t>(token);
    return std::string_view(pool_).substr(begins_[t], begins_[t + 1] - begins_[t]);
  }

 private:
  std::string pool_;
  std::vector<std::size_t> begins_;
};

/// The library's cleaning of a detokenised list: no space before ? ! . , nor before 's 'm 're 've.
[[nodiscard]] std::string clean_up_spaces(std::string text);

/// GPT-2's map of bytes to printable characters: the code point of each byte, and back (-1: not in the map).
[[nodiscard]] char32_t byte_to_printable(unsigned char byte) noexcept;
[[nodiscard]] int printable_to_byte(char32_t code) noexcept;

/// The bytes of an RWKV piece, which files write as a Python literal would: \t \n \r \\ and \xHH.
[[nodiscard]] std::string unescape_rwkv(std::string_view text);

/// The value of a byte token's text `<0xXX>`, or -1.
[[nodiscard]] int byte_token_value(std::string_view text) noexcept;

}  // namespace llama
