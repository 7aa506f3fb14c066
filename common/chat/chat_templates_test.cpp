// From a model's file and a request to a prompt.
#include "common/chat/chat_templates.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/chat/builtin_templates.h"
#include "common/chat/messages.h"
#include "test_support.h"

namespace {
using common::chat::ChatInputs;
using common::chat::ChatPrompt;
using common::chat::ChatTemplateOptions;
using common::chat::ChatTemplates;
using common::chat::ContinueFinalMessage;
using common::chat::ModelChatInfo;
using nlohmann::ordered_json;

constexpr const char* kChatml =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

ModelChatInfo model_with(std::string source) {
  ModelChatInfo model;
  model.template_source = std::move(source);
  model.bos_token = "<s>";
  model.eos_token = "</s>";
  return model;
}

ChatPrompt prompt_of(const ChatTemplates& t, const ordered_json& messages, bool add_generation_prompt = true) {
  ChatInputs in;
  in.messages = &messages;
  in.add_generation_prompt = add_generation_prompt;
  return t.apply(in);
}

ChatTemplates named(const std::string& name, bool use_jinja = true) {
  ChatTemplateOptions options;
  options.override_text = name;
  options.use_jinja = use_jinja;
  return ChatTemplates({}, options);
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const ggml::Error& e) {
    return e.message();
  }
  return "no error";
}

const ordered_json kHello = {{{"role", "user"}, {"content", "Hello"}}};

TEST(BuiltinTemplates, AllFiftyFourAreThereByName) {
  const auto names = common::chat::builtin_template_names();
  EXPECT_EQ(names.size(), 54u);
  for (const auto name : names) EXPECT_NO_THROW(named(std::string(name))) << name;
}

TEST(BuiltinTemplates, EveryFormatRendersEveryConversationAsTheGoldens) {
  const auto shared = tandem::shared_dir();
  if (!shared || !std::filesystem::exists(*shared / "data/chat-templates/builtin.json"))
    GTEST_SKIP() << "shared data absent";
  const auto data = ordered_json::parse(tandem::load_text(*shared / "data/chat-templates/builtin.json"));
  int passed = 0;
  for (const auto& test : data["cases"]) {
    const auto& conversation = data["conversations"][test["conversation"].get<std::string>()];
    const auto* format = common::chat::find_builtin_template(test["template"].get<std::string>());
    ASSERT_NE(format, nullptr) << test["template"];
    const ChatPrompt got =
        prompt_of(named(test["template"], false), conversation["messages"], conversation["add_generation_prompt"]);
    EXPECT_EQ(got.text, test["expected"].get<std::string>()) << test["template"] << " / " << test["conversation"];
    passed += got.text == test["expected"] ? 1 : 0;
  }
  std::printf("builtin: %d of %zu\n", passed, data["cases"].size());
}

TEST(ChatTemplates, TheTinyModelsRenderTheirFixtures) {
  const auto fixtures = ordered_json::parse(tandem::load_text(tandem::data_dir() / "chat/tiny_models.json"));
  ASSERT_FALSE(fixtures.empty());
  for (const auto& f : fixtures) {
    const ChatTemplates t(model_with(f["template"]), {});
    const ChatPrompt got = prompt_of(t, f["messages"]);
    EXPECT_EQ(got.text, f["rendered"].get<std::string>()) << f["name"];
  }
}

TEST(ChatTemplates, RealModelTemplatesAreChosenProbedAndRendered) {
  const auto shared = tandem::shared_dir();
  if (!shared || !std::filesystem::exists(*shared / "data/chat-templates/cases.json"))
    GTEST_SKIP() << "shared data absent";
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*shared / "data/chat-templates")) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string name = entry.path().filename();
    SCOPED_TRACE(name);
    ASSERT_NO_THROW({
      const ChatTemplates t(model_with(tandem::load_text(entry.path())), {});
      EXPECT_NE(prompt_of(t, kHello).text.find("Hello"), std::string::npos);
      const auto& c = t.caps();
      std::printf(
          "%-58s string %d typed %d system %d tools %d calls %d parallel %d object %d preserve %d thinking %d\n",
          name.c_str(), c.string_content, c.typed_content, c.system_role, c.tools, c.tool_calls, c.parallel_tool_calls,
          c.object_arguments, c.preserve_reasoning, c.enable_thinking);
    });
    ++n;
  }
  EXPECT_EQ(n, 63);
}

