#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/chat/chat_templates.h"
#include "common/chat/reply_parser.h"
#include "llama/vocab.h"

namespace cli {

/// The messages of one chat, and the tokens the model sees of them.
class Conversation {
 public:
  Conversation(const common::chat::ChatTemplates& templates, const llama::Vocab& vocab)
      : templates_(templates), vocab_(vocab) {}

  void add(const std::string& role, const std::string& content) {
    messages_.push_back({{"role", role}, {"content", content}});
  }
  void add_answer(const common::chat::Reply& reply) {
    add("assistant", reply.content);
    if (!reply.reasoning.empty()) messages_.back()["reasoning_content"] = reply.reasoning;
  }
  void remove_last() { messages_.erase(messages_.size() - 1); }
  void clear() { messages_ = nlohmann::ordered_json::array(); }
  /// Drops the oldest question and its answer behind the system message; false when only the last question is left.
  bool drop_oldest() {
    const std::size_t first = !messages_.empty() && messages_.front()["role"] == "system" ? 1 : 0;
    if (messages_.size() < first + 3) return false;
    messages_.erase(first);
    messages_.erase(first);
    return true;
  }
  [[nodiscard]] bool empty() const { return messages_.empty(); }
  /// The whole conversation through the template, ready for the model's answer. Throws Error when the template refuses
  /// it.
  [[nodiscard]] std::vector<llama::Token> tokens() {
    common::chat::ChatInputs inputs;
    inputs.messages = &messages_;
    common::chat::ChatPrompt prompt = templates_.apply(inputs);
    reading_.format = prompt.format;
    reading_.opening = std::move(prompt.opening);
    thinking_ = prompt.thinking;
    return vocab_.tokenize(prompt.text, {.add_special = true, .parse_special = true});
  }
  /// How the answer to the last tokens() is read.
  [[nodiscard]] const common::chat::ReplyReading& reading() const { return reading_; }
  /// Whether that answer may begin with thoughts.
  [[nodiscard]] bool thinking() const { return thinking_; }
  void split_reasoning(bool split) { reading_.options.reasoning = split; }

 private:
  const common::chat::ChatTemplates& templates_;
  const llama::Vocab& vocab_;
  common::chat::ReplyReading reading_;
  bool thinking_ = false;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

}  // namespace cli
