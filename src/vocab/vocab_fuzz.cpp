#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ggml/log.h"
#include "llama/utf8.h"
#include "llama/vocab.h"
#include "test_vocab.h"

// Any bytes through every algorithm. The first byte chooses vocabulary and options; what comes out must be tokens of
// the vocabulary and, for byte-level BPE and SentencePiece, must give the text back.

namespace {

using llama::SpecialText;
using llama::Token;
using llama::Vocab;

struct Vocabs {
  Vocab all[8] = {
      Vocab::load(llama::testing::bpe_metadata(llama::testing::some_merges(), "llama-bpe"), "bpe"),
      Vocab::load(llama::testing::bpe_metadata(llama::testing::some_merges(), "deepseek-v3"), "bpe"),
      Vocab::load(llama::testing::bpe_metadata(llama::testing::some_merges(), "kimi-k2"), "bpe"),
      Vocab::load(llama::testing::spm_metadata({"▁", "a", "th", "▁the", "the", "▁▁"}), "spm"),
      Vocab::load(llama::testing::wpm_metadata(), "wpm"),
      Vocab::load(llama::testing::ugm_metadata(), "ugm"),
      Vocab::load(llama::testing::rwkv_metadata(), "rwkv"),
      Vocab::load(llama::testing::plamo_metadata({{"a", -1}, {"aa", -1.5F}, {"th", -2}, {"日本", -3}}), "plamo2"),
  };
};

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  ggml::set_log_level(ggml::LogLevel::error);
  static const Vocabs vocabs;
  if (size == 0) return 0;
  const unsigned choice = bytes[0];
  const Vocab& vocab = vocabs.all[choice % 8];
  const std::string_view text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const std::vector<Token> tokens =
      vocab.tokenize(text, {.add_special = (choice & 64) != 0, .parse_special = (choice & 128) != 0});
  for (const Token t : tokens) require(vocab.contains(t));
  const std::string plain = vocab.detokenize(vocab.tokenize(text, {}), {});
  if (vocab.kind() == llama::VocabKind::spm && text.find("\xE2\x96\x81") == std::string_view::npos) {
    require(plain == text);
  }
  const std::string pieces = vocab.pieces(vocab.tokenize(text, {.parse_special = true}), SpecialText::show);
  const bool loses_nothing = vocab.kind() == llama::VocabKind::bpe || vocab.kind() == llama::VocabKind::plamo;
  if (loses_nothing) require(pieces == llama::replace_invalid_utf8(text));
  return 0;
}
