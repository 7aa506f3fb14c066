// The templates of real models in the shared data: which format each belongs to, and that the format reads what the
// template writes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "common/chat/chat_templates.h"
#include "common/chat/reply_parser.h"
#include "test_support.h"

namespace common::chat {
namespace {

using nlohmann::ordered_json;

const std::map<std::string, std::string> kFormats = {
    {"Apertus-8B-Instruct", "Apertus"},
    {"Apriel-1.6-15b-Thinker-fixed", "Apriel"},
    {"Bielik-11B-v3.0-Instruct", "Hermes 2 Pro"},
    {"Cohere2MoE", "Cohere2 MoE"},
    {"CohereForAI-c4ai-command-r-plus-tool_use", "Command R+"},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "Command R7B"},
    {"GLM-4.6-alt", "GLM 4.5"},
    {"GLM-4.6", "GLM 4.5"},
    {"GLM-4.7-Flash", "GLM 4.5"},
    {"GLM-5.2", "GLM 4.5"},
    {"GigaChat3-10B-A1.8B", "GigaChat 3"},
    {"GigaChat3.1-10B-A1.8B", "GigaChat 3.1"},
    {"HuggingFaceTB-SmolLM3-3B", "Content-only"},
    {"Kimi-K2-Instruct", "Kimi K2"},
    {"LFM2-8B-A1B", "LFM2"},
    {"LFM2.5-8B-A1B", "LFM2"},
    {"LFM2.5-Instruct", "LFM2"},
    {"MiMo-VL", "Hermes 2 Pro"},
    {"MiniMax-M2", "MiniMax M2"},
    {"MiroThinker", "MiroThinker"},
    {"Mistral-Small-3.2-24B-Instruct-2506", "Mistral Small"},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Qwen3 Coder"},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "Hermes 2 Pro"},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "Hermes 2 Pro"},
    {"Qwen-QwQ-32B", "Hermes 2 Pro"},
    {"Qwen-Qwen2.5-7B-Instruct", "Hermes 2 Pro"},
    {"Qwen-Qwen3-0.6B", "Hermes 2 Pro"},
    {"Qwen3-Coder", "Qwen3 Coder"},
    {"Qwen3.5-4B", "Qwen3 Coder"},
    {"Reka-Edge", "Hermes 2 Pro"},
    {"StepFun3.5-Flash", "Qwen3 Coder"},
    {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "DeepSeek R1"},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "DeepSeek R1"},
    {"deepseek-ai-DeepSeek-V3.1", "DeepSeek V3.1"},
    {"deepseek-ai-DeepSeek-V3.2", "DeepSeek V3.2"},
    {"deepseek-ai-DeepSeek-V3", "DeepSeek R1"},
    {"deepseek-ai-DeepSeek-V4-alt", "DeepSeek V3.2"},
    {"deepseek-ai-DeepSeek-V4", "DeepSeek V3.2"},
    {"fireworks-ai-llama-3-firefunction-v2", "FireFunction v2"},
    {"google-gemma-2-2b-it", "Content-only"},
    {"google-gemma-3", "Content-only"},
    {"google-gemma-4-31B-it", "Gemma 4"},
    {"ibm-granite-granite-3.3-2B-Instruct", "Granite"},
    {"ibm-granite-granite-4.0", "Hermes 2 Pro"},
    {"ibm-granite-granite-4.1", "Hermes 2 Pro"},
    {"llama-cpp-deepseek-r1", "DeepSeek R1"},
    {"llama-cpp-rwkv-world", "Content-only"},
    {"meetkai-functionary-medium-v3.1", "Functionary v3.1"},
    {"meta-llama-3-base", "Content-only"},
    {"meta-llama-Llama-3.1-8B-Instruct", "Llama 3.x"},
    {"meta-llama-Llama-3.2-3B-Instruct", "Llama 3.x"},
    {"meta-llama-Llama-3.3-70B-Instruct", "Llama 3.x"},
    {"microsoft-Phi-3.5-mini-instruct", "Content-only"},
    {"mistralai-Ministral-3-14B-Reasoning-2512", "Ministral"},
    {"mistralai-Mistral-Nemo-Instruct-2407", "Mistral Nemo"},
    {"moonshotai-Kimi-K2", "Kimi K2"},
    {"openai-gpt-oss-120b", "GPT-OSS"},
    {"openbmb-MiniCPM5-1B", "MiniCPM5"},
    {"poolside-Laguna-XS-2.1", "GLM 4.5"},
    {"poolside-Laguna-XS.2", "GLM 4.5"},
    {"stepfun-ai-Step-3.5-Flash", "Qwen3 Coder"},
    {"unsloth-Apriel-1.5", "Apriel"},
    {"unsloth-mistral-Devstral-Small-2507", "Ministral"},
};

