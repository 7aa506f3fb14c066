#include "compare.h"

#include <gtest/gtest.h>

#include "flags.h"
#include "ggml/error.h"

namespace sweep {
namespace {

using Words = std::vector<std::string>;

TEST(SplitWords, BlanksSeparateAndQuotesHoldTogether) {
  EXPECT_EQ(split_words(""), Words{});
  EXPECT_EQ(split_words("  -ub   512\t-fa on \n"), (Words{"-ub", "512", "-fa", "on"}));
  EXPECT_EQ(split_words(R"(-p "two words" 'and "more"' a'b c'd "")"),
            (Words{"-p", "two words", "and \"more\"", "ab cd", ""}));
}

TEST(SplitWords, BackslashesOfPatternsStay) {
  EXPECT_EQ(split_words(R"(-ot blk\.[0-9]\.ffn=CPU)"), (Words{"-ot", R"(blk\.[0-9]\.ffn=CPU)"}));
  EXPECT_EQ(split_words(R"(-ot "blk\.1\.=CPU" 'a\'b)"), (Words{"-ot", R"(blk\.1\.=CPU)", R"(a\b)"}));
  EXPECT_EQ(split_words(R"(a\ b \"c\" \\d e\)"), (Words{"a b", "\"c\"", "\\d", "e\\"}));
}

TEST(SplitWords, SayWhereAnOpenQuoteIs) {
  try {
    (void)split_words("-ub 512 -p \"x");
    FAIL();
  } catch (const ggml::Error& error) {
    EXPECT_EQ(error.message(), "the quote \" at position 12 is not closed");
  }
}

std::optional<std::string> no_environment(const std::string&) {
  return std::nullopt;
}

std::vector<Configuration> configurations(std::vector<const char*> words) {
  common::ParseOptions options;
  options.environment = no_environment;
  words.insert(words.begin(), "llama-sweep-bench");
  const common::Parsed line =
      common::parse(common::Tool::sweep_bench, static_cast<int>(words.size()), words.data(), options);
  return configurations_of(line.settings, options);
}

TEST(Configurations, AreTheLineWithTheirFlagsAtItsEnd) {
  const std::vector<Configuration> two = configurations(
      {"-m", "x.gguf", "-ub", "256", "-ot", "a=CPU", "--compare", "-t 3", "-ub 512 -ot b=CPU", "-c", "4096"});
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].label(), "A: -t 3");
  EXPECT_EQ(two[0].settings.context.n_ubatch, 256);
  EXPECT_EQ(two[0].settings.threads.n_threads, 3);
  EXPECT_EQ(two[1].label(), "B: -ub 512 -ot b=CPU");
  EXPECT_EQ(two[1].settings.context.n_ubatch, 512);
  EXPECT_EQ(two[1].settings.context.n_ctx, 4096);
  EXPECT_EQ(two[1].settings.placement.tensor_rules.size(), 2U);
  EXPECT_EQ(two[1].settings.model.path, "x.gguf");
}

TEST(Configurations, ComeInTwosAndMayBeEmpty) {
  EXPECT_EQ(configurations({"-m", "x.gguf"}).size(), 1U);
  const std::vector<Configuration> four =
      configurations({"-m", "x.gguf", "--compare", "", "-t 1", "--compare", "-t 2", "-t 3"});
  ASSERT_EQ(four.size(), 4U);
  EXPECT_EQ(four[0].label(), "A: (no flags)");
  EXPECT_EQ(four[3].label(), "D: -t 3");
  std::vector<const char*> many{"-m", "x.gguf"};
  for (int i = 0; i < 14; ++i) many.insert(many.end(), {"--compare", "-t 1", "-t 2"});
  EXPECT_THROW(configurations(many), ggml::Error);
}