TEST(ChatTemplates, CapabilitiesOfKnownTemplatesAreSeen) {
  const auto shared = tandem::shared_dir();
  if (!shared || !std::filesystem::exists(*shared / "data/chat-templates/cases.json"))
    GTEST_SKIP() << "shared data absent";
  const auto caps = [&](const char* name) {
    return ChatTemplates(model_with(tandem::load_text(*shared / "data/chat-templates" / name)), {}).caps();
  };
  const auto qwen3 = caps("Qwen-Qwen3-0.6B.jinja");
  EXPECT_TRUE(qwen3.string_content && qwen3.system_role && qwen3.tools && qwen3.tool_calls &&
              qwen3.parallel_tool_calls);
  EXPECT_TRUE(qwen3.enable_thinking);
  EXPECT_FALSE(qwen3.typed_content);
  const auto gemma2 = caps("google-gemma-2-2b-it.jinja");
  EXPECT_FALSE(gemma2.system_role || gemma2.tools || gemma2.tool_calls || gemma2.enable_thinking);
  const auto gemma3 = caps("google-gemma-3.jinja");
  EXPECT_TRUE(gemma3.system_role && gemma3.typed_content && gemma3.string_content);
  EXPECT_FALSE(gemma3.tools);
  const auto llama31 = caps("meta-llama-Llama-3.1-8B-Instruct.jinja");
  EXPECT_TRUE(llama31.tools && llama31.tool_calls && llama31.object_arguments);
  EXPECT_FALSE(llama31.parallel_tool_calls);
  EXPECT_TRUE(caps("Qwen3-Coder.jinja").object_arguments);
  for (const char* name : {"fireworks-ai-llama-3-firefunction-v2.jinja", "MiroThinker.jinja"})
    EXPECT_TRUE(caps(name).tools && caps(name).tool_calls) << name;
}

TEST(ChatTemplates, TheOverrideWinsThenTheModelThenChatml) {
  ChatTemplateOptions options;
  EXPECT_EQ(prompt_of(ChatTemplates({}, options), kHello).text,
            "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(prompt_of(ChatTemplates(model_with("M{{ messages[0].content }}"), options), kHello).text, "MHello");
  options.override_text = "O{{ messages[0].content }}";
  EXPECT_EQ(prompt_of(ChatTemplates(model_with("M{{ messages[0].content }}"), options), kHello).text, "OHello");
  options.override_text = "llama3";
  const ChatTemplates t(model_with("M"), options);
  EXPECT_EQ(t.source(), "llama3");
  EXPECT_EQ(prompt_of(t, kHello).text.substr(0, 19), "<|start_header_id|>");
}

TEST(ChatTemplates, TheToolUseTemplateServesRequestsWithTools) {
  ModelChatInfo model = model_with("plain {{ messages[0].content }}");
  model.tool_use_template_source = "tools {{ messages[0].content }} {{ tools | length }}";
  const ordered_json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const ChatTemplates t(model, {});
  ChatInputs in;
  in.messages = &kHello;
  EXPECT_EQ(t.apply(in).text, "plain Hello");
  in.tools = &tools;
  EXPECT_EQ(t.apply(in).text, "tools Hello 1");
  model.template_source.clear();
  in.tools = nullptr;
  EXPECT_EQ(ChatTemplates(model, {}).apply(in).text, "tools Hello 0");
}

TEST(ChatTemplates, FunctionsComeAsTextWhereTheTemplateReadsThemSo) {
  const ChatTemplates t(model_with("{% set all = 'use functools[...] ' + functions %}{{ all }}"), {});
  EXPECT_EQ(prompt_of(t, kHello).text, "use functools[...] []");
  const ordered_json tools = {{{"type", "function"}, {"function", {{"name", "f"}, {"description", "D"}}}}};
  ChatInputs in;
  in.messages = &kHello;
  in.tools = &tools;
  const std::string text = t.apply(in).text;
  EXPECT_EQ(ordered_json::parse(text.substr(text.find("] ") + 2)), ordered_json::array({tools[0]["function"]}));
  EXPECT_TRUE(t.caps().tools);
}

TEST(ChatTemplates, ToolsGetWhatATemplateCannotDoWithout) {
  const char* source =
      "{% for t in tools %}{{ t.function.name + t.function.description }}"
      "{% for k, v in t.function.parameters.properties.items() %}{{ k + v.description }}{% endfor %}{% endfor %}";
  const ChatTemplates strict(model_with(std::string(source) + "{{ messages[0].content }}"), {});
  const ordered_json tools = ordered_json::parse(R"([
      {"type": "function", "function": {"name": "f", "parameters": null}},
      {"type": "function", "function": {"name": "g", "parameters": {"properties": {"a": {"type": "null"}, "b": true}}}}])");
  ChatInputs in;
  in.messages = &kHello;
  in.tools = &tools;
  EXPECT_EQ(strict.apply(in).text, "fgabHello");
  // Others see them as they were sent.
  const ChatTemplates plain(model_with("{{ (tools or []) | tojson }}{{ messages[0].content }}"), {});
  EXPECT_EQ(plain.apply(in).text.find("description"), std::string::npos);
}

