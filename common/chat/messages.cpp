#include "common/chat/messages.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "common/chat/jinja/text.h"
#include "common/json/parse_json.h"

namespace common::chat {

namespace {
using ggml::Error;
using ggml::ErrorCode;
using nlohmann::ordered_json;

[[noreturn]] void refuse(std::size_t index, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "messages[" + std::to_string(index) + "]: " + what);
}

[[noreturn]] void refuse_field(const std::string& place, const char* what, const ordered_json* got) {
  constexpr std::size_t kShown = 60;
  const std::string text =
      got == nullptr ? "nothing" : got->dump(-1, ' ', false, ordered_json::error_handler_t::replace).substr(0, kShown);
  throw Error(ErrorCode::invalid_argument, "Field '" + place + "': expected " + what + ", got " + text);
}

/// null counts as absent.
const ordered_json* member_of(const ordered_json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

bool has_text(const ordered_json& message, const char* key) {
  const auto it = message.find(key);
  return it != message.end() && it->is_string() && !it->get_ref<const std::string&>().empty();
}

bool has_calls(const ordered_json& message) {
  const auto it = message.find("tool_calls");
  return it != message.end() && it->is_array() && !it->empty();
}

bool is_empty_text(const ordered_json& value) {
  return value.is_string() && value.get_ref<const std::string&>().empty();
}

bool is_media(const std::string& type) {
  return type == "image_url" || type == "input_audio" || type == "image" || type == "audio" || type == "media_marker";
}

// Parts as {"type": "text", "text": ...}; media become a marker.
ordered_json text_parts(std::size_t index, const ordered_json& content) {
  ordered_json parts = ordered_json::array();
  for (const auto& part : content) {
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string())
      refuse(index, "every content part must be an object with a \"type\"");
    const std::string type = part["type"];
    if (is_media(type)) {
      parts.push_back({{"type", "text"}, {"text", kMediaMarker}});
      continue;
    }
    if (type != "text") refuse(index, "unsupported content part type \"" + type + "\"");
    if (!part.contains("text") || !part["text"].is_string()) refuse(index, "a text part must have a string \"text\"");
    parts.push_back({{"type", "text"}, {"text", part["text"]}});
  }
  return parts;
}

// Text parts on lines of their own; nothing between a medium and its neighbours.
std::string join_parts(const ordered_json& parts) {
  std::string out;
  bool text_before = false;
  for (const auto& part : parts) {
    const std::string& text = part["text"].get_ref<const std::string&>();
    const bool is_text = text != kMediaMarker;
    if (text_before && is_text) out += '\n';
    out += text;
    text_before = is_text;
  }
  return out;
}

void normalize_content(std::size_t index, ordered_json& message, const ChatTemplateCaps& caps) {
  const auto it = message.find("content");
  if (it == message.end() || it->is_null()) {
    if (message["role"] != "assistant") refuse(index, "\"content\" is missing");
    message["content"] = "";
  } else if (it->is_array()) {
    const ordered_json parts = text_parts(index, *it);
    if (caps.typed_content) {
      *it = parts;
    } else {
      *it = join_parts(parts);
    }
  } else if (!it->is_string()) {
    refuse(index, "\"content\" must be a string, an array of parts or null");
  }
  if (caps.null_content_beside_calls && has_calls(message) && is_empty_text(message["content"]))
    message["content"] = nullptr;
  if (caps.typed_content && !caps.string_content && message["content"].is_string()) {
    const std::string text = message["content"];
    message["content"] = ordered_json::array();
    if (!text.empty()) message["content"].push_back({{"type", "text"}, {"text", text}});
  }
}

void normalize_calls(std::size_t index, ordered_json& message, const ChatTemplateCaps& caps) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end()) return;
  if (calls->is_null()) {
    message.erase("tool_calls");
    return;
  }
  const auto expected = [&](const std::string& place, const char* what, const ordered_json* got) {
    refuse_field("messages[" + std::to_string(index) + "].tool_calls" + place, what, got);
  };
  if (!calls->is_array()) expected("", "an array", &*calls);
  for (std::size_t i = 0; i < calls->size(); ++i) {
    ordered_json& call = (*calls)[i];
    const std::string place = "[" + std::to_string(i) + "]";
    if (!call.is_object()) expected(place, "an object with a function", &call);
    const ordered_json* id = member_of(call, "id");
    if (id != nullptr && !id->is_string()) expected(place + ".id", "a string", id);
    const ordered_json* number = member_of(call, "index");
    if (number != nullptr && !number->is_number_unsigned())
      expected(place + ".index", "a whole number of 0 or more", number);
    const ordered_json* type = member_of(call, "type");
    if (type != nullptr && *type != "function") expected(place + ".type", "\"function\"", type);
    const ordered_json* called = member_of(call, "function");
    if (called == nullptr || !called->is_object()) expected(place + ".function", "an object", called);
    const ordered_json* name = member_of(*called, "name");
    if (name == nullptr || !name->is_string()) expected(place + ".function.name", "a string", name);
    if (type == nullptr) call["type"] = "function";
    auto& function = call["function"];  // after the insertion, which moves the members
    if (!function.contains("arguments")) function["arguments"] = "{}";
    auto& arguments = function["arguments"];
    if (caps.object_arguments && arguments.is_string()) {
      const std::string text = arguments;
      const std::string callee = function["name"].get<std::string>();
      // An empty text is what some clients send for "no arguments".
      ordered_json parsed = text.empty() ? ordered_json::object()
                                         : parse_json(text, "messages[" + std::to_string(index) +
                                                                "]: the arguments of the call of " + callee + " are");
      arguments = std::move(parsed);
    } else if (!caps.object_arguments && !arguments.is_string()) {
      arguments = arguments.dump();
    }
  }
}

