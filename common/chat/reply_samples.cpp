#include "common/chat/reply_samples.h"

#include <nlohmann/json.hpp>

namespace common::chat {

namespace {
const std::string kParis = R"({"city": "Paris"})";
const std::string kSum = R"({"a": 2, "b": 3.5})";
const std::string kTagParis = R"({"city":"Paris"})";
const std::string kTagSum = R"({"a":2,"b":3.5,"tags":["x", "y"]})";

std::vector<ReplySample> json_samples() {
  return {
      {"Hermes 2 Pro",
       "<tool_call> <think>",
       "",
       "<think>\nHm.\n</think>\n\nOk.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + kParis +
           "}\n</tool_call>\n<tool_call>\n{\"name\": \"add\", \"arguments\": " + kSum + "}\n</tool_call>",
       "Ok.",
       "Hm.",
       {{"get_weather", kParis, ""}, {"add", kSum, ""}}},
      {"Hermes 2 Pro",
       "<tool_call> <think>",
       "<|im_start|>assistant\n<think>\n",
       "Hm.\n</think>\n\nAnswer <b>bold</b> & 1 < 2.\n",
       "Answer <b>bold</b> & 1 < 2.\n",
       "Hm.",
       {}},
      {"Hermes 2 Pro",
       "<tool_call>",
       "",
       "<tool_call>{\"arguments\": {\"code\": \"a\\\"}{\"}, \"name\": \"run\"}</tool_call>",
       "",
       "",
       {{"run", "{\"code\": \"a\\\"}{\"}", ""}}},
      {"Hermes 2 Pro",
       "<tool_call>",
       "",
       "<tool_call>{\"name\": \"now\", \"arguments\": null}</tool_call>",
       "",
       "",
       {{"now", "{}", ""}}},
      {"Hermes 2 Pro",
       "<tool_call>",
       "",
       "<tool_call>{\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"Oslo\\\"}\"}</tool_call>",
       "",
       "",
       {{"get_weather", "{\"city\": \"Oslo\"}", ""}}},
      {"Llama 3.x",
       "<|start_header_id|> \"parameters\"",
       "",
       "{\"name\": \"get_weather\", \"parameters\": " + kParis + "}",
       "",
       "",
       {{"get_weather", kParis, ""}}},
      {"Llama 3.x",
       "<|start_header_id|> \"parameters\"",
       "",
       "<|python_tag|>{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": " + kSum + "}}",
       "",
       "",
       {{"add", kSum, ""}}},
      {"Llama 3.x",
       "<|start_header_id|> \"parameters\"",
       "",
       "{\"type\": \"function\", \"function\": \"add\", \"parameters\": " + kSum + "}",
       "",
       "",
       {{"add", kSum, ""}}},
      {"Llama 3.x",
       "<|start_header_id|> \"parameters\"",
       "",
       "{\"name\": \"nobody\", \"age\": 3}",
       "{\"name\": \"nobody\", \"age\": 3}",
       "",
       {}},
      {"Mistral Nemo",
       "[TOOL_CALLS]",
       "",
       "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": " + kParis +
           ", \"id\": \"abcde1234\"}, {\"name\": \"add\", \"arguments\": " + kSum + ", \"id\": \"abcde1235\"}]",
       "",
       "",
       {{"get_weather", kParis, "abcde1234"}, {"add", kSum, "abcde1235"}}},
      {"Mistral Small",
       "[TOOL_CALLS] [CALL_ID] [ARGS]",
       "",
       "[TOOL_CALLS]get_weather[CALL_ID]abcde1234[ARGS]" + kParis + "[TOOL_CALLS]add[CALL_ID]abcde1235[ARGS]" + kSum,
       "",
       "",
       {{"get_weather", kParis, "abcde1234"}, {"add", kSum, "abcde1235"}}},
      {"Ministral",
       "[SYSTEM_PROMPT] [TOOL_CALLS] [ARGS] [THINK]",
       "",
       "[THINK]Hm.[/THINK]Ok.[TOOL_CALLS]get_weather[ARGS]" + kParis,
       "Ok.",
       "Hm.",
       {{"get_weather", kParis, ""}}},
      {"Kimi K2",
       "<|tool_calls_section_begin|> <|tool_call_begin|>",
       "",
       "Ok.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>" +
           kParis + "<|tool_call_end|><|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>" + kSum +
           "<|tool_call_end|><|tool_calls_section_end|>",
       "Ok.",
       "",
       {{"get_weather", kParis, "functions.get_weather:0"}, {"add", kSum, "functions.add:1"}}},
      {"Kimi K2",
       "<|tool_calls_section_begin|> <|tool_call_begin|>",
       "",
       "<think>Hm.</think><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
       "",
       "Hm.",
       {{"now", "{}", "functions.now:0"}}},
      {"Cohere2 MoE",
       "<|START_TEXT|> <|START_ACTION|>",
       "",
       "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": "
       "\"get_weather\", \"parameters\": " +
           kParis + "},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"add\", \"parameters\": " + kSum +
           "}\n]<|END_ACTION|>",
       "",
       "Hm.",
       {{"get_weather", kParis, "0"}, {"add", kSum, "1"}}},
      {"Cohere2 MoE",
       "<|START_TEXT|> <|START_ACTION|>",
       "<|START_THINKING|>",
       "Hm.<|END_THINKING|><|START_TEXT|>Answer.<|END_TEXT|>",
       "Answer.",
       "Hm.",
       {}},
      {"Command R7B",
       "<|START_RESPONSE|> <|START_ACTION|>",
       "",
       "<|START_RESPONSE|>Answer.<|END_RESPONSE|>",
       "Answer.",
       "",
       {}},
      {"Command R7B",
       "<|START_RESPONSE|> <|START_ACTION|>",
       "",
       "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"now\", \"parameters\": {}}]<|END_ACTION|>",
       "",
       "",
       {{"now", "{}", "0"}}},
      {"Command R+",
       "Action: \"tool_name\"",
       "",
       "Let me see.\nAction:\n```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        \"parameters\": " +
           kParis + "\n    }\n]```",
       "Let me see.",
       "",
       {{"get_weather", kParis, ""}}},
      {"GigaChat 3",
       "<|role_sep|> <|message_sep|>",
       "",
       "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"get_weather\", \"arguments\": " + kParis + "}",
       "",
       "",
       {{"get_weather", kParis, ""}}},
      {"DeepSeek R1",
       "<｜tool▁calls▁begin｜> ```json <think>",
       "<think>\n",
       "Hm.\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n" +
           kParis + "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n" + kSum +
           "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "",
       "Hm.",
       {{"get_weather", kParis, ""}, {"add", kSum, ""}}},
      {"DeepSeek V3.1",
       "<｜tool▁calls▁begin｜> <think>",
       "<think></think>",
       "Ok.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" + kParis +
           "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "Ok.",
       "",
       {{"get_weather", kParis, ""}}},
      {"Functionary v3.1",
       "<function=",
       "",
       "Ok. <function=get_weather>" + kParis + "</function><function=add>" + kSum + "</function>",
       "Ok.",
       "",
       {{"get_weather", kParis, ""}, {"add", kSum, ""}}},
      {"Functionary v3.2",
       ">>>all >>>${recipient}",
       ">>>",
       "all\nLet me see.>>>get_weather\n" + kParis + ">>>add\n" + kSum,
       "Let me see.",
       "",
       {{"get_weather", kParis, ""}, {"add", kSum, ""}}},
      {"Functionary v3.2",
       ">>>all >>>${recipient}",
       ">>>",
       "get_weather\n" + kParis,
       "",
       "",
       {{"get_weather", kParis, ""}}},
      {"FireFunction v2",
       " functools[",
       "",
       " functools[{\"name\": \"get_weather\", \"arguments\": " + kParis +
           "}, {\"name\": \"add\", \"arguments\": " + kSum + "}]",
       "",
       "",
       {{"get_weather", kParis, ""}, {"add", kSum, ""}}},
      {"Granite",
       "<|tool_call|> <think> <response>",
       "",
       "<think>Hm.</think><response>Answer.</response>",
       "Answer.",
       "Hm.",
       {}},
      {"Granite",
       "<|tool_call|> <think> <response>",
       "",
       "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": " + kParis + "}]",
       "",
       "",
       {{"get_weather", kParis, ""}}},
      {"Nemotron V2",
       "<TOOLCALL>",
       "",
       "<think>\nHm.</think><TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": " + kParis +
           "}, {\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>",
       "",
       "Hm.",
       {{"get_weather", kParis, ""}, {"now", "{}", ""}}},
      {"Apertus",
       "<|tools_prefix|>",
       "",
       "<|inner_prefix|>Hm.<|inner_suffix|>Ok.<|tools_prefix|>[{\"get_weather\": " + kParis + "}, {\"add\": " + kSum +
           "}]<|tools_suffix|>",
       "Ok.",
       "Hm.",
       {{"get_weather", kParis, ""}, {"add", kSum, ""}}},
      {"Apriel",
       "<tool_calls>[",
       "<|begin_assistant|>\nHere are my reasoning steps:\n",
       "One.\n[BEGIN FINAL RESPONSE]\nAnswer.",
       "Answer.",
       "Here are my reasoning steps:\nOne.",
       {}},
      {"Apriel",
       "<tool_calls>[",
       "",
       "<tool_calls>[{\"name\": \"get_weather\", \"arguments\": " + kParis + ", \"id\": \"c1\"}]</tool_calls>",
       "",
       "",
       {{"get_weather", kParis, "c1"}}},
      {"Solar Open",
       "<|tool_call:begin|>",
       "<|begin|>assistant",
       "<|think|>Hm.<|end|><|begin|>assistant<|content|>Ok.<|tool_calls|><|tool_call:begin|>ab12<|tool_call:name|>get_"
       "weather<|tool_call:args|>" +
           kParis + "<|tool_call:end|><|calls|>",
       "Ok.",
       "Hm.",
       {{"get_weather", kParis, "ab12"}}},
      {"Solar Open",
       "<|tool_call:begin|>",
       "<|begin|>assistant",
       "<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>ab12<|tool_call:name|>get_weather<|tool_"
       "call:args|>" +
           kParis + "<|tool_call:end|><|calls|>",
       "",
       "Hm.",
       {{"get_weather", kParis, "ab12"}}},
      {"Content-only",
       "{{ messages }}",
       "",
       "Hi <|x|> there <tool_call> {\"a\": 1}\n",
       "Hi <|x|> there <tool_call> {\"a\": 1}\n",
       "",
       {}},
      {"Content-only", "<think>", "<think>\n\n</think>\n\n", "Answer.", "Answer.", "", {}},
  };
}

