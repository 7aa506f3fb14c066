#include "common/setup/planned_run.h"

#include <gtest/gtest.h>

#include <random>

#include "common/args/args_test_support.h"
#include "common/setup/setup.h"
#include "ggml/cuda.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "test_support.h"

namespace common {
namespace {

using testing::settings_of;

std::string model(const char* name) {
  return (tandem::data_dir() / "models" / (std::string(name) + ".gguf")).string();
}

/// The words of a line that a shell would make of `text`; only the quotes of shell_quoted() occur.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '\\') {
      word += text[++i];
    } else if (c == ' ') {
      words.push_back(std::move(word));
      word.clear();
    } else {
      word += c;
    }
  }
  words.push_back(std::move(word));
  return words;
}

PlannedRun planned(Tool tool, const std::vector<std::string>& line) {
  const Settings settings = settings_of(tool, line);
  return plan_run(settings, sequences_of(tool, settings));
}

/// Everything that a plan decides, as text.
std::string decided(const PlannedRun& run) {
  std::string text = ggml::strf("context %d", run.context.n_ctx);
  const llama::Plan& plan = run.plan();
  for (const llama::TensorPlan& tensor : plan.tensors)
    for (const llama::TensorPlan::Place& place : tensor.places)
      text += ggml::strf("\n%s %s %d %llu", tensor.name.c_str(),
                         plan.devices[static_cast<std::size_t>(place.device.v)].name.c_str(),
                         static_cast<int>(place.kind), static_cast<unsigned long long>(place.bytes));
  for (std::size_t i = 0; i < plan.layer_device.size(); ++i)
    text += ggml::strf("\nlayer %zu %d %d", i, plan.layer_device[i].v, plan.kv_device[i].v);
  for (const llama::DeviceUse& use : plan.use)
    text += ggml::strf("\n%llu", static_cast<unsigned long long>(use.total()));
  return text;
}

template <class T>
const T& one_of(std::mt19937& random, const std::vector<T>& values) {
  return values[random() % values.size()];
}

void add(std::vector<std::string>& line, const std::vector<std::string>& words) {
  line.insert(line.end(), words.begin(), words.end());
}

/// What is not a rule: model and machine.
std::vector<std::string> random_machine(std::mt19937& random, int n_cards) {
  std::vector<std::string> line{
      "-m", model(one_of<const char*>(random, {"qwen3moe-q8_0", "mixtral", "llama", "gemma3"})), "-t", "1"};
  for (int i = 0; i < n_cards; ++i)
    add(line, {"--sim-device", ggml::strf("CUDA%d:%dMiB,bw=%d", i, 1 + static_cast<int>(random() % 4),
                                          300 + static_cast<int>(random() % 3000))});
  return line;
}

std::vector<std::string> random_rules(std::mt19937& random, int n_cards) {
  std::vector<std::string> line{"--fit", one_of<std::string>(random, {"on", "on", "off"}), "-fitt",
                                one_of<std::string>(random, {"0", "1"})};
  const auto sometimes = [&](unsigned one_in, const std::vector<std::string>& words) {
    if (random() % one_in == 0) add(line, words);
  };
  const int card = static_cast<int>(random() % static_cast<unsigned>(n_cards));
  sometimes(3, {"-ngl", one_of<std::string>(random, {"0", "1", "2", "99", "all"})});
  sometimes(4, {"--cpu-moe"});
  sometimes(3, {"--n-cpu-moe", one_of<std::string>(random, {"1", "1:first", "1:last", "1:even", "2"})});
  sometimes(4, {"--n-cpu-ffn", "1"});
  sometimes(4, {"-sm", "none"});
  sometimes(4, {"-mg", std::to_string(card)});
  sometimes(5, {"-nkvo"});
  sometimes(3, {"-ot", one_of<std::string>(random, {"ffn_up=CPU", R"(blk\.0\.=CUDA0)", "down_exps.weight$=CUDA_Host",
                                                    R"(^(?!blk\.1\.)=CPU)", "output=CPU,exps=CUDA0"})});
  sometimes(3, {"-c", one_of<std::string>(random, {"512", "1000", "4096"})});
  sometimes(4, {"-ub", "64", "-b", "128"});
  sometimes(4, {"-ctk", "q8_0", "-ctv", "q8_0"});
  sometimes(4, {"--no-mmap"});
  if (n_cards > 1) sometimes(3, {"-ts", n_cards == 2 ? "0.3333333,1" : "1,0.1,2.5"});
  if (n_cards > 1) sometimes(4, {"-dev", n_cards == 2 ? "CUDA1,CUDA0" : "CUDA2,CUDA0,CUDA1"});
  return line;
}

