#include "http/open_requests.h"

#include <gtest/gtest.h>

#include <thread>

namespace server {
namespace {

using std::chrono::milliseconds;

TEST(OpenRequests, NothingIsWaitedForWhenNoRequestIsOpen) {
  OpenRequests requests;
  (void)requests.enter();
  const auto begin = OpenRequests::Clock::now();
  requests.wait_until_none(milliseconds(60000));
  EXPECT_LT(OpenRequests::Clock::now() - begin, milliseconds(30000));
}

TEST(OpenRequests, TheWaitEndsWithTheLastRequest) {
  OpenRequests requests;
  std::shared_ptr<void> first = requests.enter();
  std::shared_ptr<void> copy = first;
  std::thread closing([&] {
    first.reset();
    copy.reset();
  });
  requests.wait_until_none(milliseconds(60000));
  closing.join();
  EXPECT_EQ(copy, nullptr);
}

TEST(OpenRequests, AStreamThatNeverEndsIsLeftAfterTheTimeAndHurryShortensIt) {
  OpenRequests requests;
  const std::shared_ptr<void> stuck = requests.enter();
  requests.wait_until_none(milliseconds(1));
  OpenRequests hurried;
  const std::shared_ptr<void> open = hurried.enter();
  std::thread impatient([&] { hurried.hurry(milliseconds(1)); });
  hurried.wait_until_none(milliseconds(600000));
  impatient.join();
}

}  // namespace
}  // namespace server
