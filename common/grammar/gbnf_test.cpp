#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/grammar/grammar_builder.h"
#include "ggml/error.h"
#include "grammar_test_support.h"
#include "test_support.h"

namespace common::grammar::testing {
namespace {

using nlohmann::ordered_json;

TEST(GrammarCases, EveryCaseOfTheCollectionComesOutAsItSays) {
  const auto cases = ordered_json::parse(tandem::load_text(tandem::data_dir() / "grammar" / "cases.json"))["cases"];
  ASSERT_EQ(cases.size(), 103u);
  for (const ordered_json& c : cases) {
    SCOPED_TRACE(c["name"].get<std::string>());
    std::shared_ptr<const Grammar> grammar;
    std::string text;
    try {
      text = c.contains("schema") ? schema_to_gbnf(c["schema"]) : c["grammar"].get<std::string>();
      grammar = Grammar::parse(text);
    } catch (const ggml::Error& error) {
      EXPECT_TRUE(c.value("error", false)) << error.what() << "\n" << text;
      EXPECT_FALSE(error.message().empty());
      continue;
    }
    EXPECT_FALSE(c.value("error", false)) << text;
    for (const auto& accepted : c.value("accept", ordered_json::array()))
      EXPECT_TRUE(accepts(*grammar, accepted.get<std::string>())) << accepted << "\n" << text;
    for (const auto& refused : c.value("reject", ordered_json::array()))
      EXPECT_FALSE(accepts(*grammar, refused.get<std::string>())) << refused << "\n" << text;
  }
}

TEST(Gbnf, CommentsBlanksAndLineEndsSeparateWhatTheyShould) {
  for (const char* end : {"\n", "\r\n", "\r"}) {
    std::string text = "# first~\troot ::=~  a | # why~ \"b\" ( \"c\"~ | \"d\" )~a::=\"x\"# end";
    for (std::size_t at; (at = text.find('~')) != std::string::npos;) text.replace(at, 1, end);
    EXPECT_TRUE(accepts(text, "x")) << text;
    EXPECT_TRUE(accepts(text, "bd")) << text;
    EXPECT_FALSE(accepts(text, "b")) << text;
  }
  EXPECT_NE(error_of("root ::= \"a\"\n | \"b\""), "");
}

TEST(Gbnf, TheLastDefinitionOfANameCounts) {
  EXPECT_TRUE(accepts("a ::= \"x\"\nroot ::= a\na ::= \"y\"", "y"));
  EXPECT_FALSE(accepts("a ::= \"x\"\nroot ::= a\na ::= \"y\"", "x"));
}

TEST(Gbnf, EveryEscapeIsRead) {
  EXPECT_TRUE(accepts(R"(root ::= "\x41\u00e9\U0001F680\t\r\n\\\"\[\]")", "A\xC3\xA9\xF0\x9F\x9A\x80\t\r\n\\\"[]"));
  EXPECT_EQ(error_of("root ::= \"\\q\"").find("grammar: line 1, column 11: unknown escape"), 0u);
  EXPECT_NE(error_of("root ::= \"\\x4\"").find("2 hexadecimal digits"), std::string::npos);
  EXPECT_NE(error_of("root ::= \"\\U00110000\"").find("beyond the last character"), std::string::npos);
  EXPECT_NE(error_of("root ::= \"\\uD800\"").find("surrogate"), std::string::npos);
}

TEST(Gbnf, ClassesFollowTheRulesOfDashCaretAndNewline) {
  EXPECT_TRUE(accepts("root ::= [-a]", "-"));
  EXPECT_TRUE(accepts("root ::= [a^]", "^"));
  EXPECT_TRUE(accepts("root ::= [^a]", "\n"));
  EXPECT_FALSE(accepts("root ::= [^\\n]", "\n"));
  EXPECT_TRUE(accepts("root ::= .", "\n"));
  EXPECT_FALSE(accepts("root ::= [^a]", "bc"));
  EXPECT_FALSE(accepts("root ::= .", "\xED\xA0\x80")) << "a surrogate is no character";
  EXPECT_NE(error_of("root ::= [z-a]"), "");
}

TEST(Gbnf, RepetitionsBindToTheItemBeforeThem) {
  EXPECT_TRUE(accepts("root ::= \"x\" [ab] {2,3}", "xaba"));
  EXPECT_FALSE(accepts("root ::= \"x\" [ab] {2,3}", "xa"));
  EXPECT_TRUE(accepts("root ::= \"a\"{ 2 , }", "aaaaa"));
  EXPECT_FALSE(accepts("root ::= \"a\"{2,}", "a"));
  EXPECT_TRUE(accepts("root ::= (\"a\"?)* \"b\"", "aab"));
}

TEST(Gbnf, LimitsOnRepetitionsAreThoseOfTheLanguage) {
  EXPECT_EQ(error_of("root ::= \"a\"{2000}"), "");
  EXPECT_NE(error_of("root ::= \"a\"{2001}"), "");
  EXPECT_EQ(error_of("root ::= \"a\"{0,2001}"), "");
  EXPECT_TRUE(accepts("root ::= \"a\"{0,2001}", std::string(5000, 'a')));
  EXPECT_FALSE(accepts("root ::= \"a\"{0,2000}", std::string(2001, 'a')));
  EXPECT_NE(error_of("root ::= (\"a\"{0,60}){0,60}"), "");
  EXPECT_EQ(error_of("root ::= ((\"a\"{50}){50}){50}"), "");
  EXPECT_TRUE(accepts("root ::= ((\"a\"{50}){50}){50}", std::string(125000, 'a')));
}

TEST(Gbnf, ErrorsNameLineAndColumn) {
  EXPECT_EQ(error_of("root ::= a\n\na ::= b c"), "grammar: line 3, column 7: the rule 'b' is not defined");
  EXPECT_EQ(error_of("root ::= \"é\" ]"), "grammar: line 1, column 14: unexpected ']' in the rule 'root'");
  EXPECT_EQ(error_of("root ::= (\"a\"\n"), "grammar: line 1, column 10: this '(' is never closed");
  EXPECT_EQ(error_of("root ::= \"a\"\nb = \"c\""),
            "grammar: line 2, column 3: expected '::=' after the name 'b', found '='");
  EXPECT_EQ(error_of("root ::= \"a\" | *"), "grammar: line 1, column 16: '*' has nothing before it to repeat");
  EXPECT_NE(error_of("a ::= \"x\"").find("no rule 'root'"), std::string::npos);
  EXPECT_NE(error_of("").find("no rule 'root'"), std::string::npos);
  EXPECT_NE(error_of("%llguidance {}").find("llguidance"), std::string::npos);
  EXPECT_NE(error_of("root ::= \"\xFF\"").find("UTF-8"), std::string::npos);
}

TEST(Gbnf, LeftRecursionIsFoundHoweverItIsHidden) {
  for (const char* text :
       {"root ::= root", "root ::= a\na ::= (\"x\" | b)\nb ::= \"\" root", "root ::= \"y\"? root \"x\"",
        "root ::= \"x\" a\na ::= [b]* a | \"c\"", "root ::= (a)* root\na ::= \"z\"{0,2}"}) {
    EXPECT_NE(error_of(text).find("left recursion"), std::string::npos) << text;
  }
  EXPECT_EQ(error_of("root ::= \"(\" root \")\" | \"x\" root | \"\""), "");
}

TEST(Gbnf, HugeAndDeepTextsEndInAnErrorOrWork) {
  EXPECT_NE(error_of("root ::= " + std::string(100000, '(')).find("nest deeper"), std::string::npos);
  EXPECT_NE(error_of(std::string(17u << 20, ' ')).find("bytes of text"), std::string::npos);
  std::string chain;
  for (int i = 0; i < 100000; ++i)
    chain += "r" + std::to_string(i) + " ::= \"(\" r" + std::to_string(i + 1) + " \")\"\n";
  EXPECT_EQ(error_of("root ::= r0\n" + chain + "r100000 ::= \"x\""), "");
  EXPECT_NE(error_of("root ::= r0\n" + chain + "r100000 ::= r100000").find("left recursion"), std::string::npos);
  // Two thousand times two thousand characters by way of rules: too many states are refused, not built.
  std::string nested = "root ::= a{2000}\na ::= b{2000}\nb ::= [x-z]{2000} \"é\"\n";
  EXPECT_EQ(error_of(nested), "");
}

TEST(Gbnf, TokensAreGivenByIdOrText) {
  const llama::Vocab vocab = vocab_of({"<think>", "ab"});
  EXPECT_EQ(error_of("root ::= <[5]> !<[6]>", &vocab), "");
  EXPECT_NE(error_of("root ::= <[99999]>", &vocab).find("outside the vocabulary"), std::string::npos);
  EXPECT_NE(error_of("root ::= <nothing at all>", &vocab).find("tokens in this vocabulary"), std::string::npos);
  EXPECT_NE(error_of("root ::= <think>").find("needs a vocabulary"), std::string::npos);
  EXPECT_NE(error_of("root ::= <think").find("never closed"), std::string::npos);
  EXPECT_NE(error_of("root ::= !\"a\"").find("expected a token"), std::string::npos);
}

TEST(GrammarBuilder, PutsExpressionsAndSchemasTogether) {
  GrammarBuilder b;
  const std::string call = b.rule("call", GrammarBuilder::sequence({GrammarBuilder::literal("<call \"x\">\n"),
                                                                    b.schema("arguments", {{"type", "integer"}}),
                                                                    GrammarBuilder::literal("</call>")}));
  const std::vector<std::string> stops{"<call", "<calm>"};
  const std::string text = b.text_until("content", stops);
  b.set_root(GrammarBuilder::sequence({text, GrammarBuilder::repeat(call, 1, 2)}));
  const auto grammar = Grammar::parse(b.text());
  EXPECT_TRUE(accepts(*grammar, "well <cal<<ca<call \"x\">\n-5</call>"));
  EXPECT_TRUE(accepts(*grammar, "<call \"x\">\n1</call><call \"x\">\n2</call>"));
  EXPECT_FALSE(accepts(*grammar, "no call"));
  EXPECT_FALSE(accepts(*grammar, "a <calm> b<call \"x\">\n1</call>"));
}

TEST(GrammarBuilder, TextUntilHoldsNoStopWhateverOverlaps) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const auto word = [&](int most) {
      std::string s;
      for (int n = 1 + static_cast<int>(random() % static_cast<unsigned>(most)); n > 0; --n) s += "ab"[random() % 2];
      return s;
    };
    const std::vector<std::string> stops{word(4), word(4)};
    GrammarBuilder b;
    b.set_root(b.text_until("text", stops));
    const auto grammar = Grammar::parse(b.text());
    for (int i = 0; i < 30; ++i) {
      const std::string text = word(8);
      const bool has_stop = text.find(stops[0]) != std::string::npos || text.find(stops[1]) != std::string::npos;
      EXPECT_EQ(accepts(*grammar, text), !has_stop) << text << " until " << stops[0] << " or " << stops[1];
    }
  }
}

TEST(GrammarBuilder, NamesAreCleanedAndNeverClash) {
  GrammarBuilder b;
  EXPECT_EQ(b.rule("a b_c", "\"x\""), "a-b-c");
  EXPECT_EQ(b.rule("a-b-c", "\"x\""), "a-b-c");
  EXPECT_EQ(b.rule("a-b-c", "\"y\""), "a-b-c-1");
  EXPECT_NE(b.rule("root", "\"z\""), "root");
  EXPECT_NE(b.rule("json-value", "\"z\""), "json-value");
  EXPECT_EQ(GrammarBuilder::repeat("\"a\" \"b\"", 2), "(\"a\" \"b\"){2,}");
  EXPECT_EQ(GrammarBuilder::literal("a\"\\\n\x01"), "\"a\\\"\\\\\\n\\x01\"");
}

}  // namespace
}  // namespace common::grammar::testing
