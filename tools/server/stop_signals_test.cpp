#include "stop_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

namespace server {
namespace {

[[noreturn]] void sleep_for_ever() {
  while (true) ::pause();
}

TEST(StopSignalsDeathTest, OneWhileTheModelIsLoadedEndsTheProcessAtOnce) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        StopSignals signals;
        signals.set_clean_up([] { (void)!::write(STDERR_FILENO, "cleaned, ", 9); });
        ::kill(::getpid(), SIGTERM);
        sleep_for_ever();
      },
      ::testing::ExitedWithCode(0), "stopped while the model was being loaded");
}

TEST(StopSignalsDeathTest, WhatDoesNotEndIsNamedAndGivenUp) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        StopSignals signals;
        std::thread user([] {
          for (int i = 0; i < 3; ++i) {  // the third one does not wait for the hurried to end either
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            ::kill(::getpid(), SIGTERM);
          }
          sleep_for_ever();
        });
        signals.wait({[] {}, [] { return std::string("a thread had not ended"); }});
        sleep_for_ever();
      },
      ::testing::ExitedWithCode(1), "stopped by force: a thread had not ended");
}

TEST(StopSignals, AnOrderlyStopIsNotDisturbed) {
  bool hurried = false;
  {
    StopSignals signals;
    std::thread user([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ::kill(::getpid(), SIGTERM);
    });
    signals.wait({[&hurried] { hurried = true; }, [] { return std::string(); }});
    signals.stopped();
    user.join();
  }
  EXPECT_FALSE(hurried);
}

}  // namespace
}  // namespace server
