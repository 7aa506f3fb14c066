// Arguments at the edges of what formats can write: values that must be read by their schema, names that do not fit,
// and what schemas forbid or demand.
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "common/chat/formats/format.h"
#include "common/chat/reply_grammar.h"
#include "common/chat/reply_samples.h"
#include "common/chat/reply_test_support.h"
#include "common/grammar/grammar_test_support.h"
#include "ggml/error.h"

namespace common::chat {
namespace {

using grammar::testing::accepts;
using nlohmann::ordered_json;

const std::string kMark = "]<]minimax[>[";

TestFormat format_with(const char* source, const ordered_json& parameters) {
  TestFormat format;
  format.format = find_reply_format(source);
  format.tools = std::make_shared<const ToolSet>(
      ordered_json::array({{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", parameters}}}}}));
  return format;
}

std::string required_grammar(const TestFormat& format) {
  ReplyDemand demand;
  demand.tools = format.tools.get();
  demand.choice = ToolChoice::required;
  return reply_grammar(*format.format, demand)->gbnf;
}

std::string tag(const std::string& key, const std::string& value) {
  return kMark + "<" + key + ">" + value + kMark + "</" + key + ">";
}

std::string minimax_call(const std::string& parameters) {
  return kMark + "<tool_call>\n" + kMark + "<invoke name=\"f\">" + parameters + kMark + "</invoke>\n" + kMark +
         "</tool_call>";
}

struct TagCase {
  const char* schema;  // of the parameter v
  std::string value;   // as the model writes it
  const char* json;    // what it means
};

// What the grammar lets through is what the schema means, wherever the stream is cut.
TEST(ToolValues, NestedTagsAreReadAsTheirSchemaSays) {
  const TagCase cases[] = {
      {R"({"type":"object"})", "", "{}"},
      {R"({"type":"array","items":{"type":"integer"}})", "", "[]"},
      {R"({"type":"object","properties":{"a":{"type":"array","items":{}},"b":{"type":"object","properties":{"c":{}}}}})",
       tag("a", "") + tag("b", ""), R"({"a":[],"b":{}})"},
      {R"({"type":"array","items":{"type":"array","items":{"type":"string"}}})",
       tag("item", "") + tag("item", tag("item", "")), R"([[],[""]])"},
      // Names that the parameter and the members share.
      {R"({"type":"object","properties":{"v":{"type":"object","properties":{"v":{"type":"integer"}}},"w":{"type":"string"}}})",
       tag("v", tag("v", "5")) + tag("w", "x"), R"({"v":{"v":5},"w":"x"})"},
      {R"({"type":"array","items":{"type":"object","properties":{"v":{"type":"string"}}}})",
       tag("item", tag("v", "a")) + tag("item", tag("v", "b")), R"([{"v":"a"},{"v":"b"}])"},
      {R"({"type":"object","properties":{"item":{"type":"integer"}}})", tag("item", "1"), R"({"item":1})"},
      // Texts that look like something else.
      {R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"},"c":{"type":"string"}}})",
       tag("a", "5") + tag("b", "{\"x\":1}") + tag("c", " true "), R"({"a":"5","b":"{\"x\":1}","c":" true "})"},
      {R"({"type":"array","items":{"type":["string","null"]}})", tag("item", "null") + tag("item", "no"),
       R"([null,"no"])"},
      {R"({"anyOf":[{"type":"string"},{"type":"object","properties":{"v":{"type":"null"}}}]})", tag("v", "null"),
       R"({"v":null})"},
      {R"({"anyOf":[{"type":"string"},{"type":"object","properties":{"v":{"type":"null"}}}]})", "no tags",
       R"("no tags")"},
      {R"({"enum":["x","5",null,7]})", "5", R"("5")"},
      {R"({"enum":["x","5",null,7]})", "7", "7"},
      {R"({"type":"array","items":{"enum":["5",null,7]}})", tag("item", "5") + tag("item", "null") + tag("item", "7"),
       R"(["5",null,7])"},
      // Numbers that no double holds.
      {R"({"type":"number"})", "1e999", "1e999"},
      {R"({"type":"integer","minimum":0})", "9007199254740993", "9007199254740993"},
      {R"({"type":"object","properties":{"n":{"type":"number"}}})", tag("n", "-123456789012345e4000"),
       R"({"n":-123456789012345e4000})"},
      // Odd names.
      {R"({"type":"object","properties":{"a b":{"type":"null"},"é\"\\":{"type":"null"},"<":{"type":"null"},"":{"type":"null"}}})",
       tag("a b", "null") + tag("é\"\\", "null") + tag("<", "null") + tag("", "null"),
       R"({"a b":null,"é\"\\":null,"<":null,"":null})"},
  };
  for (const TagCase& c : cases) {
    SCOPED_TRACE(std::string(c.schema) + "\n" + c.value);
    ordered_json parameters = {{"type", "object"}, {"required", {"v"}}};
    parameters["properties"]["v"] = ordered_json::parse(c.schema);
    const TestFormat format = format_with(kMark.c_str(), parameters);
    const std::string text = minimax_call(tag("v", c.value));
    EXPECT_TRUE(accepts(required_grammar(format), text));
    const Reply reply = parse_in_pieces(format, {text});
    ASSERT_EQ(reply.calls.size(), 1U) << reply.content;
    EXPECT_EQ(reply.calls[0].arguments, std::string("{\"v\":") + c.json + "}");
    EXPECT_EQ(reply.content, "");
    expect_same_wherever_cut(format, text);
  }
}

TEST(ToolValues, TagsWithoutASchemaAreReadByTheirShape) {
  const TestFormat format = format_with(kMark.c_str(), ordered_json::object());
  const std::string text = minimax_call(tag("v", tag("v", tag("item", "1") + tag("item", "x")) + tag("w", "")));
  const Reply reply = parse_in_pieces(format, {text});
  ASSERT_EQ(reply.calls.size(), 1U);
  EXPECT_EQ(reply.calls[0].arguments, R"({"v":{"v":[1,"x"],"w":""}})");
}

TEST(ToolValues, NumbersOfAnySizeStayAsTheyWereWritten) {
  const ordered_json parameters = ordered_json::parse(R"({"type":"object","properties":{"n":{"type":"number"},
      "l":{"type":"array","items":{"type":"number"}}},"required":["n","l"]})");
  const std::pair<const char*, std::string> cases[] = {
      {"<tool_call> <function= <parameter=",
       "<tool_call>\n<function=f>\n<parameter=n>\n1e999\n</parameter>\n<parameter=l>\n[-1e999]\n</parameter>\n</"
       "function>\n</tool_call>"},
      {"<arg_key>",
       "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>1e999</arg_value>\n<arg_key>l</arg_key>\n<arg_value>[-1e999]</"
       "arg_value>\n</tool_call>"},
      {"<|tool_list_start|>", "<|tool_call_start|>[f(n=1e999, l=[-1e999])]<|tool_call_end|>"},
      {"'<|tool_call>call:'", "<|tool_call>call:f{n:1e999,l:[-1e999]}<tool_call|>"}};
  for (const auto& [source, text] : cases) {
    const TestFormat format = format_with(source, parameters);
    EXPECT_TRUE(accepts(required_grammar(format), text)) << text;
    const Reply reply = parse_in_pieces(format, {text});
    ASSERT_EQ(reply.calls.size(), 1U) << text;
    EXPECT_EQ(reply.calls[0].arguments, R"({"n":1e999,"l":[-1e999]})");
  }
}

