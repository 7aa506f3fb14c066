#include "llama/sampling_ranges.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ggml/error.h"
#include "llama/sampler.h"
#include "sample/test_vocab.h"

namespace llama {
namespace {

TEST(SamplingRanges, TheDefaultsAreAllowed) {
  const SamplingParams defaults;
  for (const RealParam& param : real_params()) EXPECT_TRUE(allows(param, double{defaults.*param.value})) << param.name;
  for (const WholeParam& param : whole_params()) EXPECT_TRUE(allows(param, defaults.*param.value)) << param.name;
}

TEST(SamplingRanges, WhatClientsSendToSwitchASamplerOffIsAllowed) {
  for (const char* name : {"top_p", "typical_p", "tfs_z", "xtc_threshold"}) EXPECT_TRUE(allows(real_param(name), 1));
  for (const char* name : {"temperature", "min_p", "xtc_probability", "dynatemp_range", "repeat_penalty", "top_n_sigma",
                           "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base"})
    EXPECT_TRUE(allows(real_param(name), 0)) << name;
  for (const char* name : {"adaptive_target", "top_n_sigma", "temperature"})
    EXPECT_TRUE(allows(real_param(name), -1)) << name;
  for (const char* name : {"top_k", "repeat_last_n", "dry_penalty_last_n"}) {
    EXPECT_TRUE(allows(whole_param(name), 0)) << name;
    EXPECT_TRUE(allows(whole_param(name), -1)) << name;
  }
}

TEST(SamplingRanges, NothingThatIsNoUsableNumberIsAllowed) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const RealParam& param : real_params()) {
    for (const double value : {kNan, kInfinity, -kInfinity, 3.4e38, -1e308, 1e10})
      EXPECT_FALSE(allows(param, value)) << param.name << " " << value;
  }
  EXPECT_FALSE(allows(real_param("repeat_penalty"), 1e-45));
  EXPECT_FALSE(allows(real_param("top_p"), 1.01));
  EXPECT_FALSE(allows(real_param("xtc_probability"), 5));
  EXPECT_FALSE(allows(real_param("min_p"), -0.01));
  EXPECT_FALSE(allows(whole_param("mirostat"), 3));
}

TEST(SamplingRanges, SayWhatIsAllowedInWordsThatAreTrue) {
  EXPECT_EQ(range_text(real_param("top_p")), "a number from 0 to 1");
  EXPECT_EQ(range_text(real_param("temperature")), "a number from -1e9 to 1e9");
  EXPECT_EQ(range_text(real_param("repeat_penalty")), "0 (off) or a number from 1e-6 to 1e9");
  EXPECT_EQ(range_text(whole_param("mirostat")), "a whole number from 0 to 2");
  EXPECT_EQ(range_text(whole_param("repeat_last_n")), "a whole number of at least -1");
  EXPECT_EQ(range_text(whole_param("top_k")), "a whole number from -2147483647 to 2147483647");
}

TEST(SamplingRanges, TheSamplerRefusesWhatTheyDoNotAllowByNameValueAndRange) {
  const Vocab vocab = testing::word_vocab({"a"});
  const auto message_of = [&](const SamplingParams& params) {
    try {
      (void)Sampler(params, vocab, 64);
    } catch (const ggml::Error& error) {
      EXPECT_EQ(error.code(), ggml::ErrorCode::invalid_argument);
      return error.message();
    }
    return std::string("no error");
  };
  SamplingParams params;
  params.top_p = 5;
  EXPECT_EQ(message_of(params), "top_p must be a number from 0 to 1, got 5");
  params = {};
  params.temperature = 3.4e38f;
  EXPECT_EQ(message_of(params), "temperature must be a number from -1e9 to 1e9, got 3.4e+38");
  params = {};
  params.repeat_penalty = 0;
  EXPECT_EQ(message_of(params), "no error");
  params = {};
  params.dry_breakers.assign(kMaxDryBreakers + 1, "x");
  EXPECT_EQ(message_of(params), "dry_sequence_breakers: 1025 strings, 1024 are allowed");
}

}  // namespace
}  // namespace llama