std::vector<ReplySample> tagged_samples() {
  return {
      {"Qwen3 Coder",
       "<tool_call> <function= <parameter= <think>",
       "<think>\n",
       "Hm.\n</think>\n\n<tool_call>\n<function=run>\n<parameter=code>\nif a < "
       "\"b\":\n\tpass\n\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=add>\n<parameter=a>\n2\n</"
       "parameter>\n<parameter=b>\n3.5\n</parameter>\n<parameter=tags>\n[\"x\", "
       "\"y\"]\n</parameter>\n</function>\n</tool_call>",
       "",
       "Hm.",
       {{"run", "{\"code\":\"if a < \\\"b\\\":\\n\\tpass\\n\"}", ""}, {"add", kTagSum, ""}}},
      {"Qwen3 Coder",
       "<tool_call> <function= <parameter=",
       "",
       "Ok.\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
       "Ok.",
       "",
       {{"get_weather", kTagParis, ""}}},
      {"Qwen3 Coder",
       "<tool_call> <function= <parameter= <think>",
       "",
       "<think>\nHm.<tool_call>\n<function=now>\n</function>\n</tool_call>",
       "",
       "Hm.",
       {{"now", "{}", ""}}},
      {"MiniMax M2",
       "minimax:tool_call",
       "<think>\n",
       "Hm.\n</think>\n\nOk.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
       "name=\"city\">Paris</parameter>\n</invoke>\n<invoke name=\"add\">\n<parameter "
       "name=\"a\">2</parameter>\n<parameter name=\"b\">3.5</parameter>\n<parameter name=\"tags\">[\"x\", "
       "\"y\"]</parameter>\n</invoke>\n</minimax:tool_call>",
       "Ok.",
       "Hm.",
       {{"get_weather", kTagParis, ""}, {"add", kTagSum, ""}}},
      {"MiniMax M3",
       "]<]minimax[>[",
       "",
       "<mm:think>Hm.</mm:think>]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke "
       "name=\"add\">]<]minimax[>[<a>2]<]minimax[>[</a>]<]minimax[>[<b>3.5]<]minimax[>[</"
       "b>]<]minimax[>[<opts>]<]minimax[>[<round>true]<]minimax[>[</round>]<]minimax[>[</"
       "opts>]<]minimax[>[<tags>]<]minimax[>[<item>x]<]minimax[>[</item>]<]minimax[>[<item>y]<]minimax[>[</"
       "item>]<]minimax[>[</tags>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
       "",
       "Hm.",
       {{"add", "{\"a\":2,\"b\":3.5,\"opts\":{\"round\":true},\"tags\":[\"x\",\"y\"]}", ""}}},
      {"MiniMax M3",
       "]<]minimax[>[",
       "",
       "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke "
       "name=\"get_weather\">]<]minimax[>[<city>Paris]<]minimax[>[</city>]<]minimax[>[</invoke>\n]<]minimax[>[</"
       "tool_call>",
       "",
       "",
       {{"get_weather", kTagParis, ""}}},
      {"DeepSeek V3.2",
       "dsml_token DSML function_calls>",
       "<think>",
       "Hm.</think>Ok.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
       "name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
       "name=\"add\">\n<｜DSML｜parameter name=\"a\" string=\"false\">2</｜DSML｜parameter>\n<｜DSML｜parameter "
       "name=\"b\" string=\"false\">3.5</｜DSML｜parameter>\n<｜DSML｜parameter name=\"tags\" string=\"false\">[\"x\", "
       "\"y\"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       "Ok.",
       "Hm.",
       {{"get_weather", kTagParis, ""}, {"add", kTagSum, ""}}},
      {"DeepSeek V3.2",
       "dsml_token DSML tool_calls>",
       "",
       "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
       "",
       "",
       {{"now", "{}", ""}}},
      {"GLM 4.5",
       "<arg_key>",
       "",
       "\n<think>Hm.</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</"
       "arg_value>\n<arg_key>unit</arg_key>\n<arg_value>c</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
       "",
       "Hm.",
       {{"get_weather", "{\"city\":\"Paris\",\"unit\":\"c\"}", ""}, {"now", "{}", ""}}},
      {"GLM 4.5",
       "<arg_key>",
       "<|assistant|><think>",
       "Hm.</think>Ok.<tool_call>add<arg_key>a</arg_key><arg_value>2</arg_value><arg_key>b</arg_key><arg_value>3.5</"
       "arg_value><arg_key>tags</arg_key><arg_value>[\"x\", \"y\"]</arg_value></tool_call>",
       "Ok.",
       "Hm.",
       {{"add", kTagSum, ""}}},
      {"Hunyuan 3",
       "tool_calls:opensource",
       "",
       "<think:opensource>Hm.</"
       "think:opensource><tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n<arg_key:"
       "opensource>city</arg_key:opensource>\n<arg_value:opensource>Paris</arg_value:opensource>\n</"
       "tool_call:opensource>\n</tool_calls:opensource>",
       "",
       "Hm.",
       {{"get_weather", kTagParis, ""}}},
      {"Seed-OSS",
       "<seed:tool_call>",
       "",
       "<seed:think>Hm.</seed:think><seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n</"
       "function>\n</seed:tool_call>",
       "",
       "Hm.",
       {{"get_weather", kTagParis, ""}}},
      {"MiniCPM5",
       "Tool usage guidelines: <function name=\" <param name=\"",
       "<think>\n",
       "Hm.\n</think>\n\n<function name=\"get_weather\"><param name=\"city\">Paris</param></function><function "
       "name=\"now\"></function>",
       "",
       "Hm.",
       {{"get_weather", kTagParis, ""}, {"now", "{}", ""}}},
      {"Gemma 4",
       "'<|tool_call>call:'",
       "",
       "<|channel>thought\nHm.\n<channel|>Ok.<|tool_call>call:add{a:2,b:3.5,opts:{round:true},tags:[<|\"|>x<|\"|>,<|\"|"
       ">y\"<|\"|>]}<tool_call|><|tool_call>call:now{}<tool_call|>",
       "Ok.",
       "Hm.",
       {{"add", "{\"a\":2,\"b\":3.5,\"opts\":{\"round\":true},\"tags\":[\"x\",\"y\\\"\"]}", ""}, {"now", "{}", ""}}},
      {"LFM2",
       "<|tool_list_start|>",
       "",
       "Ok.<|tool_call_start|>[get_weather(city=\"Paris\", unit='c'), add(a=2, b=3.5, opts={'round': True}, tags=['x', "
       "\"it's\"])]<|tool_call_end|>",
       "Ok.",
       "",
       {{"get_weather", "{\"city\":\"Paris\",\"unit\":\"c\"}", ""},
        {"add", "{\"a\":2,\"b\":3.5,\"opts\":{\"round\":true},\"tags\":[\"x\",\"it's\"]}", ""}}},
      {"LFM2",
       "<|tool_list_start|>",
       "",
       "<|tool_call_start|>[get_weather(city=\"Paris\", unit=\"c\"), now()]<|tool_call_end|>",
       "",
       "",
       {{"get_weather", "{\"city\":\"Paris\",\"unit\":\"c\"}", ""}, {"now", "{}", ""}}},
      {"LFM2",
       "List of tools: [",
       "",
       "<think>Hm.</think><|tool_call_start|>[run(code='a\\n\\'b\\'\\x41\\d'), now()]<|tool_call_end|>",
       "",
       "Hm.",
       {{"run", "{\"code\":\"a\\n'b'\\u0041\\\\d\"}", ""}, {"now", "{}", ""}}},
  };
}

