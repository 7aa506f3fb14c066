#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llama/types.h"

namespace ggml::gguf {
class Metadata;
}

namespace llama {

/// The tokenization algorithm that `tokenizer.ggml.model` names.
enum class VocabKind : std::uint8_t {
  none,   // the file says it has no vocabulary; ids only
  spm,    // SentencePiece merges by score (llama)
  bpe,    // merges by rank, byte-level (gpt2) or over raw characters (gemma4)
  wpm,    // WordPiece (bert)
  ugm,    // unigram Viterbi (t5)
  rwkv,   // greedy longest match
  plamo,  // unigram from the end of the text, scores in whole numbers (plamo2)
};

/// `tokenizer.ggml.token_type`, after the corrections that are made by text at load.
enum class TokenType : std::uint8_t { undefined, normal, unknown, control, user_defined, unused, byte };

/// Ids with a meaning; kNoToken where the vocabulary has none.
struct SpecialTokens {
  Token bos = kNoToken;
  Token eos = kNoToken;
  Token eot = kNoToken;  // end of turn
  Token eom = kNoToken;  // end of message
  Token unk = kNoToken;
  Token sep = kNoToken;
  Token pad = kNoToken;
  Token mask = kNoToken;
  Token newline = kNoToken;
  Token fim_pre = kNoToken;  // fill in the middle: prefix, suffix, middle, padding, repository name, file separator
  Token fim_suf = kNoToken;
  Token fim_mid = kNoToken;
  Token fim_pad = kNoToken;
  Token fim_rep = kNoToken;
  Token fim_sep = kNoToken;
};

struct TokenizeOptions {
  bool add_special = false;    // BOS in front, EOS behind, where the vocabulary says so
  bool parse_special = false;  // texts of control tokens become those tokens (a rendered chat prompt); else plain text
};

/// Whether control and unknown tokens are written as their text or as nothing.
enum class SpecialText : std::uint8_t { hide, show };

struct DetokenizeOptions {
  SpecialText special = SpecialText::show;
  bool remove_special = false;  // drop a leading BOS and a trailing EOS that tokenize() would have added
};

/// The vocabulary of a model: text <-> tokens. Immutable and thread-safe once loaded; move-only; views that it returns
/// live as long as it does.
class Vocab {
 public:
  /// Builds the vocabulary from the `tokenizer.ggml.*` keys. `file` is named in the messages.
  /// Throws Error: invalid_file naming the key, its value and what was expected; unsupported for an unknown `model` or
  /// `pre`, listing the known ones.
  static Vocab load(const ggml::gguf::Metadata& metadata, const std::string& file);

  Vocab(Vocab&&) noexcept;
  Vocab& operator=(Vocab&&) noexcept;
  ~Vocab();

  [[nodiscard]] VocabKind kind() const noexcept;
  /// "SPM", "BPE", ... as logs print it.
  [[nodiscard]] std::string_view kind_name() const noexcept;
  /// `tokenizer.ggml.pre`, "default" when the file names none; empty for other kinds than BPE.
  [[nodiscard]] std::string_view pre_name() const noexcept;
  [[nodiscard]] std::int32_t n_tokens() const noexcept;

  /// Tokens of any byte string; invalid UTF-8 is replaced by U+FFFD or falls to byte tokens, as the kind prescribes.
  /// Linear in text.size(). Throws Error(unsupported) for kind none, Error(exceeds_limit) above 2^31-1 bytes.
  [[nodiscard]] std::vector<Token> tokenize(std::string_view text, TokenizeOptions options) const;

  /// The bytes a token stands for: often not valid UTF-8 alone (see Utf8Stream), empty for hidden control tokens and
  /// for unused ones. Throws Error(invalid_argument) for an id outside the vocabulary.
  [[nodiscard]] std::string_view piece(Token token, SpecialText special) const;
  /// Concatenated pieces, nothing cleaned: generated text and the server's /detokenize.
  [[nodiscard]] std::string pieces(std::span<const Token> tokens, SpecialText special) const;
  /// Text of a whole list as the library's detokenize call gives it: the added space prefix is removed, and spaces
  /// before punctuation where the vocabulary asks for cleaning.
  [[nodiscard]] std::string detokenize(std::span<const Token> tokens, DetokenizeOptions options) const;

  /// The token's text as stored (spaces as U+2581, bytes mapped to printable characters). Same errors as piece().
  [[nodiscard]] std::string_view text(Token token) const;
  [[nodiscard]] TokenType type(Token token) const;
  [[nodiscard]] float score(Token token) const;
  /// The token whose stored text is exactly `text`, or kNoToken.
  [[nodiscard]] Token find(std::string_view text) const noexcept;
  [[nodiscard]] bool contains(Token token) const noexcept { return token >= 0 && token < n_tokens(); }

  [[nodiscard]] const SpecialTokens& special() const noexcept;
  [[nodiscard]] bool add_bos() const noexcept;
  [[nodiscard]] bool add_eos() const noexcept;
  [[nodiscard]] bool add_sep() const noexcept;
  [[nodiscard]] bool add_space_prefix() const noexcept;
  [[nodiscard]] bool clean_spaces() const noexcept;

  /// Generation stops when one of these is sampled. False for ids outside the vocabulary.
  [[nodiscard]] bool is_eog(Token token) const noexcept;
  /// All end-of-generation ids, ascending.
  [[nodiscard]] std::span<const Token> eog_tokens() const noexcept;
  [[nodiscard]] bool is_control(Token token) const noexcept;
  /// `tokenizer.ggml.suppress_tokens`: ids that must never be sampled, ascending.
  [[nodiscard]] std::span<const Token> suppressed_tokens() const noexcept;

 private:
  struct Impl;
  explicit Vocab(std::unique_ptr<const Impl> impl) noexcept;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace llama
