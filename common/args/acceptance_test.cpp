// The command lines that users type (spec/cli.md, section 16): each is accepted, or refused with the reason given here.
#include <gtest/gtest.h>

#include <sstream>

#include "common/args/args_test_support.h"

namespace common {
namespace {

using testing::error_of;
using testing::fake_environment;
using testing::notes_of;
using testing::parse_line;

struct Line {
  const char* name;
  Tool tool;
  std::vector<std::string> arguments;
  std::string refusal;  // part of the error's text; empty: accepted
};

const std::vector<Line> kLines = {
    {"N1",
     Tool::server,
     {"-m", "M.gguf", "-ngl", "99", "--cpu-moe", "-c", "32768", "-fa", "on", "--host", "0.0.0.0", "--port", "8080"},
     ""},
    {"N2",
     Tool::server,
     {"-m", "M.gguf", "-ngl", "99", "-ncmoe", "20", "-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on", "-b", "4096", "-ub",
      "4096", "-t", "16", "--no-mmap"},
     ""},
    {"N3",
     Tool::server,
     {"-m", "M.gguf", "-ngl", "99", "-ot", R"(blk\.(0|1|2)\.ffn_.*_exps\.=CUDA0)", "-ot", "exps=CPU", "-fmoe", "-rtr",
      "-mla", "3", "-amb", "512", "-ub", "2048"},
     ""},
    {"N3OnCpu",
     Tool::server,
     {"-m", "M.gguf", "-ngl", "99", "-ot", "exps=CPU", "-fmoe", "-rtr", "-mla", "3", "-amb", "512", "-ub", "2048"},
     ""},
    {"N3WithoutRepacking",
     Tool::server,
     {"-m", "M.gguf", "-ngl", "99", "-ot", "exps=CPU", "-fmoe", "-mla", "3", "-amb", "512", "-ub", "2048"},
     ""},
    {"N4",
     Tool::server,
     {"-m", "M.gguf", "-ngl", "99", "-ot", R"(blk\.[0-9]\.ffn_.*_exps=CUDA0,blk\.1[0-9]\.ffn_.*_exps=CUDA1,exps=CPU)",
      "-ts", "1,1"},
     ""},
    {"N5",
     Tool::sweep_bench,
     {"-m", "M.gguf", "-c", "8704", "-b", "2048", "-ub", "512", "-ngl", "99", "-ot", "exps=CPU", "-t", "8", "-tb", "16",
      "-fa", "on", "-wb"},
     ""},
    {"N7",
     Tool::cli,
     {"-m", "M.gguf", "-no-cnv", "-p", "Hello", "-n", "32", "--temp", "0", "-ngl", "0", "-t", "4"},
     ""},
    {"N8",
     Tool::server,
     {"-m", "M.gguf", "-fit", "off", "-ngl", "all", "-sm", "layer", "-mg", "0", "-ot",
      R"(\.ffn_(up|down|gate)_exps=CPU)", "-nkvo"},
     ""},
    {"N9",
     Tool::server,
     {"-m", "M.gguf", "--numa", "numactl", "--mlock", "-t", "32", "-tb", "64", "--cpu-moe", "--cache-ram", "16384",
      "--ctx-checkpoints", "8", "--swa-full"},
     ""},
    {"N11", Tool::server, {"--no-such-flag"}, "error: invalid argument: --no-such-flag"},
    {"N13",
     Tool::server,
     {"-m", "M", "-c", "32768", "-ngl", "999", "-fa", "on", "-t", "16", "-b", "4096", "-ub", "4096", "--jinja",
      "--no-mmap", "-ot", R"(blk\.([0-9]|[1-2][0-9]|30)\.=CUDA0,exps=CPU)"},
     ""},
    {"N14", Tool::server, {"-m", "M", "-ngl", "999", "--n-cpu-moe", "31"}, ""},
    {"N15",
     Tool::server,
     {"-m", "M", "-ngl", "999", "-ot", R"(blk\.([0-9])\.=CUDA0,blk\.(1[0-9])\.=CUDA1,exps=CPU)"},
     ""},
    {"N16", Tool::server, {"-m", "M", "-ngl", "999", "-ot", R"(\.ffn_.*_exps\.=CPU)"}, ""},
    {"N17",
     Tool::server,
     {"-m", "M", "-ngl", "999", "-ot", R"(blk\.(19|[2-9][0-9])\.ffn_(up|gate|down)_exps\.weight=CPU)"},
     ""},
    {"N17Graph",
     Tool::server,
     {"-m", "M", "-ngl", "999", "-ot", R"(blk\.(19|[2-9][0-9])\.ffn_(up|gate|down)_exps\.weight=CPU)", "-sm", "graph"},
     "-sm graph: needs split mode graph, not in this version; use -sm layer"},
    {"N18", Tool::server, {"-m", "M", "--fit", "--fit-margin", "2048"}, ""},
    {"N19", Tool::server, {"-m", "M", "-ngl", "999", "--cache-type-k", "q8_0", "--cache-type-v", "q8_0"}, ""},
    {"N19WithoutFlash",
     Tool::server,
     {"-m", "M", "-ngl", "999", "--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "-fa", "off"},
     "needs flash attention"},
    {"N20", Tool::server, {"-m", "M", "-ngl", "999", "-fmoe", "0", "-ot", R"(\.ffn_.*_exps\.=CPU)"}, ""},
    {"N21",
     Tool::sweep_bench,
     {"-m", "M", "-c", "16384", "--no-mmap", "-ngl", "999", "-ot", "ffn.*=CPU", "-fa", "-mg", "0", "-ub", "2048",
      "-mla", "1", "-fmoe"},
     ""},
    {"N21SevenGpus",
     Tool::sweep_bench,
     {"-m", "M", "-ot", "blk.(0|1|2|3|4|5|6|7).ffn.=CUDA0", "-ot", "ffn.*=CPU", "-fa", "-fmoe"},
     ""},
    {"N22", Tool::sweep_bench, {"-c", "8704", "-ub", "512", "-m", "M"}, ""},
    {"N24", Tool::server, {"-m", "M", "-ngl", "999", "--cpu-moe", "--nvlink-optimized"}, ""},
    {"N25", Tool::server, {"-m", "M", "-ngl", "999", "--cpu-moe", "--moe-cache-mib", "8192"}, "needs the expert cache"},
    {"N26",
     Tool::server,
     {"-m", "M", "-ngl", "999", "--cpu-moe", "--dry-run", "json", "--sim-device", "CUDA0:24GiB,bw=1000,link=25"},
     ""},
    {"N26BadPattern", Tool::server, {"-m", "M", "-ot", "(exps=CPU"}, "does not compile"},
    {"N27", Tool::server, {"-m", "M", "-ngl", "999", "--cpu-moe", "-b", "512", "-ub", "2048"}, ""},
    {"N28", Tool::server, {"-m", "M", "-cuda", "grahps=1"}, "offload-batch-size=INT"},
};

class Acceptance : public ::testing::TestWithParam<Line> {
 protected:
  void SetUp() override { fake_environment().clear(); }
};

TEST_P(Acceptance, LineIsAcceptedOrRefusedWithItsReason) {
  const ggml::Error error = error_of(GetParam().tool, GetParam().arguments, true);
  if (GetParam().refusal.empty()) {
    EXPECT_EQ(error.message(), "");
  } else {
    EXPECT_NE(error.message().find(GetParam().refusal), std::string::npos) << error.message();
  }
}

INSTANTIATE_TEST_SUITE_P(Section16, Acceptance, ::testing::ValuesIn(kLines),
                         [](const ::testing::TestParamInfo<Line>& line) { return std::string(line.param.name); });

TEST(AcceptanceNotes, ServerLineRunsInTheSweepBenchWithServerFlagsListedOnce) {
  const Parsed parsed = parse_line(Tool::sweep_bench, {"-m", "M", "-c", "32768", "-fa", "on", "--jinja", "--no-mmap",
                                                       "--port", "8080", "--cache-ram", "1", "-ot", "exps=CPU"});
  const std::string notes = notes_of(parsed);
  EXPECT_NE(notes.find("info: not used by llama-sweep-bench: --jinja, --port, --cache-ram\n"), std::string::npos)
      << notes;
}

TEST(AcceptanceNotes, AServerLineWithFlagsThatOnlyConcernSpeedRunsEverywhere) {
  const std::vector<std::string> line{
      "-m",   "M",          "-c",        "32768",     "-ngl",     "99",   "-fit",
      "on",   "-fitt",      "1024,2048", "-ncmoe",    "20",       "-fa",  "on",
      "-b",   "4096",       "-ub",       "1024",      "-t",       "16",   "-tb",
      "32",   "--port",     "8080",      "--jinja",   "-cram",    "8192", "--cache-reuse",
      "256",  "--swa-full", "-thp",      "-mla",      "3",        "-amb", "512",
      "-ser", "6,1",        "-fmoe",     "--no-mmap", "--metrics"};
  fake_environment() = {{"LLAMA_ARG_CACHE_RAM", "4096"}, {"LLAMA_ARG_SWA_FULL", "1"}, {"LLAMA_ARG_CACHE_REUSE", "64"}};
  for (const Tool tool : {Tool::server, Tool::cli, Tool::sweep_bench, Tool::bench})
    EXPECT_EQ(error_of(tool, line, true).message(), "") << tool_name(tool);
  EXPECT_EQ(error_of(Tool::server, {"-m", "M", "-fa", "off", "-amb", "512"}, true).message(), "");
  const std::string server = notes_of(parse_line(Tool::server, line));
  for (const char* flag : {"-cram", "--cache-reuse", "--swa-full", "-thp"})
    EXPECT_NE(server.find(std::string("info: ") + flag + " has no effect here: "), std::string::npos) << server;
  EXPECT_NE(notes_of(parse_line(Tool::bench, line))
                .find("info: not used by llama-bench: -c, --port, --jinja, -cram, --cache-reuse, --swa-full, "
                      "--metrics\n"),
            std::string::npos)
      << notes_of(parse_line(Tool::bench, line));
  fake_environment().clear();
}

TEST(AcceptanceNotes, VariablesGiveWayToFlagsWithAWarning) {
  fake_environment() = {{"LLAMA_ARG_CTX_SIZE", "4096"}, {"LLAMA_ARG_CPU_MOE", "1"}};
  const Parsed parsed = parse_line(Tool::server, {"-m", "M.gguf", "-c", "8192"});
  fake_environment().clear();
  EXPECT_EQ(parsed.settings.context.n_ctx, 8192);
  EXPECT_TRUE(parsed.settings.placement.cpu_moe);
  EXPECT_NE(notes_of(parsed).find("warning: LLAMA_ARG_CTX_SIZE is set"), std::string::npos);
}

}  // namespace
}  // namespace common
