#include "common/chat/chat_templates.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/chat/builtin_templates.h"
#include "common/chat/capabilities.h"
#include "common/chat/jinja/template.h"
#include "common/chat/messages.h"
#include "common/json/parse_json.h"

namespace common::chat {

namespace {
using ggml::Error;
using ggml::ErrorCode;
using nlohmann::ordered_json;

/// One template, ready for requests.
struct Prepared {
  std::string shown;  // for /props: the source, or the name of a built-in format
  jinja::Template parsed;
  MessageQuirks quirks;
  ChatTemplateCaps caps;
  std::shared_ptr<const ReplyFormat> format;
};

// Two checks refuse what a client may rightly send; their conditions are switched off.
std::string patch_source(std::string source) {
  constexpr std::pair<std::string_view, std::string_view> kChecks[] = {
      {"\"<|channel|>analysis<|message|>\" in message", "{%"},
      {"Assistant message must have", "{{"},
  };
  for (const auto& [marker, anchor] : kChecks) {
    for (std::size_t at = source.find(marker); at != std::string::npos; at = source.find(marker, at + 1)) {
      // The condition is the `if` tag that holds the marker, or that stands in front of the raise.
      const std::size_t from = anchor == "{{" ? source.rfind("{{", at) : at;
      const std::size_t open = from == std::string::npos ? from : source.rfind("{%", from);
      const std::size_t close = open == std::string::npos ? open : source.find("%}", open);
      if (close == std::string::npos) continue;
      const std::size_t keyword = source.find("if ", open);
      if (keyword == std::string::npos || keyword > close) continue;
      const std::size_t condition = keyword + 3;
      const std::size_t end = source[close - 1] == '-' ? close - 1 : close;
      source.replace(condition, end - condition, "false ");
      // Behind the condition, or, when the marker stands behind it, at the marker's new place.
      at = at > end ? at - (end - condition) + 6 : condition + 6;
    }
  }
  return source;
}

ordered_json parse_kwargs(const std::string& text) {
  if (text.empty()) return ordered_json::object();
  ordered_json kwargs = parse_json(text, "--chat-template-kwargs is");
  if (!kwargs.is_object())
    throw Error(ErrorCode::invalid_argument, "--chat-template-kwargs is not a JSON object: " + text.substr(0, 200),
                "pass for instance '{\"enable_thinking\": false}'");
  return kwargs;
}

/// An override that is neither a name nor a template.
[[noreturn]] void refuse_override(const std::string& text) {
  std::string names;
  for (const std::string_view name : builtin_template_names()) names += " " + std::string(name);
  throw Error(ErrorCode::invalid_argument,
              "--chat-template, --chat-template-file: \"" + text.substr(0, 100) +
                  "\" is neither a built-in format nor a Jinja template: nothing in it stands between {{ }} or {% %}",
              "built-in formats:" + names);
}

std::string format_time(const std::tm& now, const char* format) {
  char buffer[64];
  return {buffer, std::strftime(buffer, sizeof buffer, format, &now)};
}

std::tm local_now(const std::optional<std::tm>& given) {
  if (given) return *given;
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  localtime_r(&now, &out);
  return out;
}

std::size_t common_prefix(const std::string& a, const std::string& b) {
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin()).first -
      a.begin());
}
}  // namespace

struct ChatTemplates::State {
  ModelChatInfo model;
  bool jinja = true;
  ordered_json kwargs;
  std::optional<bool> enable_thinking, preserve_reasoning;
  std::optional<Prepared> plain, tool_use;

  State(ModelChatInfo info, const ChatTemplateOptions& options)
      : model(std::move(info)),
        jinja(options.use_jinja),
        kwargs(parse_kwargs(options.kwargs_json)),
        enable_thinking(options.enable_thinking),
        preserve_reasoning(options.preserve_reasoning) {
    choose(options.override_text);
  }

  [[nodiscard]] const Prepared& prepared(bool with_tools) const { return with_tools && tool_use ? *tool_use : *plain; }
  [[nodiscard]] ordered_json base_context(const std::tm& now) const;
  [[nodiscard]] ordered_json context(const Prepared& p, const ChatInputs& in, const std::tm& now) const;
  [[nodiscard]] ChatPrompt apply(const ChatInputs& in) const;