std::vector<ReplySample> harmony_samples() {
  const std::string source = "<|channel|>";
  const std::string start = "<|start|>assistant";
  return {
      {"GPT-OSS",
       source,
       start,
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Answer.",
       "Answer.",
       "Hm.",
       {}},
      {"GPT-OSS",
       source,
       start,
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>Let me "
       "see.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" +
           kParis + "<|call|>",
       "Let me see.",
       "Hm.",
       {{"get_weather", kParis, ""}}},
      {"GPT-OSS",
       source,
       start,
       " to=functions.get_weather<|channel|>commentary json<|message|>" + kParis,
       "",
       "",
       {{"get_weather", kParis, ""}}},
      {"GPT-OSS",
       source,
       start,
       "<|channel|>analysis to=functions.add code<|message|>" + kSum,
       "",
       "",
       {{"add", kSum, ""}}},
      {"GPT-OSS",
       source,
       start,
       "<|channel|>commentary<|channel|>commentary to=functions.now<|message|>{}",
       "",
       "",
       {{"now", "{}", ""}}},
      {"GPT-OSS", source, start, "<|channel|>commentary to=python code<|message|>print(1)<|call|>", "", "", {}},
      {"GPT-OSS", source, start, "<|channel|>final <|constrain|>json<|message|>{\"a\": 1}", "{\"a\": 1}", "", {}},
  };
}
}  // namespace

const std::vector<ReplySample>& reply_samples() {
  static const std::vector<ReplySample> all = [] {
    std::vector<ReplySample> samples = json_samples();
    for (auto&& more : {tagged_samples(), harmony_samples()}) samples.insert(samples.end(), more.begin(), more.end());
    return samples;
  }();
  return all;
}

std::shared_ptr<const ToolSet> sample_tools() {
  static const auto tools = std::make_shared<const ToolSet>(nlohmann::ordered_json::parse(R"json([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
        "city": {"type": "string"}, "unit": {"enum": ["c", "f"]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
        "a": {"type": "number"}, "b": {"type": "number"},
        "opts": {"type": "object", "properties": {"round": {"type": "boolean"}}},
        "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["a", "b"]}}},
    {"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {
        "code": {"type": "string"}}, "required": ["code"]}}},
    {"type": "function", "function": {"name": "now"}}])json"));
  return tools;
}

TestFormat format_of(const ReplySample& sample) {
  TestFormat out;
  out.format = find_reply_format(sample.source);
  out.tools = sample_tools();
  out.opening.text = sample.opening;
  return out;
}

}  // namespace common::chat
