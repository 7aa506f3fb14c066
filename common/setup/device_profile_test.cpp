#include "common/setup/device_profile.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ggml/cpu.h"
#include "ggml/error.h"
#include "ggml/simulated.h"
#include "test_support.h"

namespace common {
namespace {

const ProfiledDevice kCpu{"CPU", "a processor", 64ull << 30, 8, 16}, kCard{"CUDA0", "a card", 24ull << 30, 0, 0};
constexpr DeviceSpeeds kCpuSpeeds{50e9, 0, 1.5e12}, kCardSpeeds{900e9, 24e9, 1e14};

class Profile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  /// What reading this text says.
  std::string error_of(const std::string& text) {
    try {
      (void)DeviceProfile::read(write(text));
    } catch (const ggml::Error& error) {
      EXPECT_NE(error.hint().find("measured and written anew"), std::string::npos);
      return error.message();
    }
    return {};
  }
  tandem::TempDir folder_;
  std::string path_ = (folder_.path() / "devices.json").string();
};

TEST_F(Profile, IsReadAsItWasWritten) {
  EXPECT_FALSE(DeviceProfile::read(path_));
  DeviceProfile profile;
  profile.set(kCpu, kCpuSpeeds);
  profile.set(kCard, kCardSpeeds);
  profile.write(path_);
  const auto again = DeviceProfile::read(path_);
  ASSERT_TRUE(again && again->find(kCpu) && again->find(kCard));
  EXPECT_EQ(*again->find(kCpu), kCpuSpeeds);
  EXPECT_EQ(*again->find(kCard), kCardSpeeds);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".part"));
  EXPECT_THROW(profile.write((folder_.path() / "none" / "devices.json").string()), ggml::Error);
}

TEST_F(Profile, KnowsADeviceByWhatItIs) {
  DeviceProfile profile;
  profile.set(kCpu, kCpuSpeeds);
  profile.set(kCard, kCardSpeeds);
  ProfiledDevice threads = kCpu;
  threads.n_threads = 4;
  EXPECT_EQ(profile.find(threads), nullptr);
  ASSERT_NE(profile.other(threads), nullptr);
  profile.set(threads, {30e9, 0, 1e12});  // beside the first
  EXPECT_TRUE(profile.find(kCpu) != nullptr && profile.find(threads) != nullptr);
  ProfiledDevice card = kCard;
  card.description = "another card";
  EXPECT_EQ(profile.find(card), nullptr);
  EXPECT_EQ(profile.other(card)->description, "a card");
  profile.set(card, kCardSpeeds);  // in its place
  EXPECT_EQ(profile.find(kCard), nullptr);
}

TEST_F(Profile, DamageIsNamedWithItsPlace) {
  const std::string named = "error: --device-profile " + path_ + ": ";
  EXPECT_EQ(error_of("{\"version\": 1, \"devices\": ").find(named + "the file is not valid JSON"), 0u);
  EXPECT_EQ(error_of("[]"), named + "the file: an object expected, [] found");
  EXPECT_EQ(error_of("{}"), named + "version: 1 expected, nothing found");
  EXPECT_EQ(error_of(R"({"version": 2})"), named + "version: 1 expected, 2 found");
  EXPECT_EQ(error_of(R"({"version": 1, "devices": 3})"), named + "devices: a list expected, 3 found");
  const auto device = [](const std::string& rest) {
    return R"({"version": 1, "devices": [{"name": "CUDA0", "description": "a card", "memory": 5, )" + rest + "}]}";
  };
  EXPECT_EQ(error_of(device(R"("bandwidth": "fast")")),
            named + "devices[0].bandwidth: a number per second above 0 expected, \"fast\" found");
  EXPECT_EQ(error_of(device(R"("bandwidth": 1e9, "arithmetic": -1)")),
            named + "devices[0].arithmetic: a number per second above 0 expected, -1 found");
  EXPECT_EQ(error_of(device(R"("bandwidth": 1e9, "arithmetic": 1e9)")),
            named + "devices[0].link: a number per second above 0 expected, nothing found");
  EXPECT_EQ(error_of(device(R"("bandwidth": 1e9, "arithmetic": 1e9, "link": 1e9)")), "");
  EXPECT_THROW((void)DeviceProfile::read(folder_.path().string()), ggml::Error);
}

TEST(MeasureCard, GivesAllSpeedsOfACard) {
  ggml::SimulatedDeviceSpec spec;
  spec.name = "CUDA0";
  spec.memory_bytes = 128u << 20;
  const auto card = ggml::make_simulated_device(spec, ggml::DeviceId(1));
  const std::uint64_t free = card->memory().free;
  const DeviceSpeeds speeds = measure_card(*card);
  EXPECT_GT(speeds.bandwidth, 0);
  EXPECT_GT(speeds.link, 0);
  EXPECT_GT(speeds.arithmetic, 0);
  EXPECT_EQ(card->memory().free, free);  // nothing is left there
}

}  // namespace
}  // namespace common