// Strings stand raw between tags, but which of the listed values stands there is known.
TEST(ToolValues, ListedValuesOfSeveralTypesKeepTheirTypes) {
  const ordered_json parameters = ordered_json::parse(R"({"type":"object","properties":{
      "a":{"type":["string","null"],"enum":["x","5",null,7]},
      "b":{"anyOf":[{"type":"string","enum":["x","y"]},{"type":"null"}]}},"required":["a","b"]})");
  const auto call = [](const std::string& a, const std::string& b) {
    return "<tool_call>\n<function=f>\n<parameter=a>\n" + a + "\n</parameter>\n<parameter=b>\n" + b +
           "\n</parameter>\n</function>\n</tool_call>";
  };
  const TestFormat format = format_with("<tool_call> <function= <parameter=", parameters);
  const std::string gbnf = required_grammar(format);
  EXPECT_FALSE(accepts(gbnf, call("z", "x")));
  EXPECT_FALSE(accepts(gbnf, call("x", "z")));
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"null", "null", R"({"a":null,"b":null})"}, {"5", "y", R"({"a":"5","b":"y"})"}, {"7", "x", R"({"a":7,"b":"x"})"}};
  for (const auto& [a, b, json] : cases) {
    EXPECT_TRUE(accepts(gbnf, call(a, b)));
    const Reply reply = parse_in_pieces(format, {call(a, b)});
    ASSERT_EQ(reply.calls.size(), 1U);
    EXPECT_EQ(reply.calls[0].arguments, json);
    expect_same_wherever_cut(format, call(a, b));
  }
}