TEST(FlagsOf, GiveTheSamePlanForAnyModelAndRules) {
  ggml::set_log_level(ggml::LogLevel::error);
  std::mt19937 random(29);
  int n_checked = 0;
  const int n_rounds = tandem::rounds(200);
  for (int round = 0; round < n_rounds; ++round) {
    const int n_cards = 1 + static_cast<int>(random() % 3);
    const std::vector<std::string> machine = random_machine(random, n_cards);
    std::vector<std::string> line = machine;
    add(line, random_rules(random, n_cards));
    std::string text;
    try {
      const Settings settings = settings_of(Tool::fit_params, line);
      const PlannedRun run = plan_run(settings, 1);
      const std::string flags = flags_of(run, settings);
      std::vector<std::string> again = machine;
      add(again, words_of(flags));
      // Without --fit: the flags say it all.
      EXPECT_EQ(decided(planned(Tool::cli, again)), decided(run)) << flags;
      ++n_checked;
    } catch (const ggml::Error& error) {
      // A cache type that the model's heads cannot have.
      ASSERT_EQ(error.code(), ggml::ErrorCode::unsupported) << error.what();
    }
  }
  EXPECT_GT(n_checked, n_rounds * 6 / 10);
}

TEST(PlanRun, WhatItOffersWhereAPlanDoesNotFitDoesFit) {
  ggml::set_log_level(ggml::LogLevel::error);
  std::mt19937 random(31);
  int n_offered = 0;
  const int n_rounds = tandem::rounds(150);
  for (int round = 0; round < n_rounds; ++round) {
    const int n_cards = 1 + static_cast<int>(random() % 3);
    std::vector<std::string> line = random_machine(random, n_cards);
    add(line, random_rules(random, n_cards));
    add(line, {"-c", one_of<std::string>(random, {"4096", "16384", "65536"}), "--dry-run", "--sim-device",
               one_of<std::string>(random, {"CPU:8MiB", "CPU:64GiB"})});
    try {
      const PlannedRun run = planned(Tool::server, line);
      if (run.fits || run.change.empty()) continue;
      // "RULE in place of RULE" is said of what is there already.
      if (run.change.find(" in place of ") != std::string::npos) continue;
      ++n_offered;
      std::vector<std::string> changed = line;
      add(changed, words_of(run.change));
      EXPECT_TRUE(planned(Tool::server, changed).fits) << ::testing::PrintToString(line) << run.change;
    } catch (const ggml::Error& error) {
      ASSERT_EQ(error.code(), ggml::ErrorCode::unsupported) << error.what();
    }
  }
  EXPECT_GT(n_offered, n_rounds / 8);
}

TEST(PlanRun, FitOnTwoCardsKeepsNCpuMoeAndFits) {
  ggml::set_log_level(ggml::LogLevel::error);
  for (const char* blocks : {"1", "1:even", "1:first", "1:last"}) {
    const PlannedRun run =
        planned(Tool::server, {"-m", model("qwen3moe-q8_0"), "-t", "1", "--fit", "--fit-target", "0", "--n-cpu-moe",
                               blocks, "-c", "256", "--sim-device", "CUDA0:1MiB", "--sim-device", "CUDA1:2MiB"});
    EXPECT_TRUE(run.fits) << blocks << ": " << shortfall_text(run);
  }
}

TEST(PlanRun, ContextThatFitTakesAwayIsSaidWithTheFlagThatKeepsIt) {
  ggml::set_log_level(ggml::LogLevel::error);
  const PlannedRun run =
      planned(Tool::cli, {"-m", model("llama"), "-t", "1", "--fit-ctx", "256", "--fit-target", "0", "--override-kv",
                          "llama.context_length=int:65536", "--sim-device", "CUDA0:4MiB"});
  ASSERT_LT(run.context.n_ctx, 65536);
  ASSERT_EQ(run.fit_notes.size(), 1u);
  EXPECT_EQ(run.fit_notes[0], ggml::strf("--fit: context %d instead of 65536, so that more of the model is on GPUs; "
                                         "-c 65536 keeps it",
                                         run.context.n_ctx));
  EXPECT_FALSE(run.explains);
}

