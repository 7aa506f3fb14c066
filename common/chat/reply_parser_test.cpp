#include "common/chat/reply_parser.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "common/chat/formats/format.h"
#include "common/chat/reply_samples.h"
#include "common/chat/reply_test_support.h"

namespace common::chat {
namespace {

TEST(ReplyParser, ReadsEveryFormat) {
  std::set<std::string> seen;
  for (const ReplySample& sample : reply_samples()) {
    SCOPED_TRACE(sample.format + ": " + sample.output);
    const TestFormat format = format_of(sample);
    ASSERT_EQ(format.format->name, sample.format);
    seen.insert(sample.format);
    const Reply reply = parse_in_pieces(format, {sample.output});
    EXPECT_EQ(reply.content, sample.content);
    EXPECT_EQ(reply.reasoning, sample.reasoning);
    ASSERT_EQ(reply.calls.size(), sample.calls.size());
    for (std::size_t i = 0; i < reply.calls.size(); ++i) {
      EXPECT_EQ(reply.calls[i].name, sample.calls[i].name);
      EXPECT_EQ(reply.calls[i].arguments, sample.calls[i].arguments);
      EXPECT_TRUE(nlohmann::json::accept(reply.calls[i].arguments));
      if (sample.calls[i].id.empty()) {
        EXPECT_EQ(reply.calls[i].id.size(), 32U);
      } else {
        EXPECT_EQ(reply.calls[i].id, sample.calls[i].id);
      }
    }
  }
#define CHAT_FORMAT(id) EXPECT_TRUE(seen.count(std::string(formats::k_##id.name))) << "no sample of " #id;
#include "common/chat/formats/formats.def"
#undef CHAT_FORMAT
}

// Cut off by the limit of tokens, a forced call is a call that has not begun.
TEST(ReplyParser, SaysNothingOfAMarkThatIsCutWhereOnlyCallsMayStand) {
  for (const ReplySample& sample : reply_samples()) {
    if (sample.calls.empty() || !sample.content.empty()) continue;
    SCOPED_TRACE(sample.format + ": " + sample.output);
    const TestFormat format = format_of(sample);
    for (std::size_t n = 0; n <= sample.output.size(); ++n) {
      ReplyReading reading{format.format, format.tools, {}, format.opening};
      reading.options.only_calls = true;
      ReplyParser parser(reading);
      (void)parser.push(sample.output.substr(0, n));
      (void)parser.finish();
      ASSERT_EQ(parser.reply().content, "") << sample.output.substr(0, n);
    }
  }
}

TEST(ReplyParser, GivesTheSameReplyWhereverTheTextIsCut) {
  for (const ReplySample& sample : reply_samples()) {
    SCOPED_TRACE(sample.format + ": " + sample.output);
    expect_same_wherever_cut(format_of(sample), sample.output);
  }
}

/// A sample with pieces taken out, doubled or put elsewhere.
std::string damaged(const std::string& text, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % std::max<std::size_t>(n, 1); };
  std::string out = text;
  const std::size_t n_changes = 1 + below(3);
  for (std::size_t i = 0; i < n_changes && !out.empty(); ++i) {
    const std::size_t at = below(out.size());
    const std::size_t size = 1 + below(12);
    switch (below(5)) {
      case 0:
        out.erase(at, size);
        break;
      case 1:
        out.insert(at, out.substr(below(out.size()), size));
        break;
      case 2:
        out.resize(at);
        break;
      case 3:
        out[at] = static_cast<char>(random());
        break;
      default:
        out.insert(at, std::string(size, " \n{}\"<"[below(6)]));
    }
  }
  return out;
}

TEST(ReplyParser, TakesDamagedOutputWithoutComplaintAndTheSameWhereverCut) {
  std::mt19937 random(20261129);
  for (const ReplySample& sample : reply_samples()) {
    const TestFormat format = format_of(sample);
    for (int round = 0; round < 60; ++round) {
      const std::string text = damaged(sample.output, random);
      SCOPED_TRACE(sample.format + ": " + text);
      const Reply whole = parse_in_pieces(format, {text});
      std::vector<std::string> pieces;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t size = 1 + random() % 9;
        pieces.push_back(text.substr(at, size));
        at += size;
      }
      expect_equal(parse_in_pieces(format, pieces), whole);
      if (HasFailure()) return;
    }
  }
}

TEST(ReplyParser, TakesAnyBytes) {
  std::mt19937 random(7);
  for (const ReplySample& sample : reply_samples()) {
    std::string text;
    for (int i = 0; i < 2000; ++i) text += static_cast<char>(random());
    const Reply reply = parse_in_pieces(format_of(sample), {text});
    EXPECT_LE(reply.content.size(), text.size() + sample.opening.size());
  }
}

TestFormat hermes() {
  TestFormat format;
  format.format = find_reply_format("<tool_call> <think>");
  format.tools = sample_tools();
  return format;
}