 private:
  struct Rendering;
  void choose(const std::string& override_text);
  [[nodiscard]] Prepared prepare_source(const std::string& source) const;
  [[nodiscard]] Prepared prepare_builtin(const BuiltinTemplate& builtin) const;
  [[nodiscard]] Prepared prepare(std::string shown, const std::string& source) const;
  void merge_thinking(ordered_json& context, const Prepared& p, const ChatInputs& in) const;
  [[nodiscard]] std::string trimmed(std::string text) const;
  void continue_message(ChatPrompt& out, const Rendering& r, const ordered_json& last, ContinueFinalMessage what) const;
};

// What one request renders with; the messages vary.
struct ChatTemplates::State::Rendering {
  const Prepared& p;
  ordered_json& base;
  jinja::RenderOptions options;

  [[nodiscard]] std::string operator()(const ordered_json& messages, bool add_generation_prompt) const {
    try {
      return render(messages, add_generation_prompt);
    } catch (const Error&) {
      // A tool may lack a description and parameters, and its schemas may be of forms that not every template knows.
      for (const auto easier : {completed_tools, plain_tools}) {
        if (!replace_tools(easier)) continue;
        try {
          return render(messages, add_generation_prompt);
        } catch (const Error&) {
        }
      }
      throw;
    }
  }

 private:
  /// Whether the tools are others now.
  [[nodiscard]] bool replace_tools(ordered_json (*make)(const ordered_json&)) const {
    const auto tools = base.find("tools");
    if (tools == base.end() || !tools->is_array()) return false;
    ordered_json made = make(*tools);
    if (made == *tools) return false;
    *tools = std::move(made);
    return true;
  }
  [[nodiscard]] std::string render(const ordered_json& messages, bool add_generation_prompt) const {
    ordered_json context = base;
    context["messages"] = messages;
    if (add_generation_prompt) context["add_generation_prompt"] = true;
    try {
      return p.parsed.render(context, options);
    } catch (const jinja::TemplateError& e) {
      if (e.raised_by_template()) throw Error(ErrorCode::invalid_argument, e.detail());
      throw Error(e.code(), std::string("chat template: ") + e.what());
    }
  }
};

Prepared ChatTemplates::State::prepare(std::string shown, const std::string& source) const {
  try {
    Prepared p{
        std::move(shown), jinja::Template(patch_source(source)), find_quirks(source), {}, find_reply_format(source)};
    ordered_json base = base_context(local_now(std::nullopt));
    if (p.quirks.functions_text) base["functions"] = functions_text(ordered_json::array());
    base.update(kwargs);  // some templates raise without an argument of their own
    p.caps = probe_template(p.parsed, source, base);
    return p;
  } catch (const jinja::TemplateError& e) {
    throw Error(ErrorCode::invalid_argument, std::string("the chat template does not parse: ") + e.what(),
                "try --no-jinja, or give another template with --chat-template or --chat-template-file");
  }
}

Prepared ChatTemplates::State::prepare_builtin(const BuiltinTemplate& builtin) const {
  Prepared p = prepare(std::string(builtin.name), std::string(builtin.source));
  // A format says itself what becomes of system texts and tool messages, even if that is nothing.
  p.quirks = {};
  p.caps = {};
  return p;
}

Prepared ChatTemplates::State::prepare_source(const std::string& source) const {
  if (jinja) return prepare(source, source);
  const BuiltinTemplate* builtin = match_builtin_template(source);
  if (!builtin)
    throw Error(ErrorCode::unsupported, "the chat template matches none of the built-in formats, and --no-jinja is set",
                "use --jinja, or name a format with --chat-template");
  return prepare_builtin(*builtin);
}

