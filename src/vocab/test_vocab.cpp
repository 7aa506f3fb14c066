#include "test_vocab.h"

#include "ggml/log.h"
#include "utf8_decode.h"
#include "vocab_data.h"

namespace llama::testing {

using ggml::gguf::Metadata;

namespace {

constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kUnknown = 2;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kUserDefined = 4;
constexpr std::int32_t kByte = 6;

struct Builder {
  std::vector<std::string> texts;
  std::vector<std::int32_t> types;
  std::vector<float> scores;

  void add(std::string text, std::int32_t type, float score = 0) {
    texts.push_back(std::move(text));
    types.push_back(type);
    scores.push_back(score);
  }

  [[nodiscard]] Metadata metadata(const std::string& model) const {
    Metadata m;
    m.set_string("tokenizer.ggml.model", model);
    m.set_strings("tokenizer.ggml.tokens", texts);
    m.set_i32s("tokenizer.ggml.token_type", types);
    m.set_f32s("tokenizer.ggml.scores", scores);
    return m;
  }
};

}  // namespace

Metadata spm_metadata(const std::vector<std::string>& pieces) {
  Builder b;
  b.add("<unk>", kUnknown);
  b.add("<s>", kControl);
  b.add("</s>", kControl);
  for (unsigned byte = 0; byte < 256; ++byte) b.add(ggml::strf("<0x%02X>", byte), kByte);
  float score = 0;
  for (const std::string& piece : pieces) b.add(piece, kNormal, score -= 1);
  return b.metadata("llama");
}

Metadata bpe_metadata(const std::vector<std::string>& merges, const std::string& pre) {
  Builder b;
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    append_utf8(text, byte_to_printable(static_cast<unsigned char>(byte)));
    b.add(text, kNormal);
  }
  for (const std::string& merge : merges) {
    const std::size_t space = merge.find(' ', 1);
    b.add(merge.substr(0, space) + merge.substr(space + 1), kNormal);
  }
  b.add("<|end|>", kControl);
  b.add("<tool>", kUserDefined);
  Metadata m = b.metadata("gpt2");
  m.set_string("tokenizer.ggml.pre", pre);
  m.set_strings("tokenizer.ggml.merges", merges);
  m.set_u32("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(b.texts.size() - 2));
  m.set_u32("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(b.texts.size() - 2));
  return m;
}

Metadata wpm_metadata() {
  Builder b;
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) b.add(special, kControl);
  for (const char* piece : {"▁the", "▁a", "▁cafe", "▁un", "able", "ffable", "s", "▁.", "▁,", "▁中", "▁文"}) {
    b.add(piece, kNormal);
  }
  Metadata m = b.metadata("bert");
  const char* keys[] = {"padding", "unknown", "cls", "seperator", "mask"};
  for (std::uint32_t i = 0; i < 5; ++i) m.set_u32(std::string("tokenizer.ggml.") + keys[i] + "_token_id", i);
  return m;
}

Metadata ugm_metadata() {
  Builder b;
  b.add("<pad>", kControl);
  b.add("</s>", kControl);
  b.add("<unk>", kUnknown);
  for (const char* piece : {"▁", "▁the", "▁a", "t", "h", "e", "a", "th", "he", "▁th"}) {
    b.add(piece, kNormal, -static_cast<float>(b.texts.size()));
  }
  b.add("<x>", kUserDefined);
  Metadata m = b.metadata("t5");
  m.set_bool("tokenizer.ggml.add_space_prefix", true);
  m.set_bool("tokenizer.ggml.remove_extra_whitespaces", true);
  return m;
}

Metadata rwkv_metadata() {
  Builder b;
  b.add("<s>", kNormal);
  for (unsigned byte = 0; byte < 256; ++byte) b.add(ggml::strf("\\x%02x", byte), kNormal);
  for (const char* piece : {"the", " the", "\\n\\n", "then", "\\\\"}) b.add(piece, kNormal);
  return b.metadata("rwkv");
}

Metadata plamo_metadata(const std::vector<std::pair<std::string, float>>& pieces) {
  Builder b;
  b.add("<|plamo:unk|>", kUnknown);
  for (const char* special : {"<|plamo:bos|>", "<|plamo:eos|>", "<|plamo:pad|>"}) b.add(special, kControl);
  for (unsigned byte = 0; byte < 256; ++byte) b.add(ggml::strf("<0x%02X>", byte), kByte);
  for (const auto& [piece, score] : pieces) b.add(piece, kNormal, score);
  return b.metadata("plamo2");
}

std::vector<std::string> some_merges() {
  return {"t h",  "th e",  "Ġ the", "i n",   "e r", "Ġ a", "a n", "an d",  "Ġ and",  "in g", "r e",   "o n", "Ġ t",
          "Ġt h", "Ġth e", "Ġ Ġ",   "ĠĠ ĠĠ", "Ċ Ċ", "l l", "h e", "he ll", "hell o", "a a",  "aa aa", "ð Ł", "ðŁ ĺ"};
}

}  // namespace llama::testing