TEST(ReplyParser, LeavesWhatIsNoCallInTheContent) {
  for (const std::string text : {"Use <tool_call> tags.", "<tool_call>\n{\"name\": 3}\n</tool_call>", "a <tool_c",
                                 "<tool_call>\n{\"name\": \"get_wea", "<tool_call>[1]</tool_call> <think>x</think>"}) {
    SCOPED_TRACE(text);
    const Reply reply = parse_in_pieces(hermes(), {text});
    EXPECT_EQ(reply.content, text);
    EXPECT_TRUE(reply.calls.empty());
  }
}

TEST(ReplyParser, KeepsTheCallsBeforeAnError) {
  const Reply reply = parse_in_pieces(
      hermes(), {"<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call><tool_call>oops</tool_call>"});
  ASSERT_EQ(reply.calls.size(), 1U);
  EXPECT_EQ(reply.content, "<tool_call>oops</tool_call>");
}

TEST(ReplyParser, KeepsACallThatWasCutOff) {
  const Reply reply =
      parse_in_pieces(hermes(), {"<tool_call>\n{\"name\": \"run\", \"arguments\": {\"code\": \"print("});
  ASSERT_EQ(reply.calls.size(), 1U);
  EXPECT_EQ(reply.calls[0].arguments, "{\"code\": \"print(");
  EXPECT_EQ(reply.content, "");
}

TEST(ReplyParser, NamesACallOnlyWhenItsArgumentsBegin) {
  const TestFormat f = hermes();
  ReplyParser parser(f);
  EXPECT_TRUE(parser.push("<tool_call>\n{\"name\": \"now\", \"arg").empty());
  const auto deltas = parser.push("uments\": {");
  ASSERT_EQ(deltas.size(), 1U);
  EXPECT_EQ(deltas[0].kind, ReplyDelta::Kind::call_begin);
  EXPECT_EQ(deltas[0].name, "now");
  EXPECT_EQ(deltas[0].text, "{");
  const auto more = parser.push("}");
  ASSERT_EQ(more.size(), 1U);
  EXPECT_EQ(more[0].kind, ReplyDelta::Kind::call_arguments);
}

/// What a format makes of a call that goes wrong when it has been said in part.
struct BrokenCall {
  const char* source;  // of the template
  const char* output;
  const char* arguments;
  const char* content;
};

TEST(ReplyParser, GivesBackAllThatAFailedCallHadNotSaidWhereverTheTextIsCut) {
  const BrokenCall broken[] = {
      // The tab is read as white space before the call turns out to be none.
      {"'<|tool_call>call:'", "<|tool_call>call:add{a:0,tags:[x]\t<tool_call|>Ok.", R"({"a":0,"tags":["x"])",
       "\t<tool_call|>Ok."},
      {"'<|tool_call>call:'", "<|tool_call>call:add{a:0,b:[1,2}Ok.", R"({"a":0,"b":[1,2)", "}Ok."},
      {"<tool_call> <think>", "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1]} Ok.", R"({"a": 1)", "]} Ok."},
      {"<tool_call> <function= <parameter=",
       "<tool_call>\n<function=run>\n<parameter=code>\nx\n</parameter> \n <oops> Ok.", R"({"code":"x"})", "<oops> Ok."},
      {"<|tool_list_start|>", "<|tool_call_start|>[add(a=1, b  !) Ok.", R"({"a":1)", ", b  !) Ok."},
  };
  for (const BrokenCall& one : broken) {
    SCOPED_TRACE(one.output);
    TestFormat format;
    format.format = find_reply_format(one.source);
    format.tools = sample_tools();
    const Reply reply = parse_in_pieces(format, {one.output});
    ASSERT_EQ(reply.calls.size(), 1U);
    EXPECT_EQ(reply.calls[0].arguments, one.arguments);
    EXPECT_EQ(reply.content, one.content);
    expect_same_wherever_cut(format, one.output);
  }
}

TEST(ReplyParser, AByteThatBeginsNoCharacterHidesNoCall) {
  // The byte after a failed part's output says that three more belong to it; they do not.
  const std::string text = "<|tool_call>call:add{a:[1]\xF0<|tool_call>call:now{}<tool_call|>";
  TestFormat format;
  format.format = find_reply_format("'<|tool_call>call:'");
  format.tools = sample_tools();
  const Reply reply = parse_in_pieces(format, {text});
  EXPECT_EQ(reply.content, "\xF0");
  ASSERT_EQ(reply.calls.size(), 2U);
  EXPECT_EQ(reply.calls[1].name, "now");
  expect_same_wherever_cut(format, text);
}

TEST(ReplyParser, WithoutToolsEverythingIsContent) {
  TestFormat format = hermes();
  format.tools = std::make_shared<const ToolSet>();
  const std::string text = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(parse_in_pieces(format, {text}).content, text);
  format.tools = sample_tools();
  format.options.calls = false;
  EXPECT_EQ(parse_in_pieces(format, {text}).content, text);
}