TEST(Configurations, RefuseFlagsWithTheirNameAndTheReason) {
  const std::pair<const char*, const char*> kCases[] = {{"-ub \"512", "the quote \" at position 5 is not closed"},
                                                        {"--nope", "invalid argument: --nope"},
                                                        {"-ub", "expected value"},
                                                        {"-ub many", "-ub"},
                                                        {"words", "invalid argument: words"},
                                                        {"-m y.gguf", "the model (-m)"},
                                                        {"--compare -t1 -t2", "--compare"},
                                                        {"--output-file f", "--output-file"},
                                                        {"--output-format jsonl", "--output-format"},
                                                        {"--chart x.svg", "--chart"},
                                                        {"--dry-run", "--dry-run"},
                                                        {"--list-devices", "a list"},
                                                        {"--help", "--help"},
                                                        {"-v", "the log"}};
  for (const auto& [flags, what] : kCases) {
    try {
      if (std::string_view(flags) == "--help") ::testing::internal::CaptureStdout();
      (void)configurations({"-m", "x.gguf", "--compare", "-t 1", flags});
      ADD_FAILURE() << flags;
    } catch (const ggml::Error& error) {
      EXPECT_NE(error.message().find(std::string("configuration B: ") + flags), std::string::npos) << error.message();
      EXPECT_NE(error.message().find(what), std::string::npos) << error.message();
    }
    if (std::string_view(flags) == "--help") (void)::testing::internal::GetCapturedStdout();
  }
}

std::vector<Configuration> measured() {
  std::vector<Configuration> two(2);
  two[0].name = "A";
  two[1].name = "B";
  two[1].flags = "-p \"x\"";
  two[0].rows = {{.pp = 100, .tg = 10, .n_kv = 0, .t_pp_s = 1, .t_tg_s = 1},
                 {.pp = 100, .tg = 10, .n_kv = 100, .t_pp_s = 2, .t_tg_s = 2}};
  two[1].rows = {{.pp = 200, .tg = 10, .n_kv = 0, .t_pp_s = 1, .t_tg_s = 2},
                 {.pp = 200, .tg = 10, .n_kv = 200, .t_pp_s = 1, .t_tg_s = 1}};
  return two;
}

TEST(Comparison, RatiosStandWhereBothHaveTheDepth) {
  const std::vector<std::string> lines = comparison_lines(measured());
  ASSERT_EQ(lines.size(), 7U);
  EXPECT_EQ(lines[0], "|  N_KV |   PP A t/s |   TG A t/s |   PP B t/s |   TG B t/s | PP B/A | TG B/A |");
  EXPECT_EQ(lines[2], "|     0 |     100.00 |      10.00 |     200.00 |       5.00 |  2.000 |  0.500 |");
  EXPECT_EQ(lines[3], "|   100 |      50.00 |       5.00 |          - |          - |      - |      - |");
  EXPECT_EQ(lines[4], "|   200 |          - |          - |     200.00 |      10.00 |      - |      - |");
  EXPECT_EQ(lines[6], "B / A: geometric mean of the ratios over 1 depth: PP 2.000, TG 0.500");
}

TEST(Comparison, JsonRowsCarryTheirConfigurationAndRatio) {
  const std::vector<Configuration> two = measured();
  EXPECT_EQ(keys_of(two[0], two[0])(two[0].rows[0]), R"(, "configuration": "A", "flags": "")");
  const MoreKeys keys = keys_of(two[1], two[0]);
  EXPECT_EQ(keys(two[1].rows[0]),
            R"(, "configuration": "B", "flags": "-p \"x\"", "ratio_pp": 2.000000, "ratio_tg": 0.500000)");
  EXPECT_EQ(keys(two[1].rows[1]), R"(, "configuration": "B", "flags": "-p \"x\"", "ratio_pp": null, "ratio_tg": null)");
}

TEST(Chart, HasAxesALineForEachSeriesAndEscapedLabels) {
  std::vector<Configuration> two = measured();
  two[1].flags = "<&\">";
  const Chart chart = chart_of(two, "m.gguf");
  const std::string svg = svg_text(chart);
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_NE(svg.find("N_KV, tokens in the cache"), std::string::npos);
  EXPECT_NE(svg.find("tokens/s</text>"), std::string::npos);
  EXPECT_NE(svg.find("B: &lt;&amp;&quot;&gt;</text>"), std::string::npos);
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
  std::size_t lines = 0;
  for (std::size_t at = svg.find("<polyline"); at != std::string::npos; at = svg.find("<polyline", at + 1)) ++lines;
  EXPECT_EQ(lines, 4U);
  const std::string page = html_text(chart);
  EXPECT_NE(page.find("<tr><td>100</td><td>50.00</td><td>5.00</td><td></td><td></td></tr>"), std::string::npos);
  EXPECT_EQ(page.find("<&\">"), std::string::npos);
}

TEST(Chart, OneRowIsEnough) {
  std::vector<Configuration> one(1);
  one[0].rows = {{.pp = 1, .tg = 1, .n_kv = 0, .t_pp_s = 1e6, .t_tg_s = 1e6}};
  const std::string svg = svg_text(chart_of(one, "m"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace sweep
