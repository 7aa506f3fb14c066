// The outputs of real models' formats in the shared data: what each must mean, wherever it is cut.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/chat/chat_templates.h"
#include "common/chat/reply_parser.h"
#include "common/chat/reply_test_support.h"
#include "test_support.h"

namespace common::chat {
namespace {

using nlohmann::ordered_json;

std::filesystem::path folder() {
  return tandem::shared_dir().value_or(std::filesystem::path()) / "data" / "chat-templates";
}

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class ReplyGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(folder() / "parse.json")) GTEST_SKIP() << "no shared data";
    cases_ = ordered_json::parse(read(folder() / "parse.json"))["cases"];
  }
  ordered_json cases_;
};

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \n\r\t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \n\r\t") - begin + 1);
}

void expect_reply(const Reply& reply, const ordered_json& expected) {
  EXPECT_EQ(trimmed(reply.content), trimmed(expected.value("content", "")));
  EXPECT_EQ(trimmed(reply.reasoning), trimmed(expected.value("reasoning_content", "")));
  const ordered_json calls = expected.value("tool_calls", ordered_json::array());
  ASSERT_EQ(reply.calls.size(), calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(reply.calls[i].name, calls[i]["name"]);
    EXPECT_EQ(reply.calls[i].arguments, calls[i]["arguments"]);
    if (calls[i].contains("id")) {
      EXPECT_EQ(reply.calls[i].id, calls[i]["id"]);
    }
    EXPECT_FALSE(reply.calls[i].id.empty());
  }
}

TestFormat format_of(const ordered_json& test) {
  TestFormat out;
  out.format = find_reply_format(read(folder() / test["template"].get<std::string>()));
  out.tools = std::make_shared<const ToolSet>(test["tools"]);
  out.opening.text = test["generation_prompt"];
  return out;
}

TEST_F(ReplyGolden, EveryOutputMeansWhatItShould) {
  for (const auto& test : cases_) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const TestFormat format = format_of(test);
    const std::string output = test["output"];
    expect_reply(parse_in_pieces(format, {output}), test["expected"]);
  }
  EXPECT_EQ(cases_.size(), 60U);
}

TEST_F(ReplyGolden, ACutAnywhereChangesNothing) {
  for (const auto& test : cases_) {
    SCOPED_TRACE(test["name"].get<std::string>());
    expect_same_wherever_cut(format_of(test), test["output"].get<std::string>());
  }
}

TEST_F(ReplyGolden, MarkersOfReasoningAndOfCallsAreThoseOfTheFormat) {
  for (const auto& test : cases_) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const TestFormat format = format_of(test);
    if (test.contains("thinking")) {
      EXPECT_EQ(format.format->think_start, test["thinking"]["start"]);
      ASSERT_FALSE(format.format->think_ends.empty());
      EXPECT_EQ(format.format->think_ends.front(), test["thinking"]["ends"][0]);
    }
    if (!test.contains("triggers")) continue;
    for (const auto& trigger : test["triggers"]) {
      if (trigger["type"] != "word") continue;
      // At the end of the trigger the parser has entered a call, or is about to.
      ReplyParser parser({format.format, format.tools, {}, {}});
      (void)parser.push(trimmed(trigger["value"]));
      EXPECT_TRUE(parser.reply().content.empty()) << trigger["value"];
    }
  }
}

}  // namespace
}  // namespace common::chat