std::optional<std::filesystem::path> folder() {
  const auto shared = tandem::shared_dir();
  if (!shared || !std::filesystem::exists(*shared / "data/chat-templates/cases.json")) return std::nullopt;
  return *shared / "data/chat-templates";
}

ModelChatInfo model_of(const std::filesystem::path& path) {
  ModelChatInfo model;
  model.template_source = tandem::load_text(path);
  model.bos_token = "<s>";
  model.eos_token = "</s>";
  return model;
}

TEST(TemplateFormats, EveryTemplateHasTheFormatOfItsModel) {
  const auto dir = folder();
  if (!dir) GTEST_SKIP() << "shared data absent";
  std::size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*dir)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string name = entry.path().stem();
    ASSERT_TRUE(kFormats.contains(name)) << name << " has no row in the table";
    EXPECT_EQ(find_reply_format(tandem::load_text(entry.path()))->name, kFormats.at(name)) << name;
    ++n;
  }
  EXPECT_EQ(n, kFormats.size());
}

const ordered_json kTools = ordered_json::parse(R"json([
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "Its name"},
        "days": {"type": "integer", "description": "How many"}}, "required": ["city"]}}}])json");
const ordered_json kArguments = {{"city", "Paris"}, {"days", 3}};

/// What the template writes for an assistant's message with one call: behind the prompt, and behind the part of the
/// generation prompt that it begins with. (A template may open thoughts in the prompt that the message has none of.)
std::vector<std::string> written_call(const ChatTemplates& templates) {
  const ordered_json call = {{"id", "abcde1234"},
                             {"type", "function"},
                             {"function", {{"name", "get_weather"}, {"arguments", kArguments.dump()}}}};
  ordered_json messages = {{{"role", "user"}, {"content", "Weather in Paris?"}}};
  ChatInputs in;
  in.messages = &messages;
  in.tools = &kTools;
  const std::string asked = templates.apply(in).text;
  in.add_generation_prompt = false;
  const std::string before = templates.apply(in).text;
  messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", ordered_json::array({call})}});
  const std::string whole = templates.apply(in).text;
  const auto behind = [&](const std::string& prompt) {
    return std::string(std::mismatch(prompt.begin(), prompt.end(), whole.begin(), whole.end()).second, whole.end());
  };
  return {behind(asked), behind(before)};
}

Reply parsed(const ChatTemplates& templates, const std::string& text) {
  ReplyParser parser({templates.reply_format(true), std::make_shared<const ToolSet>(kTools), {}, {}});
  (void)parser.push(text);
  (void)parser.finish();
  return parser.reply();
}

