#include <algorithm>
#include <initializer_list>

#include "vocab_data.h"

// Special ids that the file does not name are recognised by their text, and so are the tokens that end a generation.

namespace llama {

namespace {

constexpr std::string_view kEndTexts[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<|flush|>",
                                          "<|calls|>",
                                          "<end_of_turn>",
                                          "<|endoftext|>",
                                          "<|eom_id|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "<|end_of_text|>",
                                          "<end_of_utterance>",
                                          "<eos>",
                                          "<turn|>",
                                          "<|tool_response>",
                                          "<｜end▁of▁sentence｜>",
                                          "[e~["};

struct TextRule {
  Token SpecialTokens::*id;
  std::initializer_list<std::string_view> texts;  // the first that exists wins
};

const TextRule kTextRules[] = {
    {&SpecialTokens::eot,
     {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>",
      "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>"}},
    {&SpecialTokens::eom, {"<|eom_id|>"}},
    {&SpecialTokens::fim_pre,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
      "<|prefix|>"}},
    {&SpecialTokens::fim_suf,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>",
      "<|suffix|>"}},
    {&SpecialTokens::fim_mid,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
      "<|middle|>"}},
    {&SpecialTokens::fim_pad, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {&SpecialTokens::fim_rep, {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {&SpecialTokens::fim_sep, {"<|file_sep|>"}},
};

class Resolver {
 public:
  explicit Resolver(VocabData& data) : data_(data) {}

  void run() {
    find_by_text();
    add(data_.special.fim_pad);
    add(data_.special.fim_rep);
    add(data_.special.fim_sep);
    for (const std::string_view text : kEndTexts) {
      const Token t = data_.index.find(text);
      if (t == kNoToken) continue;
      set_type(t, TokenType::control);
      add(t);
    }
    add(data_.special.eos);
    add(data_.special.eot);
    add(data_.special.eom);
    add_slash_s();
    apply_harmony();
    if (has("<|tool_response>") && has("</s>")) drop("</s>", TokenType::normal);
    std::sort(data_.eog.begin(), data_.eog.end());
  }

 private:
  void find_by_text() {
    for (const TextRule& rule : kTextRules) {
      Token& id = data_.special.*rule.id;
      for (const std::string_view text : rule.texts) {
        if (id != kNoToken) break;
        id = data_.index.find(text);
        if (id != kNoToken) set_type(id, TokenType::control);
      }
    }
  }

  // In some vocabularies `</s>` is an ordinary word (the HTML tag), where ending at it would cut answers short: it ends
  // a generation if the file says that it is special, or if nothing else could.
  void add_slash_s() {
    const Token t = data_.index.find("</s>");
    if (t == kNoToken) return;
    const TokenType type = data_.type(t);
    const bool typed = type == TokenType::control || type == TokenType::unknown;
    if (!typed && t != data_.special.eos && !data_.eog.empty()) return;
    set_type(t, TokenType::control);
    add(t);
  }

  // gpt-oss and Solar end a message with <|end|> and a turn with <|return|> or <|call|>: generation goes on after a
  // message, and the markers of its channels are part of the output.
  void apply_harmony() {
    const bool gpt_oss = has("<|return|>") && (has("<|call|>") || has("<|calls|>")) && has("<|end|>");
    const bool solar = has("<|calls|>") && has("<|flush|>") && has("<|end|>");
    if (gpt_oss || solar) drop("<|end|>", TokenType::user_defined);
    for (const std::string_view text : {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}) {
      if (const Token t = data_.index.find(text); t != kNoToken) set_type(t, TokenType::user_defined);
    }
  }

  void set_type(Token t, TokenType type) { data_.types[static_cast<std::size_t>(t)] = type; }

  void add(Token t) {
    if (t != kNoToken && std::find(data_.eog.begin(), data_.eog.end(), t) == data_.eog.end()) data_.eog.push_back(t);
  }

  [[nodiscard]] bool has(std::string_view text) const {
    const Token t = data_.index.find(text);
    return t != kNoToken && std::find(data_.eog.begin(), data_.eog.end(), t) != data_.eog.end();
  }

  void drop(std::string_view text, TokenType type) {
    const Token t = data_.index.find(text);
    std::erase(data_.eog, t);
    set_type(t, type);
  }

  VocabData& data_;
};

}  // namespace

void resolve_special_tokens(VocabData& data) {
  Resolver(data).run();
}

}  // namespace llama