void ChatTemplates::State::choose(const std::string& override_text) {
  const bool has_tool_use = jinja && !model.tool_use_template_source.empty();
  const auto fall_back = [&] {
    plain = has_tool_use ? prepare_source(model.tool_use_template_source)
                         : prepare_builtin(*find_builtin_template("chatml"));
  };
  if (override_text == "chatml") {
    fall_back();
  } else if (const BuiltinTemplate* builtin = find_builtin_template(override_text)) {
    plain = prepare_builtin(*builtin);
  } else if (!override_text.empty()) {
    if (override_text.find("{{") == std::string::npos && override_text.find("{%") == std::string::npos) {
      refuse_override(override_text);
    }
    plain = prepare_source(override_text);
  } else if (!model.template_source.empty()) {
    plain = prepare_source(model.template_source);
    if (has_tool_use) tool_use = prepare_source(model.tool_use_template_source);
  } else if (model.pre_tokenizer == "tekken" && model.n_layer == 40) {
    plain = prepare_builtin(*find_builtin_template("mistral-v7-tekken"));
  } else {
    fall_back();
  }
  // One rendering now rather than an error in every request later.
  const ordered_json hello = ordered_json::array({{{"role", "user"}, {"content", "test"}}});
  ChatInputs in;
  in.messages = &hello;
  try {
    (void)apply(in);
  } catch (const Error& e) {
    throw Error(e.code(), "the chat template cannot render a single user message: " + e.message(),
                "try --no-jinja, or give another template with --chat-template or --chat-template-file");
  }
}

ordered_json ChatTemplates::State::base_context(const std::tm& now) const {
  return {{"bos_token", model.bos_token},
          {"eos_token", model.eos_token},
          {"enable_thinking", true},
          {"datetime", format_time(now, "%b %d %Y")},
          {"date_string", format_time(now, "%d %b %Y")}};
}

void ChatTemplates::State::merge_thinking(ordered_json& context, const Prepared& p, const ChatInputs& in) const {
  context["enable_thinking"] = in.enable_thinking.value_or(enable_thinking.value_or(true));
  if (p.caps.preserve_reasoning && preserve_reasoning.value_or(true)) {
    context["preserve_thinking"] = true;
    for (const char* name : {"clear_thinking", "truncate_history_thinking", "drop_thinking"}) context[name] = false;
  }
}

ordered_json ChatTemplates::State::context(const Prepared& p, const ChatInputs& in, const std::tm& now) const {
  ordered_json context = base_context(now);
  merge_thinking(context, p, in);
  const bool has_tools = in.tools && !in.tools->is_null() && !in.tools->empty();
  if (has_tools) context["tools"] = *in.tools;
  if (p.quirks.functions_text) context["functions"] = functions_text(has_tools ? *in.tools : ordered_json::array());
  if (!in.reasoning_effort.empty()) context["reasoning_effort"] = in.reasoning_effort;
  context.update(kwargs);
  if (in.kwargs && !in.kwargs->is_null()) {
    if (!in.kwargs->is_object()) throw Error(ErrorCode::invalid_argument, "\"chat_template_kwargs\" must be an object");
    context.update(*in.kwargs);
  }
  if (!context["enable_thinking"].is_boolean())
    throw Error(ErrorCode::invalid_argument, "chat_template_kwargs: \"enable_thinking\" must be true or false, not " +
                                                 context["enable_thinking"].dump());
  return context;
}

std::string ChatTemplates::State::trimmed(std::string text) const {
  const auto& bos = model.bos_token;
  const auto& eos = model.eos_token;
  if (model.adds_bos && !bos.empty() && text.compare(0, bos.size(), bos) == 0) text.erase(0, bos.size());
  if (model.adds_eos && !eos.empty() && text.size() >= eos.size() &&
      text.compare(text.size() - eos.size(), eos.size(), eos) == 0)
    text.resize(text.size() - eos.size());
  return text;
}

// The assistant's last message is rendered with a mark at its end, and what follows the mark is cut: so the opening,
// and how the reasoning is wrapped, are the template's own.
void ChatTemplates::State::continue_message(ChatPrompt& out, const Rendering& r, const ordered_json& last,
                                            ContinueFinalMessage what) const {
  constexpr std::string_view kMark = "zq7continues";
  ordered_json messages = *r.base.find("messages");
  const std::string without = r(messages, false), with = r(messages, true);
  const std::size_t prefix = common_prefix(without, with);
  out.generation_prompt = with.substr(prefix);
  out.opening.continues = true;
  out.given_reasoning = text_member(last, "reasoning_content");
  if (what == ContinueFinalMessage::content && last.contains("content"))
    out.given_content = text_member(last, "content");
  ordered_json marked = last;
  const bool in_reasoning = what == ContinueFinalMessage::reasoning_content;
  (in_reasoning ? marked["reasoning_content"] : marked["content"]) =
      (in_reasoning ? out.given_reasoning : out.given_content) + std::string(kMark);
  messages.push_back(marked);
  const std::string rendered = r(normalize_messages(messages, r.p.caps, r.p.quirks), false);
  const std::size_t cut = rendered.rfind(kMark);
  // A template that drops reasoning, or rewrites the text, leaves the plain way.
  out.text = cut == std::string::npos ? with + (in_reasoning ? out.given_reasoning : out.given_content)
                                      : rendered.substr(0, cut);
  out.opening.text = out.text.substr(common_prefix(without, out.text));
}