TEST(ChatTemplates, MistralNemoWithoutATemplateGetsItsFormat) {
  ModelChatInfo model;
  model.pre_tokenizer = "tekken";
  model.n_layer = 40;
  EXPECT_EQ(prompt_of(ChatTemplates(model, {}), kHello).text, "[INST]Hello[/INST]");
  model.n_layer = 32;
  EXPECT_EQ(prompt_of(ChatTemplates(model, {}), kHello).text.substr(0, 12), "<|im_start|>");
}

TEST(ChatTemplates, WithoutJinjaTheTextIsMatchedToAFormat) {
  ChatTemplateOptions options;
  options.use_jinja = false;
  const ChatTemplates t(model_with(kChatml), options);
  EXPECT_EQ(t.source(), "chatml");
  EXPECT_NE(error_of([&] { ChatTemplates(model_with("{{ nothing }}"), options); }).find("matches none"),
            std::string::npos);
  const ordered_json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  ChatInputs in;
  in.messages = &kHello;
  in.tools = &tools;
  EXPECT_EQ(error_of([&] { (void)t.apply(in); }), "tools need --jinja");
}

TEST(ChatTemplates, AWrongNameIsRefusedWithTheList) {
  try {
    named("lama3");
    FAIL();
  } catch (const ggml::Error& e) {
    EXPECT_NE(e.message().find("\"lama3\" is neither"), std::string::npos);
    EXPECT_NE(e.hint().find(" llama3 "), std::string::npos);
  }
}

TEST(ChatTemplates, ATemplateThatCannotRenderStopsTheStart) {
  const std::string text = error_of([] { ChatTemplates(model_with("{{ messages[0].content + 1 }}"), {}); });
  EXPECT_NE(text.find("cannot render a single user message"), std::string::npos) << text;
  EXPECT_NE(text.find("line 1, column 24"), std::string::npos) << text;
  EXPECT_NE(error_of([] { ChatTemplates(model_with("{% if %}"), {}); }).find("does not parse: line 1, column 7"),
            std::string::npos);
}

TEST(ChatTemplates, WhatATemplateRaisesIsTheWholeMessage) {
  const ChatTemplates t(
      model_with("{% if messages | length > 1 %}{{ raise_exception('one only') }}{% endif %}{{ messages[0].content }}"),
      {});
  const ordered_json two = {{{"role", "user"}, {"content", "a"}}, {{"role", "user"}, {"content", "b"}}};
  EXPECT_EQ(error_of([&] { (void)prompt_of(t, two); }), "one only");
}

