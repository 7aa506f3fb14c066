#include "common/setup/chat_setup.h"

namespace common {
namespace {

chat::ModelChatInfo chat_info(const llama::Model& model) {
  const llama::Vocab& vocab = model.vocab();
  const ggml::gguf::Metadata& metadata = model.metadata();
  const auto text_of = [&](llama::Token token) {
    return token == llama::kNoToken ? std::string() : std::string(vocab.text(token));
  };
  chat::ModelChatInfo info;
  info.template_source = metadata.get_string("tokenizer.chat_template").value_or("");
  info.tool_use_template_source = metadata.get_string("tokenizer.chat_template.tool_use").value_or("");
  info.bos_token = text_of(vocab.special().bos);
  info.eos_token = text_of(vocab.special().eos);
  info.adds_bos = vocab.add_bos();
  info.adds_eos = vocab.add_eos();
  info.pre_tokenizer = vocab.pre_name();
  info.n_layer = model.info().n_layer;
  return info;
}

}  // namespace

chat::ChatTemplates make_chat_templates(const ChatSettings& settings, const llama::Model& model) {
  chat::ChatTemplateOptions options;
  options.override_text = settings.chat_template;
  options.use_jinja = settings.jinja;
  options.kwargs_json = settings.template_kwargs;
  if (settings.reasoning != Tristate::automatic) options.enable_thinking = settings.reasoning == Tristate::on;
  options.preserve_reasoning = settings.preserve_reasoning;
  return {chat_info(model), options};
}

}  // namespace common
