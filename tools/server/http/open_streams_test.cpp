#include "http/open_streams.h"

#include <gtest/gtest.h>

#include <thread>

namespace server {
namespace {

using std::chrono::milliseconds;

TEST(OpenStreams, NothingIsWaitedForWhenNoStreamIsOpen) {
  OpenStreams streams;
  (void)streams.enter();
  const auto begin = OpenStreams::Clock::now();
  streams.wait_until_none(milliseconds(60000));
  EXPECT_LT(OpenStreams::Clock::now() - begin, milliseconds(30000));
}

TEST(OpenStreams, TheWaitEndsWithTheLastStream) {
  OpenStreams streams;
  std::shared_ptr<void> first = streams.enter();
  std::shared_ptr<void> copy = first;
  std::thread closing([&] {
    first.reset();
    copy.reset();
  });
  streams.wait_until_none(milliseconds(60000));
  closing.join();
  EXPECT_EQ(copy, nullptr);
}

TEST(OpenStreams, AStreamThatNeverEndsIsLeftAfterTheTimeAndHurryShortensIt) {
  OpenStreams streams;
  const std::shared_ptr<void> stuck = streams.enter();
  streams.wait_until_none(milliseconds(1));
  OpenStreams hurried;
  const std::shared_ptr<void> open = hurried.enter();
  std::thread impatient([&] { hurried.hurry(milliseconds(1)); });
  hurried.wait_until_none(milliseconds(600000));
  impatient.join();
}

}  // namespace
}  // namespace server