TEST(ChatTemplates, BosAndEosTextIsCutOnlyWhenTheVocabularyAddsThem) {
  ModelChatInfo model = model_with("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}");
  EXPECT_EQ(prompt_of(ChatTemplates(model, {}), kHello).text, "<s>Hello</s>");
  model.adds_bos = true;
  EXPECT_EQ(prompt_of(ChatTemplates(model, {}), kHello).text, "Hello</s>");
  model.adds_eos = true;
  EXPECT_EQ(prompt_of(ChatTemplates(model, {}), kHello).text, "Hello");
}

TEST(ChatTemplates, ContextHoldsDatesThinkingAndArguments) {
  ChatTemplateOptions options;
  options.kwargs_json = R"({"a": 1, "b": 2})";
  const ChatTemplates t(model_with("{{ messages[0].content }} {{ datetime }} {{ date_string }} {{ enable_thinking }} "
                                   "{{ a }} {{ b }} {{ tools is defined }} {{ strftime_now('%H') }}"),
                        options);
  std::tm now{};
  now.tm_year = 126;
  now.tm_mday = 15;
  now.tm_hour = 12;
  const ordered_json kwargs = {{"b", 3}, {"enable_thinking", false}};
  ChatInputs in;
  in.messages = &kHello;
  in.now = now;
  in.kwargs = &kwargs;
  EXPECT_EQ(t.apply(in).text, "Hello Jan 15 2026 15 Jan 2026 False 1 3 False 12");
  const ordered_json bad = {{"enable_thinking", "no"}};
  in.kwargs = &bad;
  EXPECT_NE(error_of([&] { (void)t.apply(in); }).find("must be true or false"), std::string::npos);
  options.kwargs_json = "[1]";
  EXPECT_NE(error_of([&] { ChatTemplates(model_with("x"), options); }).find("not a JSON object"), std::string::npos);
}

TEST(ChatTemplates, PartsBecomeTextAndMediaMarkersStandAlone) {
  const ChatTemplates t(model_with(kChatml), {});
  const ordered_json messages = {{{"role", "user"},
                                  {"content",
                                   {{{"type", "text"}, {"text", "a"}},
                                    {{"type", "text"}, {"text", "b"}},
                                    {{"type", "image_url"}, {"image_url", {{"url", "x"}}}},
                                    {{"type", "text"}, {"text", "c"}}}}}};
  EXPECT_EQ(prompt_of(t, messages, false).text, "<|im_start|>user\na\nb<__media__>c<|im_end|>\n");
}

TEST(ChatTemplates, ATemplateOfPartsGetsParts) {
  const ChatTemplates t(
      model_with("{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"), {});
  EXPECT_FALSE(t.caps().string_content);
  EXPECT_TRUE(t.caps().typed_content);
  EXPECT_EQ(prompt_of(t, kHello).text, "[Hello]");
}

TEST(ChatTemplates, WithoutASystemRoleTheTextGoesToTheNextMessage) {
  const ChatTemplates t(model_with("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') "
                                   "}}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"),
                        {});
  EXPECT_FALSE(t.caps().system_role);
  const ordered_json messages = {{{"role", "system"}, {"content", "S"}}, {{"role", "user"}, {"content", "U"}}};
  EXPECT_EQ(prompt_of(t, messages).text, "<user>S\nU");
  const ordered_json alone = {{{"role", "developer"}, {"content", "S"}}};
  EXPECT_EQ(prompt_of(t, alone).text, "<user>S");
}

