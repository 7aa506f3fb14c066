#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/chat/reply_format.h"
#include "common/chat/reply_opening.h"
#include "ggml/error.h"

namespace common::chat {

/// What the model file says about its chat format; filled by the loader of the model.
struct ModelChatInfo {
  std::string template_source;           // tokenizer.chat_template, empty when absent
  std::string tool_use_template_source;  // tokenizer.chat_template.tool_use, empty when absent
  std::string bos_token, eos_token;      // their text, empty when the vocabulary has none
  bool adds_bos = false;                 // the tokenizer will add it, so a leading one is cut from the prompt
  bool adds_eos = false;
  std::string pre_tokenizer;  // tokenizer.ggml.pre
  int n_layer = 0;
};

/// Options of the command line, fixed for the life of the process.
struct ChatTemplateOptions {
  std::string
      override_text;        // --chat-template TEXT or NAME, or the content of --chat-template-file; empty: the model's
  bool use_jinja = true;    // --jinja / --no-jinja
  std::string kwargs_json;  // --chat-template-kwargs, an object as JSON text; empty: none
  std::optional<bool> enable_thinking;     // --reasoning on|off; unset: auto
  std::optional<bool> preserve_reasoning;  // --reasoning-preserve; unset: when the template can
};

/// What a template was seen to support; `chat_template_caps` of /props.
struct ChatTemplateCaps {
  bool string_content = true;
  bool typed_content = false;
  bool system_role = true;
  bool tools = false;
  bool tool_calls = false;
  bool parallel_tool_calls = false;
  bool object_arguments = false;
  bool preserve_reasoning = false;
  bool null_content_beside_calls = false;  // shows calls only when their message has no content at all (not in /props)
  bool enable_thinking = false;            // the rendering changes with enable_thinking
};

enum class ContinueFinalMessage : std::uint8_t { none, content, reasoning_content };

/// One request's conversation. The pointers are not owned and may be null where said.
struct ChatInputs {
  const nlohmann::ordered_json* messages = nullptr;  // array of message objects, as in the API; required
  const nlohmann::ordered_json* tools = nullptr;     // array of tools; null or empty: none
  const nlohmann::ordered_json* kwargs = nullptr;    // chat_template_kwargs of the request; null: none
  bool add_generation_prompt = true;
  std::optional<bool> enable_thinking;  // of the request (reasoning_effort "none", ...); unset: as started
  std::string reasoning_effort;         // for the template; empty: the template's default
  ContinueFinalMessage continue_final_message = ContinueFinalMessage::none;
  std::optional<std::tm> now;  // for tests; the present otherwise
};

struct ChatPrompt {
  std::string text;               // tokenise with special parsing on; BOS/EOS as the vocabulary says
  std::string generation_prompt;  // the part of `text` that add_generation_prompt appended
  std::string given_reasoning;    // continue_final_message: what the assistant had already written
  std::string given_content;
  std::vector<std::string> additional_stops;  // beyond the end-of-generation tokens; formats may add to it
  std::shared_ptr<const ReplyFormat> format;  // of what the model will write
  ReplyOpening opening;                       // what of the reply `text` already holds
  bool thinking = false;                      // the template was asked for reasoning and can have some
};

/// Chooses the model's chat template and turns conversations into prompts. Immutable; thread-safe.
class ChatTemplates {
 public:
  /// Chooses, parses, probes and test-renders the template; throws ggml::Error with advice when that fails.
  ChatTemplates(ModelChatInfo model, const ChatTemplateOptions& options);
  ~ChatTemplates();
  ChatTemplates(ChatTemplates&&) noexcept;
  ChatTemplates& operator=(ChatTemplates&&) noexcept;

  /// Throws ggml::Error: invalid_argument for messages that are malformed and for anything the template raises (then
  /// the message is the template's own text).
  [[nodiscard]] ChatPrompt apply(const ChatInputs& inputs) const;

  /// Jinja source, or the name of the built-in format, that requests without (with) tools use; shown by /props.
  [[nodiscard]] const std::string& source(bool with_tools = false) const;
  [[nodiscard]] const ChatTemplateCaps& caps(bool with_tools = false) const;
  [[nodiscard]] bool uses_jinja() const;
  /// How replies look to requests without (with) tools.
  [[nodiscard]] const std::shared_ptr<const ReplyFormat>& reply_format(bool with_tools = false) const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

/// Names that --chat-template accepts, sorted.
[[nodiscard]] std::vector<std::string_view> builtin_template_names();

}  // namespace common::chat
