// Options that single programs have, and what these programs do not use.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/args/args_test_support.h"
#include "test_support.h"

namespace common {
namespace {

using testing::error_of;
using testing::fake_environment;
using testing::parse_line;
using testing::settings_of;

class ProgramArgs : public ::testing::Test {
 protected:
  void SetUp() override { fake_environment().clear(); }
  void TearDown() override { fake_environment().clear(); }
};

TEST_F(ProgramArgs, TokenizeWantsExactlyOneText) {
  EXPECT_EQ(error_of(Tool::tokenize, {"-p", "a"}).message(), "");
  EXPECT_NE(error_of(Tool::tokenize, {}).message(), "");
  EXPECT_NE(error_of(Tool::tokenize, {"-p", "a", "--stdin"}).message(), "");
}

TEST_F(ProgramArgs, GgufTakesBareWordsAsFiles) {
  const Settings settings = settings_of(Tool::gguf, {"a.gguf", "--json", "b.gguf"});
  EXPECT_EQ(settings.gguf.files, (std::vector<std::string>{"a.gguf", "b.gguf"}));
  EXPECT_TRUE(settings.gguf.json);
  EXPECT_EQ(error_of(Tool::gguf, {}, true).message(), "error: no file is given");
  EXPECT_EQ(error_of(Tool::server, {"a.gguf"}).message(), "error: invalid argument: a.gguf");
}

TEST_F(ProgramArgs, GgufKnowsOnlyItsOwnOptions) {
  EXPECT_EQ(error_of(Tool::gguf, {"--port", "1"}).message(), "error: invalid argument: --port");
  EXPECT_EQ(error_of(Tool::gguf, {"--preset", "x"}).message(), "error: invalid argument: --preset");
  EXPECT_EQ(error_of(Tool::server, {"--preset", "x"}).message(), "error: invalid argument: --preset");
  EXPECT_EQ(error_of(Tool::gguf_synth, {"--layrs", "1"}).hint().rfind("Did you mean --layers?", 0), 0U);
}

TEST_F(ProgramArgs, SynthNeedsPresetAndFileUnlessItLists) {
  EXPECT_EQ(error_of(Tool::gguf_synth, {}, true).message(), "error: --preset is missing");
  EXPECT_EQ(error_of(Tool::gguf_synth, {"--preset", "x"}, true).message(), "error: -o FNAME is missing");
  EXPECT_EQ(error_of(Tool::gguf_synth, {"--list"}, true).message(), "");
  const SynthSettings synth = settings_of(Tool::gguf_synth, {"--preset", "x", "-o", "f", "--layers", "3"}).synth;
  EXPECT_EQ(synth.preset + synth.output, "xf");
  EXPECT_EQ(synth.layers, 3);
  EXPECT_FALSE(synth.vocab.has_value());
}

TEST_F(ProgramArgs, BenchTakesListsAndNamesTheOptionsItDoesNotUse) {
  const grid::Grid grid = settings_of(Tool::bench, {"-m", "a,b", "-p", "1-3", "-p", "8", "-t", "2"}).grid;
  EXPECT_EQ(grid.models, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(grid.n_prompt, (std::vector<int>{1, 2, 3, 8}));
  EXPECT_TRUE(grid.n_gen.empty());
  EXPECT_EQ(testing::notes_of(parse_line(Tool::bench, {"--port", "80", "-c", "4096", "-np", "2"})),
            "info: not used by llama-bench: --port, -c, -np\n");
  EXPECT_EQ(
      error_of(Tool::bench, {"-p", "8-4"}).message(),
      "error while handling argument \"-p\": expected integers, or ranges such as 1-8, 16-64+16, 1-64*2, separated "
      "by commas (\"8-4\" ends below its beginning), got \"8-4\"");
}

}  // namespace
}  // namespace common