TEST(ChatTemplates, ArgumentsAreObjectsWhereTheTemplateWantsThem) {
  const ChatTemplates objects(
      model_with("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{{ "
                 "c.function.arguments | tojson }}{% endfor %}{% endfor %}"),
      {});
  const ChatTemplates texts(model_with("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ "
                                       "c.function.name + c.function.arguments }}{% endfor %}{% endfor %}"),
                            {});
  EXPECT_TRUE(objects.caps().object_arguments);
  EXPECT_FALSE(texts.caps().object_arguments);
  EXPECT_TRUE(texts.caps().tool_calls);
  const auto conversation = [](const ordered_json& arguments) {
    return ordered_json{{{"role", "user"}, {"content", "q"}},
                        {{"role", "assistant"},
                         {"content", nullptr},
                         {"tool_calls", {{{"id", "1"}, {"function", {{"name", "f"}, {"arguments", arguments}}}}}}}};
  };
  EXPECT_EQ(prompt_of(objects, conversation("{\"a\":[1]}")).text, "qf{\"a\": [1]}");
  EXPECT_EQ(prompt_of(texts, conversation("{\"a\":[1]}")).text, "qf{\"a\":[1]}");
  EXPECT_EQ(prompt_of(texts, conversation({{"a", 1}})).text, "qf{\"a\":1}");
  EXPECT_EQ(prompt_of(objects, conversation("")).text, "qf{}");
  EXPECT_NE(error_of([&] {
              (void)prompt_of(objects, conversation("{\"a\":"));
            }).find("messages[1]: the arguments of the call of f are not valid JSON"),
            std::string::npos);
}

TEST(ChatTemplates, CallsAreShownToATemplateThatWantsNoContentBesideThem) {
  const ChatTemplates t(
      model_with("{% for m in messages %}{% if m.content is none %}{{ m.tool_calls[0].function.name }}"
                 "{{ m.tool_calls[0].function.arguments | tojson }}{% else %}{{ m.content }}{% endif %}{% endfor %}"),
      {});
  EXPECT_TRUE(t.caps().tool_calls);
  const ordered_json call = {{"id", "1"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}};
  ordered_json messages = {{{"role", "user"}, {"content", "q"}},
                           {{"role", "assistant"}, {"content", ""}, {"tool_calls", ordered_json::array({call})}}};
  EXPECT_EQ(prompt_of(t, messages).text, "qf{}");
  messages[1].erase("content");
  EXPECT_EQ(prompt_of(t, messages).text, "qf{}");
}

TEST(ChatTemplates, TheGenerationPromptIsWhatTheFlagAdds) {
  const ChatTemplates t(model_with(kChatml), {});
  EXPECT_EQ(prompt_of(t, kHello).generation_prompt, "<|im_start|>assistant\n");
  EXPECT_EQ(prompt_of(t, kHello, false).generation_prompt, "");
}

TEST(ChatTemplates, ContinuesTheAssistantsMessage) {
  const ChatTemplates t(model_with("{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}<think>{{ "
                                   "m.reasoning_content }}</think>{% endif %}{{ m.content | trim }}<end>{% endfor %}{% "
                                   "if add_generation_prompt %}<|assistant|>{% endif %}"),
                        {});
  ordered_json messages = {{{"role", "user"}, {"content", "Count"}}, {{"role", "assistant"}, {"content", "1, 2, "}}};
  ChatInputs in;
  in.messages = &messages;
  in.add_generation_prompt = false;
  in.continue_final_message = ContinueFinalMessage::content;
  ChatPrompt got = t.apply(in);
  EXPECT_EQ(got.text, "<|user|>Count<end><|assistant|>1, 2, ");
  EXPECT_EQ(got.given_content, "1, 2, ");
  EXPECT_EQ(got.generation_prompt, "<|assistant|>");
  messages[1]["reasoning_content"] = "hm";
  EXPECT_EQ(t.apply(in).text, "<|user|>Count<end><|assistant|><think>hm</think>1, 2, ");
  in.continue_final_message = ContinueFinalMessage::reasoning_content;
  got = t.apply(in);
  EXPECT_EQ(got.text, "<|user|>Count<end><|assistant|><think>hm");
  EXPECT_EQ(got.given_reasoning, "hm");
  in.add_generation_prompt = true;
  EXPECT_NE(error_of([&] { (void)t.apply(in); }).find("exclude each other"), std::string::npos);
  in.add_generation_prompt = false;
  messages.push_back({{"role", "assistant"}, {"content", "3"}});
  EXPECT_NE(error_of([&] { (void)t.apply(in); }).find("two assistant messages"), std::string::npos);
  messages.push_back({{"role", "user"}, {"content", "3"}});
  EXPECT_NE(error_of([&] { (void)t.apply(in); }).find("needs an assistant message"), std::string::npos);
}

