#include "common/log/log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "common/log/progress.h"
#include "ggml/error.h"
#include "test_support.h"

namespace common {
namespace {

/// Puts the default sink back at the end of each test.
class Log : public ::testing::Test {
 protected:
  void TearDown() override {
    init_log({});
    ggml::set_log_sink(nullptr, nullptr);
  }
  [[nodiscard]] std::string file() const { return (folder_.path() / "log.txt").string(); }
  [[nodiscard]] std::string written() const {
    flush_log();
    return tandem::load_text(file());
  }

 private:
  tandem::TempDir folder_;
};

TEST_F(Log, WritesLinesUpToTheVerbosityToTheFile) {
  LogSettings settings;
  settings.file = file();
  settings.verbosity = 2;
  init_log(settings);
  ggml::logf(ggml::LogLevel::error, "an error %d", 1);
  ggml::logf(ggml::LogLevel::warn, "a warning");
  ggml::logf(ggml::LogLevel::info, "information");
  EXPECT_EQ(written(), "error: an error 1\nwarning: a warning\n");
}

TEST_F(Log, EachVerbosityAddsOneLevel) {
  for (int verbosity = 0; verbosity <= 7; ++verbosity) {
    LogSettings settings;
    settings.verbosity = verbosity;
    init_log(settings);
    if (verbosity == 0) continue;
    EXPECT_TRUE(ggml::log_enabled(ggml::LogLevel::error)) << verbosity;
    EXPECT_EQ(ggml::log_enabled(ggml::LogLevel::info), verbosity >= 3) << verbosity;
    EXPECT_EQ(ggml::log_enabled(ggml::LogLevel::trace), verbosity >= 5) << verbosity;
  }
}

TEST_F(Log, DisabledLogWritesNothing) {
  LogSettings settings;
  settings.disabled = true;
  init_log(settings);
  ::testing::internal::CaptureStderr();
  ggml::logf(ggml::LogLevel::error, "nobody reads this");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(Log, PrefixAndTimestampsStandInFrontOfTheLine) {
  LogSettings settings;
  settings.file = file();
  settings.prefix = true;
  settings.timestamps = true;
  init_log(settings);
  ggml::logf(ggml::LogLevel::warn, "careful");
  EXPECT_TRUE(std::regex_match(written(), std::regex(R"(\d+\.\d\d\.\d\d\d W careful\n)"))) << written();
}

TEST_F(Log, JsonLinesEscapeWhatJsonForbids) {
  LogSettings settings;
  settings.file = file();
  settings.json = true;
  init_log(settings);
  ggml::logf(ggml::LogLevel::info, "say \"hi\"\tC:\\x");
  const std::string line = written();
  EXPECT_NE(line.find(R"("level":"info","msg":"say \"hi\"\u0009C:\\x"})"), std::string::npos) << line;
}

TEST_F(Log, ColoursAreOnlyWrittenWhenWanted) {
  LogSettings settings;
  settings.colors = Tristate::on;
  init_log(settings);
  EXPECT_TRUE(log_uses_colors());
  settings.colors = Tristate::off;
  init_log(settings);
  EXPECT_FALSE(log_uses_colors());
}

TEST_F(Log, FileThatCannotBeOpenedIsAnErrorWithItsName) {
  LogSettings settings;
  settings.file = (std::filesystem::path(file()) / "below-a-file-that-is-missing" / "x").string();
  std::filesystem::create_directories(std::filesystem::path(file()).parent_path());
  tandem::TempDir folder;
  settings.file = folder.path().string();  // a folder is no file
  try {
    init_log(settings);
    FAIL() << "no error";
  } catch (const ggml::Error& error) {
    EXPECT_NE(error.message().find(settings.file), std::string::npos) << error.message();
  }
}

TEST_F(Log, NoFolderIsMadeForItsFile) {
  const tandem::TempDir folder;
  LogSettings settings;
  settings.file = (folder.path() / "none" / "x").string();
  EXPECT_THROW(init_log(settings), ggml::Error);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "none"));
}

using std::chrono::milliseconds;

TEST(Progress, ShowsShareAmountAndTimeLeft) {
  EXPECT_EQ(Progress::render("layers", 12, 48, Progress::Unit::count, milliseconds(10'000)),
            "layers   25 %  12/48  eta 0:30");
  const std::int64_t gib = 1LL << 30;
  EXPECT_EQ(Progress::render("loading", gib, 2 * gib, Progress::Unit::bytes, milliseconds(3'000)),
            "loading   50 %  1.0/2.0 GiB  eta 0:03");
}

TEST(Progress, AtTheEndShowsTheTimeTaken) {
  EXPECT_EQ(Progress::render("layers", 48, 48, Progress::Unit::count, milliseconds(61'000)),
            "layers  100 %  48/48  in 1:01");
}

TEST(Progress, WithoutATotalShowsOnlyTheAmount) {
  EXPECT_EQ(Progress::render("chunks", 7, 0, Progress::Unit::count, milliseconds(1'000)), "chunks  7  in 0:01");
}

TEST(Progress, ShortOperationsPrintNothing) {
  ::testing::internal::CaptureStderr();
  {
    Progress progress("quick", 10);
    for (int i = 0; i <= 10; ++i) progress.update(i);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace common
