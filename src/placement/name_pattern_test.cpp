#include "llama/name_pattern.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace llama {
namespace {

bool finds(const std::string& pattern, const std::string& name) {
  return NamePattern::compile(pattern).take().found_in(name);
}

struct Habit {
  std::string pattern, name;
  bool found;
};

class EcmaScript : public ::testing::TestWithParam<Habit> {};

TEST_P(EcmaScript, PatternFindsWhatItMeansThere) {
  const Habit& habit = GetParam();
  EXPECT_EQ(finds(habit.pattern, habit.name), habit.found) << habit.pattern << " in " << habit.name;
}

const std::string kDown = "blk.12.ffn_down_exps.weight";

INSTANTIATE_TEST_SUITE_P(
    Habits, EcmaScript,
    ::testing::Values(
        // Searched anywhere, case-sensitive.
        Habit{"exps", kDown, true}, Habit{"EXPS", kDown, false},
        Habit{R"(blk\.(1[0-9]|2[0-3])\.ffn_.*_exps\.)", kDown, true},
        Habit{R"(blk\.(1[0-9]|2[0-3])\.ffn_.*_exps\.)", "blk.9.ffn_down_exps.weight", false},
        // Classes: any character, none.
        Habit{"down[^]exps", kDown, true}, Habit{"down[]exps", kDown, false}, Habit{"down[]", kDown, false},
        Habit{"[^]", "\n", true},
        // Anchors.
        Habit{"weight$", kDown, true}, Habit{"weight$", kDown + "\n", false}, Habit{"^blk", kDown, true},
        Habit{"^blk", "x\nblk", false},
        // ASCII only.
        Habit{R"(\d\d)", kDown, true}, Habit{R"(^\d$)", "\u0663", false}, Habit{R"(^\w$)", "\u00e9", false},
        Habit{R"(^\s$)", "\u2003", false}, Habit{R"(\bffn_down)", kDown, true}, Habit{R"(\bdown)", kDown, false},
        // A dot is any character, of several bytes too.
        Habit{"a.b", "a\nb", true}, Habit{"^a.b$", "a\u20acb", true}, Habit{"a.b", "ab", false},
        // Groups and branches.
        Habit{R"(ffn_(up|down)_(ch|)exps)", kDown, true},
        Habit{R"(ffn_(?:up|down)_(ch|)exps)", "blk.1.ffn_up_chexps.weight", true}, Habit{"(?=blk)b", kDown, true},
        Habit{R"(down_(?!exps))", kDown, false}, Habit{R"(ffn_.+?_exps)", kDown, true},
        Habit{R"((.)\1\.)", "blk.11.x", true}, Habit{R"((.)\1\.)", "blk.12.x", false}, Habit{R"((a)|b\1c)", "bc", true},
        // Escapes.
        Habit{R"(\x62lk)", kDown, true}, Habit{R"(\u0062lk)", kDown, true}, Habit{R"(\u20ac)", "\u20ac", true},
        Habit{R"(\cJ)", "\n", true}, Habit{R"(ffn\_down)", kDown, true}, Habit{R"(a\/b\-c)", "a/b-c", true},
        // Lone brackets.
        Habit{"a]", "a]", true}, Habit{"a}", "a}", true},
        // What PCRE2 adds.
        Habit{R"((?<n>1)2)", kDown, true}, Habit{R"((?<=ffn_)down)", kDown, true},
        Habit{R"((?<!ffn_)down)", kDown, false}, Habit{R"(\d++2)", kDown, false},
        // Names need not be UTF-8.
        Habit{"weight", "\xff\xfe.weight", true}));

TEST(NamePattern, PatternThatDoesNotCompileIsAnErrorWithItsPositionAndReason) {
  const ggml::Result<NamePattern> bad = NamePattern::compile("(exps");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code(), ggml::ErrorCode::invalid_argument);
  EXPECT_EQ(bad.error().message(), "pattern \"(exps\" does not compile: at position 5: missing closing parenthesis");
  EXPECT_FALSE(NamePattern::compile("a**").ok());
  EXPECT_FALSE(NamePattern::compile("[z-a]").ok());
}

TEST(NamePattern, PatternThatWouldSearchForeverIsAnError) {
  const NamePattern pattern = NamePattern::compile("(a+a+)+[bc]").take();
  const std::string name(64, 'a');
  EXPECT_THROW((void)pattern.found_in(name), ggml::Error);
}

TEST(NamePattern, LiteralPartIsWhatRemainsWithoutSpecialCharacters) {
  EXPECT_EQ(NamePattern::compile(R"(blk\.3\.ffn_.*_exp\.)").take().literal_part(), "blk.3.ffn__exp.");
}

}  // namespace
}  // namespace llama
