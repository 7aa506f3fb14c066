// Values of options: what they set, and those that are wrong, each refused with what it should be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "common/args/args_test_support.h"

namespace common {
namespace {

using testing::error_of;
using testing::fake_environment;
using testing::notes_of;
using testing::parse_line;
using testing::settings_of;

TEST(Values, ASamplingNumberOutsideItsRangeIsRefusedWithNameValueAndRange) {
  const auto message = [](const char* option, const char* value) {
    return error_of(Tool::cli, {option, value}).message();
  };
  EXPECT_EQ(message("--xtc-probability", "5"),
            "error while handling argument \"--xtc-probability\": expected a number from 0 to 1, got \"5\"");
  EXPECT_EQ(message("--temp", "3.4e38"),
            "error while handling argument \"--temp\": expected a number from -1e9 to 1e9, got \"3.4e38\"");
  EXPECT_EQ(message("--repeat-penalty", "1e-45"),
            "error while handling argument \"--repeat-penalty\": expected 0 (off) or a number from 1e-6 to 1e9, got "
            "\"1e-45\"");
  EXPECT_EQ(message("--mirostat", "7"),
            "error while handling argument \"--mirostat\": expected a whole number from 0 to 2, got \"7\"");
  for (const char* value : {"nan", "inf", "-inf", "1e400", "1.1", "-0.1", "x", ""})
    EXPECT_NE(message("--top-p", value).find("expected a number from 0 to 1"), std::string::npos) << value;
  for (const auto& [option, value] : {std::pair{"--top-p", "1"},
                                      {"--top-k", "0"},
                                      {"--top-k", "-1"},
                                      {"--min-p", "0"},
                                      {"--typical", "1.0"},
                                      {"--repeat-penalty", "0"},
                                      {"--repeat-last-n", "-1"},
                                      {"--top-nsigma", "-1"},
                                      {"--adaptive-target", "-1"},
                                      {"--xtc-threshold", "1"}})
    EXPECT_EQ(message(option, value), "") << option << " " << value;
  EXPECT_EQ(message("-l", "5+1e38"),
            "error while handling argument \"-l\": expected a bias of at most 1e9, got \"5+1e38\"");
}

TEST(Values, JsonThatIsNoneIsRefusedWithItsPlaceInOurOwnWords) {
  const ggml::Error schema = error_of(Tool::cli, {"-j", "{bad"});
  EXPECT_EQ(
      schema.message(),
      "error while handling argument \"-j\": the schema is not valid JSON: line 1, column 2 (byte 2 of 4): a key in "
      "double quotes was expected, got 'bad'");
  EXPECT_EQ(schema.hint(), "In a shell, put the whole text in single quotes.");
  EXPECT_NE(error_of(Tool::server, {"--chat-template-kwargs", "{\"a\": True}"})
                .message()
                .find("the value is not valid JSON: line 1, column 7 (byte 7 of 11): 'True' is no JSON value"),
            std::string::npos);
  EXPECT_NE(error_of(Tool::server, {"--chat-template-kwargs", "[1]"}).message().find("a JSON object"),
            std::string::npos);
  EXPECT_EQ(error_of(Tool::cli, {"-j", "{\"type\": \"object\"}"}).message(), "");
}

TEST(Values, AFileThatIsNoTextIsCalledWhatItIs) {
  const std::string path = ::testing::TempDir() + "tandem_args_text";
  const auto message = [&](const std::string& contents, const char* option) {
    std::ofstream(path, std::ios::binary) << contents;
    return error_of(Tool::cli, {option, path}).message();
  };
  for (const char* option : {"--chat-template-file", "--grammar-file", "-jf"}) {
    EXPECT_NE(message("GGUF\x03", option).find("is a GGUF file, not a text"), std::string::npos) << option;
    EXPECT_NE(message(std::string("{{ a }}\0", 8), option).find("is not a text: byte 8 is 0x00"), std::string::npos);
    EXPECT_NE(message("{\xFF", option).find("is not a text: byte 2 is 0xFF"), std::string::npos) << option;
    EXPECT_NE(message(" \n", option).find("is empty"), std::string::npos) << option;
  }
  EXPECT_EQ(message("{{ a }}", "--chat-template-file"), "");
  std::remove(path.c_str());
}

TEST(Values, NumaTakesItsWordsAndNothingMeansDistribute) {
  const auto numa = [](const std::string& word) { return settings_of(Tool::server, {"--numa", word}).threads.numa; };
  EXPECT_EQ(settings_of(Tool::server, {}).threads.numa, Numa::off);
  EXPECT_EQ(numa("distribute"), Numa::distribute);
  EXPECT_EQ(numa(""), Numa::distribute);
  EXPECT_EQ(numa("isolate"), Numa::isolate);
  EXPECT_EQ(numa("numactl"), Numa::numactl);
  EXPECT_EQ(error_of(Tool::server, {"--numa", "mirror"}).code(), ggml::ErrorCode::invalid_argument);
}

TEST(Values, OffloadOfPromptsIsSetPerOperationAndByBatchSize) {
  const auto offload = [&](const std::vector<std::string>& line) {
    return settings_of(Tool::server, line).placement.offload;
  };
  EXPECT_EQ(offload({}), OffloadSettings{});
  OffloadSettings expected;
  expected.mul_mat_id = expected.moe_up_gate = false;
  EXPECT_EQ(offload({"-op", "28,0,31,0"}), expected);
  expected.up_gate = false;
  expected.mul_mat_id = true;
  EXPECT_EQ(offload({"-op", "MOE_UP_GATE,0"}), expected);
  expected.up_gate = expected.moe_up_gate = true;
  expected.mul_mat = false;
  EXPECT_EQ(offload({"-op", "-1,0,27,0,MUL_MAT_ID,1,30,1,31,1"}), expected);
  EXPECT_EQ(offload({"-op", "1000,0"}), offload({"-op", "-1,0"}));
  EXPECT_EQ(error_of(Tool::server, {"-op", "29,0"}).code(), ggml::ErrorCode::invalid_argument);
  EXPECT_FALSE(offload({"-no-ooae"}).only_active_experts);
  EXPECT_EQ(offload({"-cuda", "fusion=1,offload-batch-size=64"}).batch_size, 64);
  EXPECT_EQ(offload({"-cuda", "offload-batch-size-per-byte=100"}).batch_size_per_byte, 100.0);
  EXPECT_EQ(offload({"-cuda", "offload-batch-size-per-byte=-1"}).batch_size_per_byte, std::nullopt);
}

TEST(Values, TheBatchSizeOfTheEnvironmentGivesWayToTheFlagWithAWarning) {
  fake_environment() = {{"GGML_OP_OFFLOAD_MIN_BATCH", "40"}};
  EXPECT_EQ(settings_of(Tool::server, {}).placement.offload.min_batch, 40);
  EXPECT_EQ(notes_of(parse_line(Tool::server, {})).find("GGML_OP_OFFLOAD_MIN_BATCH"), std::string::npos);
  for (const char* flag : {"offload-batch-size=64", "offload-batch-size-per-byte=2"})
    EXPECT_NE(notes_of(parse_line(Tool::server, {"-cuda", flag}))
                  .find("warning: GGML_OP_OFFLOAD_MIN_BATCH is set, but the batch size of -cuda"),
              std::string::npos)
        << flag;
  for (const char* bad : {"many", "-1", "1.5", "99999999999"}) {
    fake_environment() = {{"GGML_OP_OFFLOAD_MIN_BATCH", bad}};
    const ggml::Error error = error_of(Tool::server, {});
    EXPECT_EQ(error.code(), ggml::ErrorCode::invalid_argument) << bad;
    EXPECT_NE(error.message().find("GGML_OP_OFFLOAD_MIN_BATCH"), std::string::npos) << error.message();
  }
  fake_environment().clear();
}

TEST(Words, AWordBehindASwitchIsAnsweredWithTheSwitch) {
  const auto hint = [](const std::vector<std::string>& line) { return error_of(Tool::server, line).hint(); };
  EXPECT_EQ(error_of(Tool::server, {"--metrics", "1"}).message(), "error: invalid argument: 1");
  EXPECT_EQ(hint({"--metrics", "1"}), "--metrics takes no value: leave \"1\" out.");
  EXPECT_EQ(hint({"-c", "8", "--jinja", "true"}), "--jinja takes no value: leave \"true\" out.");
  EXPECT_EQ(hint({"--jinja", "false"}), "--jinja takes no value; to switch it off: --no-jinja");
  EXPECT_EQ(hint({"--metrics", "0"}), "--metrics takes no value: leave both out.");
  EXPECT_EQ(hint({"--mlock", "x.gguf"}), "--mlock takes no value.");
  EXPECT_EQ(hint({"--log-colors", "blue"}).rfind("--log-colors takes one of the words on, off, auto", 0), 0U);
  EXPECT_EQ(hint({"-c", "8", "9"}).rfind("Values follow the option they belong to", 0), 0U);
}

TEST(Words, AnEmptyPathOfTheModelIsNamed) {
  for (const Tool tool : {Tool::server, Tool::cli, Tool::sweep_bench, Tool::perplexity}) {
    EXPECT_EQ(error_of(tool, {"-m", ""}, true).message(), "error: -m: the path of the model is empty");
    EXPECT_EQ(error_of(tool, {"--model", ""}).hint(), "An unset variable between quotes gives such a word.");
  }
}

TEST(Words, AVariableThatNoOptionReadsIsAWarningWithTheNearestName) {
  fake_environment() = {{"LLAMA_ARG_CTXSIZE", "4096"}, {"LLAMA_ARG_NO_MMPA", "1"},   {"LLAMA_ARG_", ""},
                        {"LLAMA_ARG_QQQQQQQQ", "x"},   {"LLAMA_ARG_CTX_SIZE", "64"}, {"LLAMA_ARG_NO_MMAP", "1"},
                        {"LLAMA_ARG_PORT", "80"}};
  EXPECT_EQ(notes_of(parse_line(Tool::cli, {})),
            "warning: LLAMA_ARG_ is set, but there is no option of that name\n"
            "warning: LLAMA_ARG_CTXSIZE is set, but there is no option of that name; did you mean LLAMA_ARG_CTX_SIZE?\n"
            "warning: LLAMA_ARG_NO_MMPA is set, but there is no option of that name; did you mean LLAMA_ARG_NO_MMAP?\n"
            "warning: LLAMA_ARG_QQQQQQQQ is set, but there is no option of that name\n");
  fake_environment().clear();
  const std::vector<std::string> names = environment_names("PATH");
  EXPECT_NE(std::find(names.begin(), names.end(), "PATH"), names.end());
}

TEST(Words, OlderNamesOfLogVariablesActAndTheNewNameHolds) {
  fake_environment() = {{"LLAMA_LOG_FILE", "a.log"}, {"LLAMA_LOG_VERBOSITY", "4"}};
  EXPECT_EQ(settings_of(Tool::server, {}).log.file, "a.log");
  EXPECT_EQ(settings_of(Tool::server, {}).log.verbosity, 4);
  fake_environment()["LLAMA_ARG_LOG_FILE"] = "b.log";
  EXPECT_EQ(settings_of(Tool::server, {}).log.file, "b.log");
  fake_environment().clear();
}

}  // namespace
}  // namespace common
