#include "llama/vocab.h"

#include <algorithm>
#include <limits>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "partition.h"
#include "vocab_data.h"

namespace llama {

struct Vocab::Impl {
  VocabData data;
  PieceTable pieces;
  std::vector<bool> eog;
  std::unique_ptr<SpecialPartition> partition;
  std::unique_ptr<Tokenizer> tokenizer;  // null for kind none

  void check(Token token) const {
    if (token >= 0 && token < data.n_tokens()) return;
    throw ggml::Error(ggml::ErrorCode::invalid_argument,
                      ggml::strf("token id %d is outside the vocabulary of %d tokens", token, data.n_tokens()));
  }
  [[nodiscard]] bool hidden(Token token) const {
    const TokenType type = data.type(token);
    return type == TokenType::control || type == TokenType::unknown;
  }
};

Vocab::Vocab(std::unique_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
Vocab::Vocab(Vocab&&) noexcept = default;
Vocab& Vocab::operator=(Vocab&&) noexcept = default;
Vocab::~Vocab() = default;

Vocab Vocab::load(const ggml::gguf::Metadata& metadata, const std::string& file) try {
  auto impl = std::make_unique<Impl>();
  VocabData& data = impl->data;
  data.file = file;
  const ModelRow* row = nullptr;
  load_vocab_data(metadata, data, row);
  impl->pieces = PieceTable(data);
  impl->eog.assign(data.texts.size(), false);
  for (const Token t : data.eog) impl->eog[static_cast<std::size_t>(t)] = true;
  if (row->make != nullptr) {
    impl->partition = std::make_unique<SpecialPartition>(data);
    impl->tokenizer = row->make(data, metadata);
    if (data.kind == VocabKind::wpm) {
      data.special.newline = data.special.pad;
    } else if (data.kind == VocabKind::spm && data.byte_tokens['\n'] != kNoToken) {
      data.special.newline = data.byte_tokens['\n'];
    } else {
      std::vector<Token> tokens;
      const Fragment line{"\n", kNoToken};
      impl->tokenizer->tokenize({&line, 1}, tokens);
      if (!tokens.empty()) data.special.newline = tokens.front();
    }
  }
  return Vocab(std::move(impl));
} catch (const ggml::Error& error) {
  // A key of a wrong type is an error of the metadata, which do not know whose they are.
  if (error.message().starts_with(file)) throw;
  throw ggml::Error(error.code(), file + ": " + error.message(), error.hint());
}

VocabKind Vocab::kind() const noexcept {
  return impl_->data.kind;
}

std::string_view Vocab::kind_name() const noexcept {
  switch (impl_->data.kind) {
    case VocabKind::none:
      return "none";
    case VocabKind::spm:
      return "SPM";
    case VocabKind::bpe:
      return "BPE";
    case VocabKind::wpm:
      return "WPM";
    case VocabKind::ugm:
      return "UGM";
    case VocabKind::rwkv:
      return "RWKV";
    case VocabKind::plamo:
      return "PLaMo-2";
  }
  return "unknown";
}

std::string_view Vocab::pre_name() const noexcept {
  return impl_->data.pre != nullptr ? impl_->data.pre->name : std::string_view{};
}

std::int32_t Vocab::n_tokens() const noexcept {
  return impl_->data.n_tokens();
}

std::vector<Token> Vocab::tokenize(std::string_view text, TokenizeOptions options) const {
  const VocabData& data = impl_->data;
  if (!impl_->tokenizer) {
    throw ggml::Error(
        ggml::ErrorCode::unsupported,
        data.file + ": the model has no vocabulary (tokenizer.ggml.model is none), text cannot be tokenised",
        "send token ids");
  }
  if (text.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()) / 4) {
    throw ggml::Error(ggml::ErrorCode::exceeds_limit,
                      ggml::strf("%zu bytes of text to tokenise, at most 536870911 are possible", text.size()));
  }
  std::vector<Token> out;
  const bool wpm = data.kind == VocabKind::wpm;
  const auto add = [&](Token token) {
    if (options.add_special && token != kNoToken) out.push_back(token);
  };
  if (data.add_bos || wpm) add(data.special.bos);
  const std::size_t first = out.size();
  const std::vector<Fragment> fragments = impl_->partition->split(text, options.parse_special);
  impl_->tokenizer->tokenize(fragments, out);
  if (first == 1 && data.add_bos && out.size() > first && out[first] == data.special.bos) {
    ggml::logf(
        ggml::LogLevel::warn,
        "the text to tokenise begins with the BOS token '%s' and one is added: there are two now; leave it out of "
        "the text, or set tokenizer.ggml.add_bos_token to false",
        data.text(data.special.bos).c_str());
  }
  if (wpm) {
    add(data.special.sep);
  } else if (data.add_eos) {
    add(data.special.eos);
  }
  return out;
}

std::string_view Vocab::piece(Token token, SpecialText special) const {
  impl_->check(token);
  if (special == SpecialText::hide && impl_->hidden(token)) return {};
  return impl_->pieces.get(token);
}

std::string Vocab::pieces(std::span<const Token> tokens, SpecialText special) const {
  std::string out;
  for (const Token token : tokens) out += piece(token, special);
  return out;
}

std::string Vocab::detokenize(std::span<const Token> tokens, DetokenizeOptions options) const {
  const VocabData& data = impl_->data;
  bool remove_space = data.add_space_prefix;
  if (options.remove_special && data.add_bos && !tokens.empty() && tokens.front() == data.special.bos) {
    tokens = tokens.subspan(1);
    remove_space = false;
  }
  if (options.remove_special && data.add_eos && !tokens.empty() && tokens.back() == data.special.eos) {
    tokens = tokens.first(tokens.size() - 1);
  }
  std::string out;
  for (const Token token : tokens) {
    std::string_view bytes = piece(token, options.special);
    if (remove_space && !bytes.empty() && bytes.front() == ' ') bytes.remove_prefix(1);
    remove_space = false;
    out += bytes;
  }
  return data.clean_spaces ? clean_up_spaces(std::move(out)) : out;
}

std::string_view Vocab::text(Token token) const {
  impl_->check(token);
  return impl_->data.text(token);
}

TokenType Vocab::type(Token token) const {
  impl_->check(token);
  return impl_->data.type(token);
}

float Vocab::score(Token token) const {
  impl_->check(token);
  return impl_->data.score(token);
}

Token Vocab::find(std::string_view text) const noexcept {
  return impl_->data.index.find(text);
}

const SpecialTokens& Vocab::special() const noexcept {
  return impl_->data.special;
}
bool Vocab::add_bos() const noexcept {
  return impl_->data.add_bos;
}
bool Vocab::add_eos() const noexcept {
  return impl_->data.add_eos;
}
bool Vocab::add_sep() const noexcept {
  return impl_->data.add_sep;
}
bool Vocab::add_space_prefix() const noexcept {
  return impl_->data.add_space_prefix;
}
bool Vocab::clean_spaces() const noexcept {
  return impl_->data.clean_spaces;
}

bool Vocab::is_eog(Token token) const noexcept {
  return contains(token) && impl_->eog[static_cast<std::size_t>(token)];
}
std::span<const Token> Vocab::eog_tokens() const noexcept {
  return impl_->data.eog;
}
bool Vocab::is_control(Token token) const noexcept {
  return contains(token) && impl_->data.type(token) == TokenType::control;
}
std::span<const Token> Vocab::suppressed_tokens() const noexcept {
  return impl_->data.suppress;
}

}  // namespace llama
