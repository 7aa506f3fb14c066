#include "common/chat/reply_grammar.h"

#include <nlohmann/json.hpp>
#include <set>

#include "common/chat/formats/format.h"
#include "common/chat/messages.h"
#include "common/chat/reply_samples.h"
#include "common/chat/reply_test_support.h"
#include "common/grammar/grammar_test_support.h"
#include "ggml/error.h"

namespace common::chat {
namespace {

using grammar::testing::accepts;

ReplyDemand calls_required(const TestFormat& format) {
  ReplyDemand demand;
  demand.tools = format.tools.get();
  demand.choice = ToolChoice::required;
  demand.parallel = true;
  return demand;
}

/// The sample as it is where a call is required: without content, nor the space around it.
std::string with_calls_only(const ReplySample& sample, const TestFormat& format) {
  std::string text = opening_in_grammar(*format.format, format.opening) + sample.output;
  if (!sample.content.empty()) {
    const std::size_t at = text.find(sample.content);
    const std::size_t end = text.find_first_not_of(" \n", at + sample.content.size());
    text.erase(at, end - at);
  }
  return text.substr(text.find_first_not_of(" \n"));
}

TEST(ReplyGrammar, EveryFormatsGrammarAcceptsTheFormatsCalls) {
  std::set<std::string> accepted;
  for (const ReplySample& sample : reply_samples()) {
    const TestFormat format = format_of(sample);
    if (sample.calls.empty()) continue;
    SCOPED_TRACE(sample.format + ": " + sample.output);
    const auto grammar = reply_grammar(*format.format, calls_required(format));
    ASSERT_TRUE(grammar.has_value());
    EXPECT_FALSE(grammar->lazy);
    if (accepts(grammar->gbnf, with_calls_only(sample, format))) accepted.insert(sample.format);
    EXPECT_FALSE(accepts(grammar->gbnf, "No.")) << grammar->gbnf;
  }
  for (const ReplySample& sample : reply_samples()) {
    const TestFormat format = format_of(sample);
    if (format.format->has_calls()) {
      EXPECT_TRUE(accepted.count(sample.format)) << sample.format << "\n"
                                                 << reply_grammar(*format.format, calls_required(format))->gbnf;
    }
  }
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// Names as clients and bridges to other servers make them, and those that mean something in a format.
TEST(ReplyGrammar, EveryFormatCarriesEveryNameThatARequestMayGive) {
  const std::vector<std::string> names = {"files.read",
                                          "mcp:files/read",
                                          "mcp__files__read",
                                          "-x",
                                          "9",
                                          "\xE8\xAF\xBB\xE6\x96\x87\xE4\xBB\xB6",
                                          "functions.f",
                                          "function",
                                          "name",
                                          "arguments",
                                          "parameters",
                                          "assistant",
                                          "f:1",
                                          "f:",
                                          "!#$%&*+-./:;?@^_~",
                                          std::string(256, 'n')};
  using nlohmann::ordered_json;
  const auto tool = [](const std::string& name, const ordered_json& schema) {
    return ordered_json{{"type", "function"}, {"function", {{"name", name}, {"parameters", schema}}}};
  };
  std::set<std::string> seen;
  for (const ReplySample& sample : reply_samples()) {
    TestFormat format = format_of(sample);
    if (sample.calls.empty() || seen.count(sample.format) > 0) continue;
    const std::string& used = sample.calls[0].name;
    const std::string text = with_calls_only(sample, format);
    if (!accepts(reply_grammar(*format.format, calls_required(format))->gbnf, text)) continue;
    seen.insert(sample.format);
    ordered_json list = ordered_json::array();
    for (const std::string& name : names) list.push_back(tool(name, format.tools->find(used)->schema()));
    for (const Tool& other : format.tools->all()) list.push_back(tool(other.name(), other.schema()));
    check_tools(list);
    format.tools = std::make_shared<const ToolSet>(list);
    const std::string gbnf = reply_grammar(*format.format, calls_required(format))->gbnf;
    for (const std::string& name : names) {
      SCOPED_TRACE(sample.format + ": " + name);
      EXPECT_TRUE(accepts(gbnf, replaced(text, used, name)));
      const Reply reply = parse_in_pieces(format, {replaced(sample.output, used, name)});
      ASSERT_EQ(reply.calls.size(), sample.calls.size());
      EXPECT_EQ(reply.calls[0].name, name);
      EXPECT_EQ(reply.calls[0].arguments, sample.calls[0].arguments);
    }
  }
  const std::string_view plain = formats::k_plain.name;
#define CHAT_FORMAT(id) \
  EXPECT_EQ(seen.count(std::string(formats::k_##id.name)), formats::k_##id.name == plain ? 0U : 1U) << #id;
#include "common/chat/formats/formats.def"
#undef CHAT_FORMAT
}

TEST(ReplyGrammar, RefusesTheNameThatAFormatGivesToTheAnswer) {
  const ToolSet tools(nlohmann::ordered_json::parse(R"([{"type": "function", "function": {"name": "f"}},
      {"type": "function", "function": {"name": "all"}}])"));
  for (const ToolChoice choice : {ToolChoice::required, ToolChoice::automatic}) {
    ReplyDemand demand;
    demand.tools = &tools;
    demand.choice = choice;
    EXPECT_TRUE(reply_grammar(*find_reply_format("<tool_call>"), demand).has_value());
    try {
      (void)reply_grammar(*find_reply_format(">>>all >>>${recipient}"), demand);
      FAIL() << "a call of it would be read as an answer";
    } catch (const ggml::Error& error) {
      EXPECT_NE(error.message().find("tools[1].function.name': \"all\""), std::string::npos) << error.message();
    }
  }
}

TEST(ReplyGrammar, BindsArgumentsToTheSchemas) {
  TestFormat format;
  format.format = find_reply_format("<tool_call>");
  format.tools = sample_tools();
  const std::string gbnf = reply_grammar(*format.format, calls_required(format))->gbnf;
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
  };
  EXPECT_TRUE(accepts(gbnf, call("get_weather", "{\"city\": \"Paris\", \"unit\": \"c\"}")));
  EXPECT_TRUE(accepts(gbnf, call("add", "{\"a\": 1, \"b\": 2}") + "\n" + call("now", "{}")));
  EXPECT_FALSE(accepts(gbnf, call("get_weather", "{\"unit\": \"c\"}")));
  EXPECT_FALSE(accepts(gbnf, call("get_weather", "{\"city\": \"Paris\", \"unit\": \"k\"}")));
  EXPECT_FALSE(accepts(gbnf, call("nobody", "{}")));
  ReplyDemand one = calls_required(format);
  one.parallel = false;
  const std::string single = reply_grammar(*format.format, one)->gbnf;
  EXPECT_TRUE(accepts(single, call("now", "{}")));
  EXPECT_FALSE(accepts(single, call("now", "{}") + "\n" + call("now", "{}")));
}

TEST(ReplyGrammar, TakesRequiredParametersInAnyOrder) {
  TestFormat format;
  format.format = find_reply_format("<tool_call> <function= <parameter=");
  format.tools = sample_tools();
  const std::string gbnf = reply_grammar(*format.format, calls_required(format))->gbnf;
  const auto parameter = [](const std::string& key, const std::string& value) {
    return "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  };
  const auto call = [](const std::string& parameters) {
    return "<tool_call>\n<function=add>\n" + parameters + "</function>\n</tool_call>";
  };
  EXPECT_TRUE(accepts(gbnf, call(parameter("a", "1") + parameter("b", "2"))));
  EXPECT_TRUE(accepts(gbnf, call(parameter("b", "2") + parameter("tags", "[]") + parameter("a", "1"))));
  EXPECT_FALSE(accepts(gbnf, call(parameter("a", "1"))));
  EXPECT_FALSE(accepts(gbnf, call(parameter("a", "1") + parameter("b", "2") + parameter("a", "1"))));
  EXPECT_FALSE(accepts(gbnf, call(parameter("a", "x") + parameter("b", "2"))));
}

TEST(ReplyGrammar, StartsWithTheFirstCallUnlessOneIsRequired) {
  TestFormat format;
  format.format = find_reply_format("<tool_call> <think>");
  format.tools = sample_tools();
  ReplyDemand demand = calls_required(format);
  demand.choice = ToolChoice::automatic;
  EXPECT_TRUE(reply_grammar(*format.format, demand)->lazy);
  demand.choice = ToolChoice::none;
  EXPECT_FALSE(reply_grammar(*format.format, demand).has_value());
  demand.choice = ToolChoice::automatic;
  const auto bare = find_reply_format("<|start_header_id|> \"parameters\"");
  EXPECT_FALSE(reply_grammar(*bare, demand).has_value());
}

TEST(ReplyGrammar, LetsThoughtsStandBeforeAnAnswerInJson) {
  const auto schema = nlohmann::ordered_json::parse(R"({"type": "object", "properties": {"a": {"type": "integer"}},
      "required": ["a"]})");
  ReplyDemand demand;
  demand.schema = &schema;
  const auto hermes = find_reply_format("<tool_call> <think>");
  const std::string gbnf = reply_grammar(*hermes, demand)->gbnf;
  EXPECT_TRUE(accepts(gbnf, "<think>\nHm.\n</think>\n\n{\"a\": 1}"));
  EXPECT_TRUE(accepts(gbnf, "{\"a\": 1}"));
  EXPECT_FALSE(accepts(gbnf, "<think>Hm.</think>"));
  const auto harmony = find_reply_format("<|channel|>");
  EXPECT_TRUE(accepts(reply_grammar(*harmony, demand)->gbnf,
                      "<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|"
                      "message|>{\"a\": 1}"));
}

TEST(ReplyGrammar, FramesAGrammarOfTheClientAsTheFormatFramesAnswers) {
  const auto framed = [](const char* source, bool thinking) {
    const auto frame = answer_frame(*find_reply_format(source), thinking);
    constexpr const char* kOwn = "root ::= space said\nspace ::= \"a\"\nsaid ::= \"b\"*";
    return frame ? grammar::Grammar::parse_framed(kOwn, *frame) : grammar::Grammar::parse(kOwn);
  };
  const auto hermes = framed("<tool_call> <think>", true);
  EXPECT_TRUE(accepts(*hermes, "<think>Hm.</think>\n\nabb")) << "names of rules do not meet";
  EXPECT_TRUE(accepts(*hermes, "ab"));
  EXPECT_FALSE(accepts(*hermes, "<think>Hm.</think>b"));
  EXPECT_FALSE(accepts(*hermes, "<think>Hm.</think>"));
  EXPECT_FALSE(accepts(*framed("<tool_call> <think>", false), "<think>Hm.</think>ab"));
  EXPECT_TRUE(accepts(*framed("<tool_call> <think>", false), "ab"));
  EXPECT_TRUE(accepts(*framed("nothing known", true), "ab"));
  EXPECT_TRUE(accepts(*framed("<|channel|>", true),
                      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>ab"));
  EXPECT_FALSE(accepts(*framed("<|channel|>", false), "ab"));
}

// In tagged formats each parameter has a grammar of its own; together they may not grow with the square of the schema.
TEST(ReplyGrammar, ToolsWithManyParametersAreWrittenOrRefusedInTime) {
  using nlohmann::ordered_json;
  ordered_json big = {{"type", "object"}, {"properties", ordered_json::object()}};
  for (int i = 0; i < 500; ++i) big["properties"]["member" + std::to_string(i)] = {{"enum", {1, 2, 3}}};
  ordered_json parameters = {{"type", "object"}, {"properties", ordered_json::object()}, {"$defs", {{"big", big}}}};
  for (int i = 0; i < 2000; ++i) parameters["properties"]["p" + std::to_string(i)] = {{"$ref", "#/$defs/big"}};
  const auto tools_of = [](const ordered_json& schema) {
    return ToolSet(
        ordered_json::array({{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", schema}}}}}));
  };
  const auto format = find_reply_format("<tool_call> <function= <parameter=");
  const ToolSet large = tools_of(parameters);
  ReplyDemand demand;
  demand.tools = &large;
  demand.choice = ToolChoice::required;
  try {
    (void)reply_grammar(*format, demand);
    FAIL() << "2000 times 500 members do not fit in a grammar";
  } catch (const ggml::Error& error) {
    EXPECT_EQ(error.code(), ggml::ErrorCode::exceeds_limit);
    EXPECT_NE(error.message().find("its rules are longer than"), std::string::npos) << error.message();
  }
  parameters["$defs"]["big"] = {{"type", "integer"}};
  const ToolSet plain = tools_of(parameters);
  demand.tools = &plain;
  const std::string gbnf = reply_grammar(*format, demand)->gbnf;
  EXPECT_NE(gbnf.find("p1999"), std::string::npos);
  EXPECT_LT(gbnf.size(), 2'000'000u);
}

ToolSet tool_with_value(const char* schema) {
  nlohmann::ordered_json parameters = {{"type", "object"}, {"required", {"v"}}};
  parameters["properties"]["v"] = nlohmann::ordered_json::parse(schema);
  return ToolSet(nlohmann::ordered_json::array(
      {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", parameters}}}}}));
}

struct NotationCase {
  const char* schema;
  std::vector<const char*> right, wrong;
};

void check_notation(const char* source, const NotationCase& c, const std::string& before, const std::string& after) {
  SCOPED_TRACE(c.schema);
  const ToolSet tools = tool_with_value(c.schema);
  ReplyDemand demand;
  demand.tools = &tools;
  demand.choice = ToolChoice::required;
  const std::string gbnf = reply_grammar(*find_reply_format(source), demand)->gbnf;
  const auto reply = [&](const char* value) { return std::string(before).append(value).append(after); };
  for (const char* value : c.right) EXPECT_TRUE(accepts(gbnf, reply(value))) << value << "\n" << gbnf;
  for (const char* value : c.wrong) EXPECT_FALSE(accepts(gbnf, reply(value))) << value << "\n" << gbnf;
}

TEST(ReplyGrammar, BindsGemmasNotationToTheWholeSchema) {
  const NotationCase cases[] = {
      {R"({"type":"array"})", {"[]", R"([1,<|"|>x<|"|>,[true],{a:null}])"}, {"5", "{}", R"(<|"|>x<|"|>)"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2})", {"[1,2]"}, {"[]", "[1]", "[1,2,3]"}},
      {R"({"type":"array","items":{"const":1},"maxItems":1})", {"[]", "[1]"}, {"[1,1]", "[2]"}},
      {R"({"type":"array","prefixItems":[{"const":1},{"const":"z"}]})", {R"([1,<|"|>z<|"|>])"}, {"[1]", "[1,z]"}},
      {R"({"type":"array","items":{"enum":["x","y"]},"minItems":1})", {R"([<|"|>x<|"|>])"}, {"[]", R"([<|"|>z<|"|>])"}},
      {R"({"type":["integer","null"]})", {"5", "null"}, {"5.5", "{}", R"(<|"|>5<|"|>)"}},
      {R"({"type":["boolean","null"]})", {"true", "null"}, {"5"}},
      {R"({"type":"object","additionalProperties":{"type":"boolean"}})", {"{}", "{a:true,b:false}"}, {"1", "{a:1}"}},
      {R"({"type":"object","properties":{"a":{"const":1}},"additionalProperties":{"type":"null"}})",
       {"{a:1}", "{}", "{a:1,ab:null}", "{b:null}"},
       {"{a:null}", "{a:1,a:null}"}},
      {R"({"type":"object"})", {"{}", R"({a:{b:[<|"|>x<|"|>]}})"}, {"[]"}},
      {R"({"allOf":[{"type":"integer"},{"minimum":5,"maximum":5}]})", {"5"}, {"6"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"null"}]})", {"5", "null"}, {"true"}},
      {R"({"const":{"a":[1,"x"],"b c":null}})", {R"({a:[1,<|"|>x<|"|>],<|"|>b c<|"|>:null})"}, {"{a:[1]}"}},
      {R"({"type":"string","format":"date"})", {R"(<|"|>2026-11-30<|"|>)"}, {R"(<|"|>today<|"|>)"}},
      {R"({"type":"string"})", {R"(<|"|>a "b" {c}<|"|>)"}, {"a", R"("a")"}},
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"required":["b"]})",
       {"{b:2}", "{b:2,a:1}"},
       {"{a:1}", "{}"}}};
  for (const NotationCase& c : cases)
    check_notation("'<|tool_call>call:'", c, "<|tool_call>call:f{v:", "}<tool_call|>");
}

TEST(ReplyGrammar, BindsNestedTagsToTheWholeSchema) {
  const NotationCase cases[] = {
      {R"({"type":["integer","null"]})", {"5", "null"}, {"5.5", "x"}},
      {R"({"enum":[1,2]})", {"1"}, {"3", "x"}},
      {R"({"allOf":[{"type":"integer"},{"minimum":5,"maximum":5}]})", {"5"}, {"6"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":2})",
       {"]<]minimax[>[<item>1]<]minimax[>[</item>"},
       {"", "1", "]<]minimax[>[<item>x]<]minimax[>[</item>"}},
      {R"({"type":"object","properties":{"a":{"type":"array","items":{"enum":["x"]}}},"required":["a"]})",
       {"]<]minimax[>[<a>]<]minimax[>[<item>x]<]minimax[>[</item>]<]minimax[>[</a>"},
       {"", "x"}}};
  for (const NotationCase& c : cases)
    check_notation("]<]minimax[>[", c, "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<v>",
                   "]<]minimax[>[</v>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>");
}

TEST(ReplyGrammar, NamesTheToolWhoseSchemaIsWrong) {
  const ToolSet tools(nlohmann::ordered_json::parse(R"([{"type": "function", "function": {"name": "f"}},
      {"type": "function", "function": {"name": "g", "parameters": {"type": "object",
          "properties": {"x": {"$ref": "#/nowhere"}}}}}])"));
  for (const char* source : {"<tool_call>", "<tool_call> <function= <parameter=", "'<|tool_call>call:'"}) {
    ReplyDemand demand;
    demand.tools = &tools;
    try {
      (void)reply_grammar(*find_reply_format(source), demand);
      FAIL() << source;
    } catch (const ggml::Error& error) {
      EXPECT_NE(error.message().find("tools[1].function.parameters"), std::string::npos) << error.message();
    }
  }
}

}  // namespace
}  // namespace common::chat