TEST(PlanRun, ListsOfMoreValuesThanThereAreGpusAreErrors) {
  const std::vector<std::string> machine{"-m",           model("llama"), "-t",           "1",
                                         "--sim-device", "CUDA0:1GiB",   "--sim-device", "CUDA1:1GiB"};
  const auto message = [&](const std::vector<std::string>& words) -> std::string {
    std::vector<std::string> line = machine;
    add(line, words);
    try {
      (void)planned(Tool::cli, line);
    } catch (const ggml::Error& error) {
      return error.message();
    }
    return {};
  };
  EXPECT_EQ(message({"-ts", "1,1,1"}), "error: -ts: 3 values for 2 GPUs (CUDA0, CUDA1)");
  EXPECT_EQ(message({"--fit-target", "1,2,3"}), "error: --fit-target: 3 values for 2 GPUs (CUDA0, CUDA1)");
  EXPECT_EQ(message({"-gfm", "CUDA2,100"}), "error: -gfm: there is no GPU CUDA2");
  EXPECT_EQ(message({"-gfm", "2,100"}), "error: -gfm: there is no GPU 2");
  EXPECT_EQ(message({"-ts", "1,1", "--fit-target", "1,2", "-gfm", "CUDA1,100"}), "");
  EXPECT_EQ(message({"-ts", "1,1,1", "-dev", "none"}), "");
}

TEST(PlanRun, AContextIsWholeBlocks) {
  for (const auto& [given, planned_for] : {std::pair("300", 320), std::pair("1", 64), std::pair("512", 512)})
    EXPECT_EQ(planned(Tool::cli, {"-m", model("llama"), "-t", "1", "-c", given}).context.n_ctx, planned_for);
  EXPECT_EQ(planned(Tool::server, {"-m", model("llama"), "-t", "1", "-c", "300", "-np", "3"}).context.n_ctx, 384);
}

TEST(PlanRun, AContextBeyondTheTrainingIsAWarningWithWhatToDo) {
  ggml::set_log_level(ggml::LogLevel::error);
  const auto warnings = [](Tool tool, const std::vector<std::string>& words) {
    std::vector<std::string> line{"-m", model("llama"), "-t", "1", "--override-kv", "llama.context_length=int:1000"};
    add(line, words);
    return planned(tool, line).placed.warnings;
  };
  EXPECT_TRUE(warnings(Tool::cli, {}).empty());
  EXPECT_TRUE(warnings(Tool::cli, {"-c", "1000"}).empty());
  EXPECT_TRUE(warnings(Tool::server, {"-c", "4000", "-np", "4"}).empty());
  EXPECT_TRUE(warnings(Tool::cli, {"-c", "4000", "--rope-scaling", "yarn", "--rope-scale", "4"}).empty());
  const std::vector<std::string> one = warnings(Tool::cli, {"-c", "4000"});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0],
            "the context of 4032 tokens is longer than the 1000 that the model was trained with: what lies beyond them "
            "is read badly; use a smaller -c, or stretch them with --rope-scaling yarn --rope-scale 4.1");
  const std::vector<std::string> slots = warnings(Tool::server, {"-c", "8000", "-np", "4"});
  ASSERT_EQ(slots.size(), 1u);
  EXPECT_TRUE(slots[0].starts_with("the context of 2048 tokens for each of 4 sequences is longer than the 1000 "))
      << slots[0];
}

TEST(PlanRun, FlagsWithoutEffectAreNamedOnAMachineWithoutGpu) {
  const PlannedRun run = planned(Tool::cli, {"-m", model("llama"), "-t", "1", "-c", "64", "-ngl", "99", "-dev", "none",
                                             "--n-cpu-moe", "4", "-ot", "nonsense=CPU"});
  const std::vector<std::string> lines = idle_flags(run);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "--n-cpu-moe 4 has no effect: the model has no experts");
  EXPECT_EQ(lines[1], "the CPU computes everything: -dev none");
  EXPECT_TRUE(lines[2].starts_with("-ot: 'nonsense' matches no tensor")) << lines[2];
}

TEST(PlanRun, LogicalDevicesNeedACard) {
  if (!ggml::find_cuda_devices().devices.empty()) GTEST_SKIP() << "there is one";
  try {
    (void)planned(Tool::cli, {"-m", model("llama"), "-t", "1", "-c", "64", "--cuda-logical-devices", "2"});
    ADD_FAILURE() << "was accepted";
  } catch (const ggml::Error& error) {
    EXPECT_EQ(error.code(), ggml::ErrorCode::invalid_argument);
    EXPECT_TRUE(std::string(error.what()).starts_with("error: --cuda-logical-devices 2: no card to divide: "))
        << error.what();
  }
}

TEST(PlanRun, NamedMarginIsThatOfTheCard) {
  ggml::set_log_level(ggml::LogLevel::error);
  for (const char* which : {"CUDA0,10", "0,10"}) {
    const PlannedRun run =
        planned(Tool::cli, {"-m", model("llama"), "-t", "1", "-c", "256", "--fit", "--fit-target", "0", "-gfm", which,
                            "--sim-device", "CUDA0:10MiB", "--sim-device", "CUDA1:10MiB"});
    EXPECT_EQ(run.plan().use[1].weights, 0u) << which;
    EXPECT_GT(run.plan().use[2].weights, 0u) << which;
  }
}

}  // namespace
}  // namespace common