/// Every template of the collection that knows tools writes the name of each of these, "zqname".
void expect_templates_take(const std::filesystem::path& folder, const std::vector<ordered_json>& all_tools) {
  const ordered_json messages = {{{"role", "user"}, {"content", "Hello"}}};
  for (const auto& [name, format] : kFormats) {
    const ChatTemplates templates(model_of(folder / (name + ".jinja")), {});
    if (!templates.caps(true).tools) continue;
    for (const ordered_json& tools : all_tools) {
      ChatInputs in;
      in.messages = &messages;
      in.tools = &tools;
      try {
        EXPECT_NE(templates.apply(in).text.find("zqname"), std::string::npos) << name << " " << tools;
      } catch (const ggml::Error& error) {
        ADD_FAILURE() << name << " " << tools << ": " << error.message();
      }
    }
  }
}

ordered_json one_tool(const ordered_json& function) {
  return ordered_json::array({{{"type", "function"}, {"function", function}}});
}

TEST(TemplateFormats, EveryTemplateWithToolsTakesToolsOfNothingButAName) {
  const auto dir = folder();
  if (!dir) GTEST_SKIP() << "shared data absent";
  const std::vector<ordered_json> cases = {
      one_tool({{"name", "zqname"}}), one_tool({{"name", "zqname"}, {"description", nullptr}, {"parameters", nullptr}}),
      one_tool({{"name", "zqname"}, {"parameters", ordered_json::object()}}),
      one_tool({{"name", "zqname"}, {"parameters", {{"type", "object"}}}}),
      one_tool({{"name", "zqname"},
                {"parameters",
                 {{"type", "object"},
                  {"properties",
                   {{"a", {{"type", "integer"}}},
                    {"b", ordered_json::object()},
                    {"c", {{"enum", {1, "x"}}}},
                    {"d", true}}}}}})};
  expect_templates_take(*dir, cases);
}

// Schemas of forms that some templates spell out by a macro which knows few of them, or never ends with others.
TEST(TemplateFormats, EveryTemplateWithToolsTakesSchemasOfEveryForm) {
  const auto dir = folder();
  if (!dir) GTEST_SKIP() << "shared data absent";
  const ordered_json schemas[] = {
      ordered_json::parse(
          R"({"type":"object","properties":{"tree":{"$ref":"#/$defs/node"}},"$defs":{"node":{"type":"object",
          "properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/node"}}}}}})"),
      ordered_json::parse(
          R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}}}}})"),
      ordered_json::parse(R"({"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"object"}}},
          "c":{"type":["string","null"]},"d":{"type":["array","null"],"items":{"type":["integer","null"]}},"e":{"type":"null"},
          "f":{"anyOf":[{"type":"string"},{"type":"null"}]},"g":{"type":"array"},"h":{"type":"array","items":{"type":"object"}},
          "i":{"type":"object","additionalProperties":false},"j":{"type":["object","array"]},"k":{"const":5}}})")};
  std::vector<ordered_json> cases;
  for (const ordered_json& schema : schemas) cases.push_back(one_tool({{"name", "zqname"}, {"parameters", schema}}));
  expect_templates_take(*dir, cases);
}

TEST(TemplateFormats, EveryFormatReadsTheCallsThatItsTemplatesWrite) {
  const auto dir = folder();
  if (!dir) GTEST_SKIP() << "shared data absent";
  int n_read = 0;
  for (const auto& [name, format] : kFormats) {
    SCOPED_TRACE(name);
    const ChatTemplates templates(model_of(*dir / (name + ".jinja")), {});
    if (!templates.caps(true).tool_calls) continue;
    const std::vector<std::string> texts = written_call(templates);
    Reply reply = parsed(templates, texts[0]);
    if (reply.calls.empty()) reply = parsed(templates, texts[1]);
    EXPECT_EQ(reply.calls.size(), 1U) << format << ": " << texts[1];
    if (reply.calls.empty()) continue;
    EXPECT_EQ(reply.calls[0].name, "get_weather");
    EXPECT_EQ(ordered_json::parse(reply.calls[0].arguments, nullptr, false), kArguments) << texts[1];
    ++n_read;
  }
  EXPECT_GT(n_read, 40);
}

}  // namespace
}  // namespace common::chat