ChatPrompt ChatTemplates::State::apply(const ChatInputs& in) const {
  if (!in.messages) throw Error(ErrorCode::invalid_argument, "\"messages\" is missing");
  if (!in.messages->is_array() || in.messages->empty())
    throw Error(ErrorCode::invalid_argument, "\"messages\" must be an array of at least one message");
  const bool with_tools = in.tools && !in.tools->is_null() && !in.tools->empty();
  if (in.tools && !in.tools->is_null()) check_tools(*in.tools);
  if (with_tools && !jinja)
    throw Error(ErrorCode::invalid_argument, "tools need --jinja", "start the server without --no-jinja");
  const Prepared& p = prepared(with_tools);
  const std::tm now = local_now(in.now);
  ordered_json base = context(p, in, now);
  Rendering render{p, base, {}};
  render.options.now = now;
  render.options.lax = p.quirks.lax_template;

  ordered_json messages = normalize_messages(*in.messages, p.caps, p.quirks);
  ChatPrompt out;
  if (in.continue_final_message != ContinueFinalMessage::none) {
    if (in.add_generation_prompt)
      throw Error(ErrorCode::invalid_argument,
                  "\"add_generation_prompt\" and \"continue_final_message\" exclude each other");
    const ordered_json& last = in.messages->back();
    if (last["role"] != "assistant")
      throw Error(ErrorCode::invalid_argument, "\"continue_final_message\" needs an assistant message at the end");
    const std::size_t n = in.messages->size();
    if (n > 1 && (*in.messages)[n - 2]["role"] == "assistant")
      throw Error(ErrorCode::invalid_argument, "two assistant messages at the end cannot be continued");
    messages.erase(messages.size() - 1);
    base["messages"] = messages;
    continue_message(out, render, last, in.continue_final_message);
  } else {
    out.text = render(messages, in.add_generation_prompt);
    if (in.add_generation_prompt) {
      const std::string without = render(messages, false);
      out.generation_prompt = out.text.substr(common_prefix(out.text, without));
      out.opening.text = out.generation_prompt;
    } else if (p.quirks.developer_role) {
      // gpt-oss closes a finished conversation with the token that ends generation; in a prompt it is the plain end.
      constexpr std::string_view kReturn = "<|return|>";
      if (out.text.size() >= kReturn.size() &&
          out.text.compare(out.text.size() - kReturn.size(), kReturn.size(), kReturn) == 0)
        out.text.replace(out.text.size() - kReturn.size(), kReturn.size(), "<|end|>");
    }
  }
  out.text = trimmed(std::move(out.text));
  out.format = p.format;
  out.thinking = !p.format->think_start.empty() && base["enable_thinking"].get<bool>();
  return out;
}

ChatTemplates::ChatTemplates(ModelChatInfo model, const ChatTemplateOptions& options)
    : state_(std::make_unique<const State>(std::move(model), options)) {}
ChatTemplates::~ChatTemplates() = default;
ChatTemplates::ChatTemplates(ChatTemplates&&) noexcept = default;
ChatTemplates& ChatTemplates::operator=(ChatTemplates&&) noexcept = default;

ChatPrompt ChatTemplates::apply(const ChatInputs& inputs) const {
  return state_->apply(inputs);
}
const std::string& ChatTemplates::source(bool with_tools) const {
  return state_->prepared(with_tools).shown;
}
const ChatTemplateCaps& ChatTemplates::caps(bool with_tools) const {
  return state_->prepared(with_tools).caps;
}
const std::shared_ptr<const ReplyFormat>& ChatTemplates::reply_format(bool with_tools) const {
  return state_->prepared(with_tools).format;
}
bool ChatTemplates::uses_jinja() const {
  return state_->jinja;
}

}  // namespace common::chat
