#include "grid.h"

#include <gtest/gtest.h>

#include "common/args/args.h"
#include "ggml/error.h"
#include "result.h"

namespace bench {
namespace {

using Ints = std::vector<int>;

Ints int_list(const char* text) {
  std::string why;
  Ints values = common::grid::parse_int_list(text, why);
  EXPECT_EQ(why, "") << text;
  return values;
}

TEST(IntList, TakesListsAndRanges) {
  EXPECT_EQ(int_list("512"), Ints{512});
  EXPECT_EQ(int_list("1,2,-3"), (Ints{1, 2, -3}));
  EXPECT_EQ(int_list("1-4"), (Ints{1, 2, 3, 4}));
  EXPECT_EQ(int_list("16-64+16,7"), (Ints{16, 32, 48, 64, 7}));
  EXPECT_EQ(int_list("1-8*2"), (Ints{1, 2, 4, 8}));
}

TEST(IntList, RefusesWhatIsNoListOfIntegers) {
  for (const char* text : {"", "x", "1,", "1-", "1-4+", "1-4*1", "1-4+0", "0-4*2", "1.5", "1-4/2", "99999999999"}) {
    std::string why;
    EXPECT_TRUE(common::grid::parse_int_list(text, why).empty()) << text;
    EXPECT_NE(why, "") << text;
  }
}

Grid parsed(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "llama-bench");
  common::ParseOptions options;
  options.environment = [](const std::string&) { return std::optional<std::string>(); };
  return with_defaults(
      common::parse(common::Tool::bench, static_cast<int>(arguments.size()), arguments.data(), options).settings.grid);
}

TEST(Options, GivenListsReplaceTheDefaultsAndAddUp) {
  const Grid grid = parsed({"-m", "a.gguf,b.gguf", "-p", "64", "-p", "128", "-n", "0", "-fa", "0,1", "-pg", "32,8"});
  EXPECT_EQ(grid.models, (std::vector<std::string>{"a.gguf", "b.gguf"}));
  EXPECT_EQ(grid.n_prompt, (Ints{64, 128}));
  EXPECT_EQ(grid.n_batch, Ints{2048});
  const std::vector<bench::Test> tests = expand(grid);
  ASSERT_EQ(tests.size(), 2u * 2u * 3u);  // models x flash attention x (pp64, pp128, pg)
  EXPECT_EQ(tests[0].label(), "pp64");
  EXPECT_EQ(tests[2].label(), "pp32+tg8");
  EXPECT_EQ(tests[0].flash_attention, FlashAttention::off);
  EXPECT_EQ(tests[3].flash_attention, FlashAttention::on);
}

TEST(Options, FlashAttentionAndExpertsOnTheCpuAreWrittenAsForTheOtherPrograms) {
  const Grid grid = parsed({"-m", "a", "-fa", "-p", "8", "-n", "0", "-ncmoe", "0,4:even,1-2:last", "-mmp", "1,0"});
  EXPECT_EQ(grid.flash_attention, std::vector<FlashAttention>{FlashAttention::on});
  EXPECT_EQ(grid.load_mode, (std::vector<LoadMode>{LoadMode::mmap, LoadMode::none}));
  std::vector<std::string> texts;
  for (const bench::Test& test : expand(grid)) texts.push_back(test.experts_on_cpu());
  EXPECT_EQ(texts, (std::vector<std::string>{"0", "0", "4:even", "4:even", "1:last", "1:last", "2:last", "2:last"}));
  EXPECT_EQ(parsed({"-m", "a", "-fa", "off,auto,on"}).flash_attention,
            (std::vector<FlashAttention>{FlashAttention::off, FlashAttention::automatic, FlashAttention::on}));
}

TEST(Options, LabelsSayDepthAndUntimedPrompt) {
  const Grid grid = parsed({"-m", "a", "-p", "0", "-n", "16", "-d", "4096", "-gp", "100,8"});
  const std::vector<bench::Test> tests = expand(grid);
  ASSERT_EQ(tests.size(), 2u);
  EXPECT_EQ(tests[0].label(), "tg16 @ d4096");
  EXPECT_EQ(tests[1].label(), "tg8@pp100 @ d4096");
}

TEST(Options, RefuseWhatTheyCannotDo) {
  for (const std::vector<const char*>& arguments : {std::vector<const char*>{"--nope"},
                                                    {"-p"},
                                                    {"-p", "x"},
                                                    {"-p", "8-4"},
                                                    {"-fa", "maybe"},
                                                    {"-fa", "on,maybe"},
                                                    {"-ncmoe", "4:odd"},
                                                    {"-m", ""},
                                                    {"-ctk", "q7"},
                                                    {"-sas", "1"},
                                                    {"-ot", "x"},
                                                    {"-tgb", "2"},
                                                    {"-mla", "4"},
                                                    {"-ser", "6"},
                                                    {"-sm", "row"},
                                                    {"-r", "0"}}) {
    EXPECT_THROW(parsed(arguments), ggml::Error) << arguments[0];
  }
}

TEST(Options, SwitchesTakeAValueOrNone) {
  EXPECT_EQ(parsed({"-mmp", "0", "-p", "64"}).load_mode, std::vector<LoadMode>{LoadMode::none});
  EXPECT_EQ(parsed({"-mmp", "0,1"}).load_mode, (std::vector<LoadMode>{LoadMode::none, LoadMode::mmap}));
  EXPECT_EQ(parsed({"--no-mmap"}).load_mode, std::vector<LoadMode>{LoadMode::none});
  EXPECT_EQ(parsed({"-dio", "1"}).load_mode, std::vector<LoadMode>{LoadMode::direct_io});
  EXPECT_EQ(parsed({"-fmoe", "1", "-nkvo", "0", "-rtr", "0", "-p", "7"}).n_prompt, Ints{7});
}

TEST(Options, AttentionExpertsAndTeamsAreAxes) {
  const Grid grid = parsed({"-p", "8", "-n", "0", "-mla", "0,3", "-amb", "0,512", "-ser", "6,1,4,0.5", "-tgb", "2,4"});
  const std::vector<bench::Test> tests = expand(grid);
  ASSERT_EQ(tests.size(), 8u);
  EXPECT_EQ(tests[0].mla, 0);
  EXPECT_EQ(tests[7].mla, 3);
  EXPECT_EQ(tests[2].attention_max_batch_mib, 512);
  EXPECT_EQ(tests[1].expert_reduction, std::make_pair(4, 0.5F));
  EXPECT_EQ(tests[0].n_threads, 2);
  EXPECT_EQ(tests[0].n_threads_batch, 4);
  const std::vector<bench::Test> plain = expand(parsed({"-p", "8", "-n", "0", "-t", "3", "-tgb", "1,2"}));
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_EQ(plain[0].n_threads_batch, 3);
  EXPECT_EQ(plain[1].n_threads_batch, 2);
  EXPECT_EQ(plain[0].mla, -1);
}

TEST(Options, LayersOnTheGpuKnowWordsAndFitTakesOnAndOff) {
  EXPECT_EQ(parsed({"-ngl", "auto,all,0-2"}).n_gpu_layers, (Ints{-1, 999, 0, 1, 2}));
  EXPECT_EQ(parsed({"-fit", "off", "-fitt", "1,2", "-p", "7"}).n_prompt, Ints{7});
}

TEST(Options, GroupsOfPlacementRulesAreAnAxis) {
  EXPECT_EQ(parsed({"-ot", ",exps=CPU;attn=CPU"}).tensor_rules, (std::vector<std::string>{"", "exps=CPU;attn=CPU"}));
}

TEST(Result, RatesCountWhatWasTimed) {
  Result result;
  result.test.n_prompt = 100;
  result.test.n_gen = 10;
  result.samples_ns = {1000000000, 500000000};
  EXPECT_EQ(result.tokens_per_second(), (std::vector<double>{110, 220}));
  result.test.prompt_is_untimed = true;
  EXPECT_EQ(result.tokens_per_second(), (std::vector<double>{10, 20}));
  EXPECT_DOUBLE_EQ(deviation({1, 2, 3, 4}), 1.2909944487358056);
  EXPECT_EQ(deviation({5}), 0);
}

}  // namespace
}  // namespace bench
