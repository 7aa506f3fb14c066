#include "common/setup/trace_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ggml/error.h"

namespace common {
namespace {

class TraceFiles : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  [[nodiscard]] nlohmann::json document() const {
    std::ifstream file(path_);
    return nlohmann::json::parse(file);  // throws for what is no JSON
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> found;
    const nlohmann::json whole = document();
    for (const auto& event : whole.at("traceEvents"))
      if (event.at("ph") == "X") found.push_back(event.at("name"));
    return found;
  }

  const std::string path_ = std::filesystem::temp_directory_path() / ("trace-" + std::to_string(getpid()) + ".json");
};

using Names = std::vector<std::string>;

TEST_F(TraceFiles, AreDocumentsFromTheFirstMomentToTheLast) {
  {
    TraceFile file(path_);
    EXPECT_EQ(names(), Names{});
    file.trace().add({"CPU", "first", 0, 1});
    file.flush();
    EXPECT_EQ(names(), Names{"first"});
    file.trace().add({"CPU", "second", 1, 2});
    file.trace().add({"CUDA0", "third", 1, 2});
    file.flush();
    EXPECT_EQ(names(), (Names{"first", "second", "third"}));
    file.trace().add({"CPU", "last", 2, 3});
  }
  EXPECT_EQ(names(), (Names{"first", "second", "third", "last"}));
}

TEST_F(TraceFiles, TakeTheWorkOfSimulatedDevicesToo) {
  {
    TraceFile file(path_);
    EXPECT_EQ(file.virtual_time(), file.virtual_time());
    file.virtual_time()->add({"CUDA0", "simulated", 0, 1});
  }
  EXPECT_EQ(names(), Names{"simulated"});
}

TEST_F(TraceFiles, ReplaceWhatWasThere) {
  std::ofstream(path_) << std::string(4096, 'x');
  const TraceFile file(path_);
  EXPECT_EQ(names(), Names{});
}

TEST_F(TraceFiles, OfOneNameAreOpenedOnce) {
  const auto file = TraceFile::open(path_);
  file->trace().add({"CPU", "first", 0, 1});
  file->flush();
  EXPECT_EQ(TraceFile::open(path_), file);
  EXPECT_EQ(names(), Names{"first"});
}

TEST_F(TraceFiles, ThatCannotBeWrittenAreRefused) {
  for (const char* path : {"/no/such/folder/trace.json", "/proc/trace.json"}) {
    try {
      const TraceFile file{path};
      FAIL() << "was opened";
    } catch (const ggml::Error& error) {
      EXPECT_EQ(error.code(), ggml::ErrorCode::invalid_argument);
      EXPECT_NE(error.message().find(path), std::string::npos) << error.message();
    }
  }
}

/// Runs `body` in a child process; its exit status or the signal that ended it.
template <class Body>
int status_of(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(TraceFiles, AreWrittenBeforeASignalEndsTheProcess) {
  for (const int number : {SIGINT, SIGTERM}) {
    const int status = status_of([&] {
      TraceFile file(path_);
      file.trace().add({"CPU", "before the signal", 0, 1});
      (void)raise(number);
      for (;;) pause();
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == number) << status;
    EXPECT_EQ(names(), Names{"before the signal"});
  }
}

TEST_F(TraceFiles, LeaveHandlersOfTheProgramAlone) {
  const auto handler = std::signal(SIGINT, SIG_IGN);
  {
    const TraceFile file(path_);
    EXPECT_EQ(std::signal(SIGINT, SIG_IGN), SIG_IGN);
  }
  (void)std::signal(SIGINT, handler);
}

TEST_F(TraceFiles, StayDocumentsWhenThereIsNoMoreRoom) {
  const int status = status_of([&] {
    (void)std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    (void)setrlimit(RLIMIT_FSIZE, &limit);
    TraceFile file(path_);
    for (int i = 0; i < 100; ++i) {
      file.trace().add({"CPU", "piece " + std::to_string(i), 0, 1});
      file.flush();
    }
  });
  EXPECT_EQ(status, 0);
  const std::size_t n = names().size();
  EXPECT_GT(n, 10u);
  EXPECT_LT(n, 100u);
}

}  // namespace
}  // namespace common