void normalize_reasoning(ordered_json& message, const MessageQuirks& quirks) {
  if (!has_text(message, "reasoning_content")) return;
  const std::string reasoning = message["reasoning_content"];
  if (quirks.thinking_field) message["thinking"] = reasoning;
  if (quirks.thinking_block) {
    ordered_json blocks = ordered_json::array();
    blocks.push_back({{"type", "thinking"}, {"thinking", reasoning}});
    if (message["content"].is_array()) {
      for (auto& part : message["content"]) blocks.push_back(part);
    } else if (has_text(message, "content")) {
      blocks.push_back({{"type", "text"}, {"text", message["content"]}});
    }
    message["content"] = std::move(blocks);
    message.erase("reasoning_content");
  }
  if (quirks.drops_content_beside_calls && has_calls(message)) message.erase("content");
}

void trim_content(ordered_json& message) {
  if (!message["content"].is_string()) return;
  const std::string text = message["content"];
  message["content"] = std::string(jinja::strip(text, jinja::Side::both));
}

// Puts system texts in front of the next message, or of the user's turn if none follows.
ordered_json fold_system(const ordered_json& messages) {
  ordered_json out = ordered_json::array();
  std::string pending;
  for (const auto& message : messages) {
    if (message["role"] == "system") {
      pending +=
          (message["content"].is_array() ? join_parts(message["content"]) : message["content"].get<std::string>()) +
          "\n";
      continue;
    }
    out.push_back(message);
    if (pending.empty()) continue;
    auto& content = out.back()["content"];
    if (content.is_null()) content = "";
    if (content.is_array()) {
      content.insert(content.begin(), {{"type", "text"}, {"text", pending}});
    } else {
      content = pending + content.get<std::string>();
    }
    pending.clear();
  }
  if (!pending.empty()) {
    pending.pop_back();
    out.push_back({{"role", "user"}, {"content", pending}});
  }
  return out;
}

// Where the results of an assistant message's calls belong.
class CallPositions {
 public:
  explicit CallPositions(const ordered_json& calls) : n_calls_(calls.size()) {
    for (std::size_t i = 0; i < n_calls_; ++i)
      if (calls[i].contains("id")) positions_.try_emplace(calls[i]["id"].dump(), i);
  }
  // The position of a tool result among the calls; behind all when it is not there.
  [[nodiscard]] std::size_t of(const ordered_json& result) const {
    const auto id = result.find("tool_call_id");
    const auto known = id == result.end() ? positions_.end() : positions_.find(id->dump());
    return known == positions_.end() ? n_calls_ : known->second;
  }

 private:
  std::size_t n_calls_;
  std::map<std::string, std::size_t> positions_;  // by the text of the id's JSON
};

void order_tool_results(ordered_json& messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!has_calls(messages[i])) continue;
    std::size_t end = i + 1;
    while (end < messages.size() && messages[end]["role"] == "tool") ++end;
    const CallPositions positions(messages[i]["tool_calls"]);
    std::stable_sort(messages.begin() + static_cast<std::ptrdiff_t>(i + 1),
                     messages.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](const auto& a, const auto& b) { return positions.of(a) < positions.of(b); });
  }
}

ordered_json fold_tool_results(const ordered_json& messages) {
  ordered_json out = ordered_json::array();
  std::optional<CallPositions> positions;  // of the calls of the last message in `out`
  for (const auto& message : messages) {
    if (message["role"] != "tool" || out.empty() || !has_calls(out.back())) {
      out.push_back(message);
      positions.reset();
      continue;
    }
    auto& assistant = out.back();
    if (!positions.has_value()) positions.emplace(assistant["tool_calls"]);
    std::string name = text_member(message, "name");
    const std::size_t at = positions->of(message);
    if (name.empty() && at < assistant["tool_calls"].size()) name = assistant["tool_calls"][at]["function"]["name"];
    const ordered_json& content = message["content"];
    std::optional<ordered_json> response;
    if (content.is_string()) response = try_parse_json(content.get_ref<const std::string&>());
    assistant["tool_responses"].push_back(
        {{"name", name}, {"response", response.has_value() ? *std::move(response) : content}});
  }
  return out;
}
}  // namespace