TEST(ReplyParser, LeavesReasoningInTheContentWhenAskedTo) {
  TestFormat format = hermes();
  format.options.reasoning = false;
  const std::string text = "<think>\nHm. <tool_call>\n</think>\n\nAnswer.";
  EXPECT_EQ(parse_in_pieces(format, {text}).content, text);
  expect_same_wherever_cut(format, text);
  format.opening.text = "<|im_start|>assistant\n<think>\n";
  const Reply opened = parse_in_pieces(format, {"Hm.\n</think>\n\nAnswer."});
  EXPECT_EQ(opened.content, "<think>Hm.\n</think>\n\nAnswer.");
  EXPECT_EQ(opened.reasoning, "");
}

TEST(ReplyParser, IgnoresCallsInsideReasoning) {
  const Reply reply =
      parse_in_pieces(hermes(), {"<think>I could <tool_call>{\"name\": \"now\"}</tool_call></think>No."});
  EXPECT_TRUE(reply.calls.empty());
  EXPECT_EQ(reply.content, "No.");
}

TEST(ReplyParser, DoesNotRepeatWhatAContinuedMessageHolds) {
  TestFormat format = hermes();
  format.opening = {"<|im_start|>assistant\n<think>\nHm.\n</think>\n\nThe answer ", true};
  const Reply content = parse_in_pieces(format, {"is <think> 4."});
  EXPECT_EQ(content.content, "is <think> 4.");
  EXPECT_EQ(content.reasoning, "");
  format.opening = {"<|im_start|>assistant\n<think>\nHm, so ", true};
  const Reply reasoning = parse_in_pieces(format, {"what?\n</think>\n\n4."});
  EXPECT_EQ(reasoning.reasoning, "what?");
  EXPECT_EQ(reasoning.content, "4.");
  format.opening = {"<|im_start|>assistant\nThe answer ", true};
  EXPECT_EQ(parse_in_pieces(format, {"is 4."}).content, "is 4.");
}

TEST(ReplyParser, EscapesLineBreaksThatModelsForgetToEscape) {
  const Reply reply =
      parse_in_pieces(hermes(), {"<tool_call>{\"name\": \"run\", \"arguments\": {\"code\": \"a\nb\"}}</tool_call>"});
  ASSERT_EQ(reply.calls.size(), 1U);
  EXPECT_EQ(reply.calls[0].arguments, "{\"code\": \"a\\nb\"}");
}

TEST(ReplyParser, LongOutputTakesLinearTime) {
  const TestFormat f = hermes();
  ReplyParser parser(f);
  std::string content;
  for (int i = 0; i < 200000; ++i)
    for (const ReplyDelta& delta : parser.push(i % 3 == 0 ? "<" : i % 3 == 1 ? "\n \n" : "tool")) content += delta.text;
  for (const ReplyDelta& delta : parser.finish()) content += delta.text;
  EXPECT_EQ(content.size(), 66667U + 3U * 66667U + 4U * 66666U);
}

TEST(ReplyParser, TextThatMayYetBecomeAMarkDoesNotGrowWithoutEnd) {
  // White space inside a header is looked over; a megabyte of it is no header's.
  TestFormat harmony;
  harmony.format = find_reply_format("<|channel|>");
  harmony.tools = sample_tools();
  const std::string text = "<|channel|>commentary" + std::string(1 << 20, ' ') + "to=functions.now<|message|>{}";
  ReplyParser parser(harmony);
  std::string content;
  for (std::size_t at = 0; at < text.size(); at += 8)
    for (const ReplyDelta& delta : parser.push(text.substr(at, 8))) content += delta.text;
  for (const ReplyDelta& delta : parser.finish()) content += delta.text;
  EXPECT_EQ(content, text);
}

TEST(ToolSet, KnowsWhichParametersAreStrings) {
  const auto tools =
      nlohmann::ordered_json::parse(R"json([{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "$defs": {"s": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}},
    "properties": {"a": {"type": ["null", "string"]}, "b": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/s"}]},
                   "c": {"enum": [1, 2]}, "d": {"const": "x"}, "e": {}, "f": {"$ref": "#/$defs/loop"},
                   "g": {"oneOf": [{"type": "object"}, {"type": "null"}]}, "h": {"$ref": "#/nowhere"},
                   "i": {"items": {}}}}}}])json");
  const ToolSet set(tools);
  const Tool& tool = set.all().front();
  for (const char* key : {"a", "b", "d"}) EXPECT_EQ(tool.parameter_kind(key), ValueKind::text) << key;
  for (const char* key : {"c", "g", "i"}) EXPECT_EQ(tool.parameter_kind(key), ValueKind::json) << key;
  for (const char* key : {"e", "f", "h", "unknown"}) EXPECT_EQ(tool.parameter_kind(key), ValueKind::either) << key;
}

}  // namespace
}  // namespace common::chat