TEST(ChatTemplates, ReasoningPreservationIsAskedForWhenTheTemplateKnowsIt) {
  const std::string source = "{{ messages[0].content }}{{ ' kept' if preserve_thinking }}";
  EXPECT_EQ(prompt_of(ChatTemplates(model_with(source), {}), kHello).text, "Hello kept");
  ChatTemplateOptions options;
  options.preserve_reasoning = false;
  EXPECT_EQ(prompt_of(ChatTemplates(model_with(source), options), kHello).text, "Hello");
}

TEST(ChatTemplates, MalformedMessagesAndToolsNameThePlace) {
  const ChatTemplates t(model_with(kChatml), {});
  const auto error = [&](const char* json) { return error_of([&] { (void)prompt_of(t, ordered_json::parse(json)); }); };
  EXPECT_NE(error("{}").find("must be an array"), std::string::npos);
  EXPECT_NE(error("[]").find("at least one"), std::string::npos);
  EXPECT_EQ(error("[1]"), "messages[0]: must be an object");
  EXPECT_EQ(error(R"([{"content": "x"}])"), "messages[0]: \"role\" is missing or not a string");
  EXPECT_EQ(error(R"([{"role": "user"}])"), "messages[0]: \"content\" is missing");
  EXPECT_EQ(error(R"([{"role": "user", "content": 5}])"),
            "messages[0]: \"content\" must be a string, an array of parts or null");
  EXPECT_EQ(error(R"([{"role": "user", "content": [{"type": "video"}]}])"),
            "messages[0]: unsupported content part type \"video\"");
  EXPECT_EQ(error(R"([{"role": "user", "content": [{"type": "text"}]}])"),
            "messages[0]: a text part must have a string \"text\"");
  EXPECT_EQ(error(R"([{"role": "assistant", "tool_calls": 3}])"),
            "Field 'messages[0].tool_calls': expected an array, got 3");
  EXPECT_EQ(error(R"([{"role": "assistant", "tool_calls": [{}]}])"),
            "Field 'messages[0].tool_calls[0].function': expected an object, got nothing");
  const auto call_error = [&](const char* members) {
    return error(
        (R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}, {)" + std::string(members) + "}]}]")
            .c_str());
  };
  const std::string place = "Field 'messages[0].tool_calls[1]";
  EXPECT_EQ(call_error(R"("function": {"name": "f"}, "id": 5)"), place + ".id': expected a string, got 5");
  EXPECT_EQ(call_error(R"("function": {"name": "f"}, "index": "a")"),
            place + ".index': expected a whole number of 0 or more, got \"a\"");
  EXPECT_EQ(call_error(R"("function": {"name": "f"}, "type": "tool")"),
            place + ".type': expected \"function\", got \"tool\"");
  EXPECT_EQ(call_error(R"("function": {})"), place + ".function.name': expected a string, got nothing");
  ChatInputs in;
  in.messages = &kHello;
  const ordered_json tools = ordered_json::parse(R"([{"type": "retrieval"}])");
  in.tools = &tools;
  EXPECT_EQ(error_of([&] { (void)t.apply(in); }),
            "Field 'tools[0].type': expected \"function\", the only type there is, got \"retrieval\"");
}

TEST(ChatTemplates, AnOverrideThatIsNoTemplateIsCalledWhatItIs) {
  EXPECT_EQ(
      error_of([] { (void)named("nonsense"); }),
      "--chat-template, --chat-template-file: \"nonsense\" is neither a built-in format nor a Jinja template: nothing "
      "in it stands between {{ }} or {% %}");
}