/// One source per format that has calls.
std::vector<const char*> sources() {
  std::vector<const char*> out;
  std::set<std::string> seen;
  for (const ReplySample& sample : reply_samples())
    if (format_of(sample).format->has_calls() && seen.insert(sample.format).second)
      out.push_back(sample.source.c_str());
  return out;
}

std::string error_of_grammar(const char* source, const ordered_json& parameters) {
  try {
    const TestFormat format = format_with(source, parameters);
    (void)grammar::Grammar::parse(required_grammar(format));
  } catch (const ggml::Error& error) {
    return error.message();
  }
  return {};
}

TEST(ToolValues, EveryFormatHoldsSchemasThatReferToThemselves) {
  const ordered_json parameters = ordered_json::parse(R"({"type":"object","properties":{"tree":{"$ref":"#/$defs/node"}},
      "required":["tree"],"$defs":{"node":{"type":"object","properties":{"name":{"type":"string"},
      "kids":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["name"]}}})");
  const ordered_json whole = ordered_json::parse(R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object",
      "properties":{"name":{"type":"string"},"kid":{"$ref":"#/$defs/node"}},"required":["name"]}}})");
  const ordered_json through =
      ordered_json::parse(R"({"type":"object","properties":{"left":{"type":"object","properties":{
      "left":{"$ref":"#/properties/left"}}}}})");
  for (const char* source : sources())
    for (const ordered_json& schema : {parameters, whole, through})
      EXPECT_EQ(error_of_grammar(source, schema), "") << source << "\n" << schema.dump();
}

TEST(ToolValues, EveryFormatLeavesOutWhatIsNeverAllowedAndDemandsWhatIsRequired) {
  const ordered_json never = ordered_json::parse(R"({"type":"object","properties":{"a":{"type":"integer"},"b":false,
      "c":{"$ref":"#/$defs/n"}},"required":["a"],"$defs":{"n":{"anyOf":[false]}}})");
  const ordered_json impossible =
      ordered_json::parse(R"({"type":"object","properties":{"zz":false},"required":["zz"]})");
  const ordered_json unlisted = ordered_json::parse(R"({"type":"object","properties":{},"required":["zz"]})");
  for (const char* source : sources()) {
    SCOPED_TRACE(source);
    const TestFormat format = format_with(source, never);
    const std::string gbnf = required_grammar(format);
    ASSERT_EQ(format.tools->all().front().parameters().size(), 1U);
    EXPECT_EQ(error_of_grammar(source, never), "");
    EXPECT_NE(error_of_grammar(source, impossible)
                  .find("tools[0].function.parameters' (f): json_schema: "
                        "#/properties/zz: the schema false allows no value"),
              std::string::npos)
        << error_of_grammar(source, impossible);
    EXPECT_EQ(error_of_grammar(source, unlisted), "");
    EXPECT_NE(required_grammar(format_with(source, unlisted)).find("zz"), std::string::npos);
  }
}

TEST(ToolValues, NamesThatAFormatCannotWriteAreLeftOutOrRefused) {
  const std::pair<const char*, const char*> cases[] = {{"<tool_call> <function= <parameter=", "a>b"},
                                                       {"<arg_key>", "a</arg_key>b"},
                                                       {"<minimax:tool_call>", "a\"b"},
                                                       {"dsml_token DSML", "a\"b"},
                                                       {"]<]minimax[>[", "a>b"},
                                                       {"]<]minimax[>[", "/a"},
                                                       {"<|tool_list_start|>", "a b"}};
  for (const auto& [source, name] : cases) {
    SCOPED_TRACE(std::string(source) + ": " + name);
    ordered_json parameters = {{"type", "object"}, {"properties", {{"x", {{"type", "integer"}}}}}, {"required", {"x"}}};
    parameters["properties"][name] = {{"type", "integer"}};
    EXPECT_EQ(error_of_grammar(source, parameters), "");
    parameters["required"] = {"x", name};
    EXPECT_NE(error_of_grammar(source, parameters).find("its name cannot be written in this model's format of calls"),
              std::string::npos)
        << error_of_grammar(source, parameters);
  }
  // Members of nested tags.
  const ordered_json nested = ordered_json::parse(
      R"({"type":"object","properties":{"v":{"type":"object","properties":{"a>b":{},"c":{"type":"null"}}}}})");
  EXPECT_EQ(error_of_grammar("]<]minimax[>[", nested), "");
}

}  // namespace
}  // namespace common::chat