MessageQuirks find_quirks(std::string_view source) {
  const auto has = [&](std::string_view s) { return source.find(s) != std::string_view::npos; };
  MessageQuirks q;
  const bool channels = has("<|channel|>");
  const bool lfm = has("<|tool_list_start|>") || has("List of tools: [");
  q.developer_role = channels;
  q.thinking_field = channels || lfm;
  q.drops_content_beside_calls = channels;
  q.thinking_block = has("[SYSTEM_PROMPT]") && has("[TOOL_CALLS]") && has("[ARGS]") && !has("[CALL_ID]");
  q.orders_tool_results = has("dsml_token") && has("tool_calls");
  q.folds_tool_results = has("'<|tool_call>call:'") && has("tool_responses") && !has("== 'tool'");
  q.lax_template = has("<use_mcp_tool>") && has("macro function_name()");
  q.functions_text = has(" functools[") && has("+ functions");
  q.trims_content = has("<tool_call>") && has("<function=") && has("<parameter=") && has("<|im_start|>tool_response");
  return q;
}

std::string functions_text(const ordered_json& tools) {
  ordered_json functions = ordered_json::array();
  for (const auto& tool : tools) functions.push_back(tool["function"]);
  return functions.dump(4, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json completed_tools(const ordered_json& tools) {
  const auto fill = [](ordered_json& object, const char* key, ordered_json value) {
    ordered_json& member = object[key];  // null where it was absent
    if (member.is_null()) member = std::move(value);
  };
  ordered_json out = tools;
  for (auto& tool : out) {
    ordered_json& function = tool["function"];
    fill(function, "description", "");
    fill(function, "parameters", {{"type", "object"}});
    ordered_json& parameters = function["parameters"];
    fill(parameters, "type", "object");
    fill(parameters, "properties", ordered_json::object());
    if (!parameters["properties"].is_object()) continue;
    for (auto& property : parameters["properties"]) {
      if (!property.is_object()) property = ordered_json::object();
      fill(property, "description", "");
    }
  }
  return out;
}

namespace {
void make_plain(ordered_json& schema) {
  if (!schema.is_object()) return;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_array()) {
      const auto first = std::find_if(type->begin(), type->end(), [](const auto& name) { return name != "null"; });
      *type = first == type->end() ? ordered_json("null") : ordered_json(*first);
    }
    if (*type == "null") {
      schema.erase("type");
    } else if (*type == "object" && !schema.contains("additionalProperties")) {
      schema["additionalProperties"] = ordered_json::object();
    }
  }
  // What is deeper than requests nest does not come here.
  for (auto& [key, value] : schema.items()) {
    if (key == "items" || key == "additionalProperties") make_plain(value);
    if (key == "properties" && value.is_object())
      for (auto& property : value) make_plain(property);
  }
}
}  // namespace

std::string text_member(const ordered_json& message, const char* key) {
  const auto it = message.find(key);
  return it != message.end() && it->is_string() ? it->get<std::string>() : std::string();
}

ordered_json plain_tools(const ordered_json& tools) {
  ordered_json out = tools;
  for (auto& tool : out) {
    auto& parameters = tool["function"]["parameters"];
    if (!parameters.is_object() || !parameters.contains("properties") || !parameters["properties"].is_object())
      continue;
    for (auto& property : parameters["properties"]) make_plain(property);
  }
  return out;
}

ordered_json normalize_messages(const ordered_json& messages, const ChatTemplateCaps& caps,
                                const MessageQuirks& quirks) {
  if (!messages.is_array()) throw Error(ErrorCode::invalid_argument, "\"messages\" must be an array");
  ordered_json out = ordered_json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    ordered_json message = messages[i];
    if (!message.is_object()) refuse(i, "must be an object");
    if (!message.contains("role") || !message["role"].is_string()) refuse(i, "\"role\" is missing or not a string");
    if (message["role"] == "developer" && !quirks.developer_role) message["role"] = "system";
    for (const char* key : {"name", "tool_call_id", "reasoning_content"}) {
      const auto it = message.find(key);
      if (it != message.end() && !it->is_string() && !it->is_null())
        refuse(i, "\"" + std::string(key) + "\" must be a string or null");
    }
    normalize_content(i, message, caps);
    normalize_calls(i, message, caps);
    if (quirks.trims_content) trim_content(message);
    normalize_reasoning(message, quirks);
    out.push_back(std::move(message));
  }
  if (!caps.system_role) out = fold_system(out);
  if (quirks.orders_tool_results) order_tool_results(out);
  if (quirks.folds_tool_results) out = fold_tool_results(out);
  return out;
}

}  // namespace common::chat