TEST(ChatTemplates, AToolThatIsNoneIsRefusedByThePartThatIsWrong) {
  const auto error = [](const char* tools) {
    return error_of([&] { common::chat::check_tools(ordered_json::parse(tools)); });
  };
  EXPECT_EQ(error(R"({})"), "Field 'tools': expected an array");
  EXPECT_EQ(error(R"([5])"), "Field 'tools[0]': expected an object with type and function, got 5");
  EXPECT_EQ(error(R"([{"function":{"name":"f"}}])"),
            "Field 'tools[0].type': expected \"function\", the only type there is, got nothing");
  EXPECT_EQ(error(R"([{"type":5}])"), "Field 'tools[0].type': expected \"function\", the only type there is, got 5");
  EXPECT_EQ(error(R"([{"type":"function","function":[]}])"), "Field 'tools[0].function': expected an object, got []");
  EXPECT_EQ(error(R"([{"type":"function","function":{}}])"),
            "Field 'tools[0].function.name': expected a string, got nothing");
  const auto of_function = [&](const std::string& function) {
    return error(("[{\"type\":\"function\",\"function\":" + function + "}]").c_str());
  };
  EXPECT_EQ(of_function(R"({"name":""})"), "Field 'tools[0].function.name': the name is empty");
  EXPECT_EQ(of_function(R"({"name":7})"), "Field 'tools[0].function.name': expected a string, got 7");
  for (const char* name : {"a ", " a", "a b", "a\\u0000b", "a\\tb", "f(x)", "a<b", "a|b", "a,b", "it's", "a=b", "a[0]",
                           "{a}", "a\\\"b", "a`b", "a\\\\b"}) {
    EXPECT_EQ(
        of_function("{\"name\":\"" + std::string(name) + "\"}"),
        "Field 'tools[0].function.name': expected a name such as get_weather, files.read or mcp:files/read, without "
        "blanks, control characters, quotes, brackets and | , = \\, got \"" +
            std::string(name) + "\"");
  }
  EXPECT_EQ(of_function("{\"name\":\"" + std::string(257, 'a') + "\"}"),
            "Field 'tools[0].function.name': the name has 257 bytes, 256 are allowed");
  EXPECT_EQ(of_function(R"({"name":"f","description":5})"),
            "Field 'tools[0].function.description': expected a string, got 5");
  EXPECT_EQ(of_function(R"({"name":"f","parameters":"x"})"),
            "Field 'tools[0].function.parameters': expected a JSON schema, an object, got \"x\"");
  EXPECT_EQ(of_function(R"({"name":"f","parameters":[]})"),
            "Field 'tools[0].function.parameters': expected a JSON schema, an object, got []");
  EXPECT_EQ(of_function(R"({"name":"f","parameters":{"type":"string"}})"),
            "Field 'tools[0].function.parameters.type': expected \"object\": arguments have names, got \"string\"");
  EXPECT_EQ(of_function(R"({"name":"f","parameters":{"required":"a"}})"),
            "Field 'tools[0].function.parameters': json_schema: #/required: expected a list of names, got \"a\"");
  EXPECT_EQ(
      of_function(R"({"name":"f","parameters":{"properties":{"a":{"items":{"pattern":"(x"}}}}})"),
      "Field 'tools[0].function.parameters': json_schema: #/properties/a/items/pattern: pattern \"(x\", offset 0: this "
      "group is never closed");
  ordered_json wide = {{"name", "f"}, {"parameters", {{"properties", ordered_json::object()}}}};
  for (int i = 0; i < 4097; ++i) wide["parameters"]["properties"]["p" + std::to_string(i)] = ordered_json::object();
  EXPECT_EQ(of_function(wide.dump()),
            "Field 'tools[0].function.parameters.properties': 4097 parameters, one tool may have 4096");
  EXPECT_EQ(error(R"([{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}])"),
            "Field 'tools[1].function.name': \"f\" is the name of tools[0] too");
  ordered_json many = ordered_json::array();
  for (int i = 0; i < 1025; ++i)
    many.push_back({{"type", "function"}, {"function", {{"name", "f" + std::to_string(i)}}}});
  EXPECT_EQ(error_of([&] { common::chat::check_tools(many); }), "Field 'tools': 1025 tools, one request may have 1024");
  EXPECT_NO_THROW(common::chat::check_tools(ordered_json::parse(
      R"([{"type":"function","function":{"name":"a_b.c/d:e@f-g","description":null,"parameters":null,"strict":true}},
          {"type":"function","function":{"name":"g","parameters":{"$ref":"#/$defs/x","$defs":{"x":{"type":"object"}}}}}])")));
}

// A template of Gemma 4's kind: results of tools are folded into the message of the calls, as JSON if they are that.
TEST(ChatTemplates, ResultsThatAreFoldedIntoTheirCallsMayBeAnyText) {
  const ChatTemplates t(
      model_with(
          "{# '<|tool_call>call:' #}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
          "{% for r in m.tool_responses or [] %}{{ r.name }}={{ r.response | tojson }};{% endfor %}{% endfor %}"),
      {});
  const auto prompt = [&](const ordered_json& calls, const ordered_json& results) {
    ordered_json messages = ordered_json::array({{{"role", "user"}, {"content", "x"}}});
    messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", calls}});
    for (const auto& result : results) messages.push_back(result);
    ChatInputs in;
    in.messages = &messages;
    in.add_generation_prompt = false;
    return t.apply(in).text;
  };
  const auto call = [](const std::string& id, const std::string& name) {
    return ordered_json{{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", "{}"}}}};
  };
  const auto result = [](const std::string& id, const std::string& content) {
    return ordered_json{{"role", "tool"}, {"tool_call_id", id}, {"content", content}};
  };
  const ordered_json two = ordered_json::array({call("a", "f"), call("b", "g")});
  EXPECT_EQ(prompt(two, ordered_json::array({result("b", R"({"x":1})"), result("a", "12 C"), result("?", "[1")})),
            "[user]x[assistant]g={\"x\": 1};f=\"12 C\";=\"[1\";");
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_EQ(prompt(two, ordered_json::array({result("a", deep)})), "[user]x[assistant]f=\"" + deep + "\";")
      << "too deep to be read";
  // Each result is looked for among all the calls.
  ordered_json calls = ordered_json::array(), results = ordered_json::array();
  for (int i = 0; i < 20'000; ++i) {
    calls.push_back(call("call-" + std::to_string(i), "f"));
    results.push_back(result("call-" + std::to_string(19'999 - i), "1"));
  }
  EXPECT_EQ(prompt(calls, results).size(),
            std::string("[user]x[assistant]").size() + 20'000 * std::string("f=1;").size());
}

TEST(ChatTemplates, MembersOfAMessageThatAreNoTextsAreRefusedNotThrownOver) {
  const ChatTemplates t(model_with("{% for m in messages %}{{ m.content }}{% endfor %}"), {});
  ChatInputs in;
  for (const char* messages :
       {R"([{"role":"user","content":"x"},{"role":"assistant","content":"y","reasoning_content":5}])",
        R"([{"role":"tool","content":"x","name":5}])", R"([{"role":"tool","content":"x","tool_call_id":{}}])"}) {
    const ordered_json parsed = ordered_json::parse(messages);
    in.messages = &parsed;
    EXPECT_NE(error_of([&] { (void)t.apply(in); }).find("must be a string or null"), std::string::npos) << messages;
  }
  const ordered_json continued = ordered_json::parse(
      R"([{"role":"user","content":"x"},{"role":"assistant","content":null,"reasoning_content":null,"tool_calls":null}])");
  in.messages = &continued;
  in.add_generation_prompt = false;
  in.continue_final_message = ContinueFinalMessage::content;
  EXPECT_NO_THROW((void)t.apply(in));
}
}  // namespace
