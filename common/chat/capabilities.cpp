#include "common/chat/capabilities.h"

#include <nlohmann/json.hpp>
#include <string>

#include "common/chat/messages.h"

namespace common::chat {

namespace {
using nlohmann::ordered_json;

// Words that no template contains.
constexpr const char* kNeedle = "zq7probe";
constexpr const char* kSecond = "zq8probe";

class Prober {
 public:
  Prober(const jinja::Template& parsed, const ordered_json& base, bool lax) : parsed_(parsed), base_(base) {
    options_.lax = lax;
    // A probe needs little; a template that needs more is no template.
    options_.limits.steps = 2'000'000;
    options_.limits.output_bytes = std::size_t{8} << 20;
    options_.limits.memory_bytes = std::size_t{32} << 20;
  }

  /// Nothing when the template fails.
  [[nodiscard]] std::optional<std::string> render(const ordered_json& messages, const ordered_json& extra = {}) const {
    ordered_json context = base_;
    context["messages"] = messages;
    context["add_generation_prompt"] = true;
    for (const auto& [key, value] : extra.items()) context[key] = value;
    try {
      return parsed_.render(context, options_);
    } catch (const jinja::TemplateError&) {
      return std::nullopt;
    }
  }

  [[nodiscard]] bool shows(const ordered_json& messages, const std::string& what,
                           const ordered_json& extra = {}) const {
    const auto text = render(messages, extra);
    return text && text->find(what) != std::string::npos;
  }

 private:
  const jinja::Template& parsed_;
  const ordered_json& base_;
  jinja::RenderOptions options_;
};

ordered_json user(const ordered_json& content) {
  return {{"role", "user"}, {"content", content}};
}

ordered_json text_part(const char* text) {
  return ordered_json::array({{{"type", "text"}, {"text", text}}});
}

ordered_json call(const char* id, const char* name, const ordered_json& arguments) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

ordered_json conversation_with(const ordered_json& calls, const ordered_json& question, const ordered_json& empty) {
  ordered_json messages = ordered_json::array({user(question)});
  messages.push_back({{"role", "assistant"}, {"content", empty}, {"tool_calls", calls}});
  for (const auto& c : calls)
    messages.push_back(
        {{"role", "tool"}, {"content", question}, {"tool_call_id", c["id"]}, {"name", c["function"]["name"]}});
  return messages;
}

bool has(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

void probe_calls(const Prober& p, ChatTemplateCaps& caps) {
  const ordered_json question = caps.string_content ? ordered_json("x") : text_part("x");
  const ordered_json empty = caps.string_content ? ordered_json("") : ordered_json::array();
  const ordered_json tool = {{"type", "function"},
                             {"function",
                              {{"name", kNeedle},
                               {"description", "d"},
                               {"parameters",
                                {{"type", "object"},
                                 {"properties", {{"zqkey", {{"type", "string"}, {"description", "d"}}}}},
                                 {"required", ordered_json::array({"zqkey"})}}}}}};
  const ordered_json tools = ordered_json::array({tool});
  const ordered_json with_tools = {{"tools", tools}, {"functions", functions_text(tools)}};
  caps.tools = p.shows(ordered_json::array({user(question)}), kNeedle, with_tools);

  // Without the tools' description in the way, names can only come from the calls.
  const ordered_json object = {{"zqkey", "zqvalue"}};
  const std::string text = object.dump();
  const auto render_calls = [&](const ordered_json& calls) {
    const ordered_json content = caps.null_content_beside_calls ? ordered_json() : empty;
    const ordered_json messages = conversation_with(calls, question, content);
    auto out = p.render(messages);
    return out ? out : p.render(messages, with_tools);
  };
  const auto shows_call = [&](const std::optional<std::string>& out) {
    return out && has(*out, kSecond) && has(*out, "zqvalue");
  };
  const ordered_json one_object = ordered_json::array({call("abcde1234", kSecond, object)});
  const ordered_json one_text = ordered_json::array({call("abcde1234", kSecond, text)});
  if (!shows_call(render_calls(one_object)) && !shows_call(render_calls(one_text)))
    caps.null_content_beside_calls = true;
  const auto as_object = render_calls(one_object), as_text = render_calls(one_text);
  caps.tool_calls = shows_call(as_object) || shows_call(as_text);
  if (!caps.tool_calls) caps.null_content_beside_calls = false;
  // An object that prints in Python's way, with single quotes, was meant to be a text.
  const bool object_fits = shows_call(as_object) && !has(*as_object, "'zqkey'");
  const bool text_fits = shows_call(as_text) && !has(*as_text, "\\\"zqkey");
  caps.object_arguments = object_fits || (shows_call(as_object) && !text_fits);
  if (!caps.tool_calls) return;
  const ordered_json arguments = caps.object_arguments ? object : ordered_json(text);
  const ordered_json other =
      caps.object_arguments ? ordered_json{{"zqkey", "zqother"}} : ordered_json("{\"zqkey\":\"zqother\"}");
  const auto both =
      render_calls(ordered_json::array({call("abcde1234", kSecond, arguments), call("fghij5678", "zq9probe", other)}));
  caps.parallel_tool_calls = both && has(*both, "zqvalue") && has(*both, "zqother") && has(*both, "zq9probe");
}
}  // namespace

ChatTemplateCaps probe_template(const jinja::Template& parsed, std::string_view source,
                                const ordered_json& base_context) {
  const Prober p(parsed, base_context, find_quirks(source).lax_template);
  ChatTemplateCaps caps;
  const auto as_text = p.render(ordered_json::array({user(kNeedle)}));
  const auto as_parts = p.render(ordered_json::array({user(text_part(kNeedle))}));
  caps.string_content = as_text && has(*as_text, kNeedle);
  // A list that is simply printed shows its keys.
  caps.typed_content = as_parts && has(*as_parts, kNeedle) && !has(*as_parts, "'type'") && !has(*as_parts, "\"type\"");
  if (!caps.string_content && !caps.typed_content) caps.string_content = true;
  const auto content = [&](const char* text) { return caps.string_content ? ordered_json(text) : text_part(text); };
  caps.system_role =
      p.shows(ordered_json::array({{{"role", "system"}, {"content", content(kSecond)}}, user(content("x"))}), kSecond);
  probe_calls(p, caps);
  constexpr std::string_view kPreserve[] = {"preserve_thinking", "clear_thinking", "truncate_history_thinking",
                                            "drop_thinking"};
  for (const std::string_view name : kPreserve)
    caps.preserve_reasoning = caps.preserve_reasoning || source.find(name) != std::string_view::npos;
  const ordered_json hello = ordered_json::array({user(content("x"))});
  caps.enable_thinking = p.render(hello, {{"enable_thinking", true}}) != p.render(hello, {{"enable_thinking", false}});
  return caps;
}

}  // namespace common::chat
