#include "common/args/args.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "common/args/args_test_support.h"
#include "common/args/cpu_list.h"
#include "common/args/table.h"
#include "common/args/tensor_rules.h"
#include "ggml/log.h"
#include "test_support.h"

namespace common {
namespace {

using testing::error_of;
using testing::fake_environment;
using testing::notes_of;
using testing::parse_line;
using testing::settings_of;

class Args : public ::testing::Test {
 protected:
  void SetUp() override { fake_environment().clear(); }
  void TearDown() override { fake_environment().clear(); }
};

TEST_F(Args, SingleDashLongFormsAreWholeWords) {
  const Settings s = settings_of(Tool::server, {"-ub", "64", "-np", "3", "-ctk", "q8_0", "-ngl", "99", "-fa", "on"});
  EXPECT_EQ(s.context.n_ubatch, 64);
  EXPECT_EQ(s.context.n_parallel, 3);
  EXPECT_EQ(ggml::type_info(s.cache.type_k).id, "q8_0");
  EXPECT_EQ(s.placement.n_gpu_layers, 99);
  EXPECT_EQ(s.context.flash_attention, Tristate::on);
}

TEST_F(Args, UnderscoreStandsForDashInLongOptionsOnly) {
  EXPECT_EQ(settings_of(Tool::server, {"--n_gpu_layers", "7", "--ctx_size", "512"}).context.n_ctx, 512);
  EXPECT_EQ(error_of(Tool::server, {"-n_predict", "7"}).message(), "error: invalid argument: -n_predict");
}

TEST_F(Args, ValuesAreTakenAsTheyAre) {
  const Settings s = settings_of(Tool::cli, {"-p", "-hello", "--in-prefix", "", "--in-suffix", "{}", "-r", "[a]", "-r",
                                             "%%", "--temp", "-1", "-n", "-2"});
  EXPECT_EQ(s.prompt.prompt, "-hello");
  EXPECT_EQ(s.prompt.in_prefix, "");
  EXPECT_EQ(s.prompt.in_suffix, "{}");
  EXPECT_EQ(s.prompt.reverse_prompts, (std::vector<std::string>{"[a]", "%%"}));
  EXPECT_EQ(s.sampling.temperature, -1.0F);
  EXPECT_EQ(s.prompt.n_predict, -2);
}

TEST_F(Args, OptionalValueIsConsumedOnlyWhenItIsOneOfItsWords) {
  EXPECT_EQ(settings_of(Tool::server, {"-fa", "-c", "8"}).context.flash_attention, Tristate::on);
  EXPECT_EQ(settings_of(Tool::server, {"-fa", "OFF", "-c", "8"}).context.flash_attention, Tristate::off);
  EXPECT_EQ(settings_of(Tool::server, {"-fa", "auto"}).context.flash_attention, Tristate::automatic);
  EXPECT_EQ(settings_of(Tool::server, {"-fa", "on", "-no-fa"}).context.flash_attention, Tristate::off);
  EXPECT_EQ(error_of(Tool::server, {"-fa", "maybe"}).message(), "error: invalid argument: maybe");
  EXPECT_TRUE(settings_of(Tool::server, {"--webui", "auto"}).server.web_page);
  EXPECT_FALSE(settings_of(Tool::server, {"--webui", "none"}).server.web_page);
  EXPECT_FALSE(settings_of(Tool::server, {"--no-webui"}).server.web_page);
}

TEST_F(Args, UnknownArgumentIsNamedWithTheNearestSpelling) {
  const ggml::Error error = error_of(Tool::server, {"--no-such-flag"});
  EXPECT_EQ(error.message(), "error: invalid argument: --no-such-flag");
  EXPECT_NE(error_of(Tool::server, {"--ctx-sise", "8"}).hint().find("Did you mean --ctx-size?"), std::string::npos);
  EXPECT_NE(error_of(Tool::server, {"--n-gpu-layer", "8"}).hint().find("--n-gpu-layers"), std::string::npos);
  EXPECT_NE(error_of(Tool::server, {"-nglx"}).hint().find("-ngl"), std::string::npos);
  EXPECT_NE(error_of(Tool::server, {"--prot", "80"}).hint().find("--port"), std::string::npos);
  EXPECT_EQ(error_of(Tool::server, {"model.gguf"}).message(), "error: invalid argument: model.gguf");
}

TEST_F(Args, AShortenedNameIsFoundByItsWords) {
  const auto proposal = [&](const std::vector<std::string>& line) {
    const std::string hint = error_of(Tool::server, line).hint();
    const std::size_t begin = hint.find("Did you mean ");
    return begin == std::string::npos ? hint : hint.substr(begin + 13, hint.find('?') - begin - 13);
  };
  EXPECT_EQ(proposal({"--tmp", "0.5"}), "--temp");
  EXPECT_EQ(proposal({"--ctx", "8"}), "--ctx-size");
  EXPECT_EQ(proposal({"--gpu-layer", "8"}), "--gpu-layers");
  EXPECT_EQ(proposal({"--flash"}), "--flash-attn");
  EXPECT_EQ(proposal({"--temperatur", "1"}), "--temperature");
  EXPECT_EQ(proposal({"--verb"}), "--verbose");
  EXPECT_EQ(proposal({"--metric"}), "--metrics");
  EXPECT_EQ(proposal({"--chat-templ", "x"}), "--chat-template");
  EXPECT_EQ(proposal({"--seeed", "1"}), "--seed");
  EXPECT_EQ(proposal({"-M", "x"}), "-m");
  EXPECT_EQ(proposal({"--Port", "1"}), "--port");
  for (const char* unlike : {"--unrelated-words", "-", "--", "---", "-9"})
    EXPECT_EQ(proposal({unlike}).find("For the list of options"), 0U) << unlike;
}

TEST_F(Args, EqualsSignIsExplained) {
  const ggml::Error error = error_of(Tool::server, {"--port=80"});
  EXPECT_EQ(error.message(), "error: invalid argument: --port=80");
  EXPECT_EQ(error.hint(), "A value is the next argument: --port 80");
  EXPECT_EQ(error_of(Tool::server, {"-fa=on"}).hint(), "A value is the next argument: -fa on");
  EXPECT_EQ(error_of(Tool::server, {"--metrics=true"}).hint(), "--metrics takes no value: leave \"true\" out.");
  EXPECT_EQ(error_of(Tool::server, {"--no-mmap=1"}).hint(), "--no-mmap takes no value: leave \"1\" out.");
  EXPECT_EQ(error_of(Tool::server, {"--help=x"}).hint(), "--help takes no value.");
}

TEST_F(Args, MissingValueIsAnError) {
  EXPECT_EQ(error_of(Tool::server, {"-c"}).message(),
            "error while handling argument \"-c\": expected value for argument");
  EXPECT_EQ(error_of(Tool::server, {"--control-vector-layer-range", "1"}).code(), ggml::ErrorCode::invalid_argument);
}

TEST_F(Args, AdaptersAndControlVectorsComeWithAndWithoutScale) {
  const ModelSettings model =
      settings_of(Tool::server,
                  {"--lora", "a.gguf,\"b,1.gguf\"", "--lora-scaled", "c.gguf:0.5,d:e.gguf:-1", "--lora-scaled",
                   "f.gguf", "2", "--lora-init-without-apply", "--control-vector", "v.gguf", "--control-vector-scaled",
                   "w.gguf:0.25", "--control-vector-layer-range", "3", "20"})
          .model;
  const auto text = [](const std::vector<ScaledFile>& files) {
    std::string all;
    for (const ScaledFile& file : files)
      all += ggml::strf("%s*%g ", file.path.c_str(), static_cast<double>(file.scale));
    return all;
  };
  EXPECT_EQ(text(model.adapters), "a.gguf*1 b,1.gguf*1 c.gguf*0.5 d:e.gguf*-1 f.gguf*2 ");
  EXPECT_TRUE(model.adapters_start_at_zero);
  EXPECT_EQ(text(model.control_vectors), "v.gguf*1 w.gguf*0.25 ");
  EXPECT_EQ(model.control_vector_layers, std::make_pair(3, 20));
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--lora-scaled", "a.gguf:x"},
                                                {"--lora-scaled", "a.gguf", "nan"},
                                                {"--lora-scaled", "a.gguf:1,b.gguf"},
                                                {"--lora-scaled", ":1"},
                                                {"--lora", ""},
                                                {"--control-vector-layer-range", "1", "x"},
                                                {"--control-vector-layer-range", "-1", "2"}}) {
    EXPECT_EQ(error_of(Tool::cli, wrong).code(), ggml::ErrorCode::invalid_argument) << wrong[1];
  }
}

TEST_F(Args, IllTypedValueSaysWhatWasExpectedAndShowsTheOptionsHelp) {
  const ggml::Error error = error_of(Tool::server, {"-c", "abc"});
  EXPECT_EQ(error.message(),
            "error while handling argument \"-c\": expected a whole number of at least 0, got \"abc\"");
  EXPECT_NE(error.hint().find("--ctx-size N"), std::string::npos);
  EXPECT_EQ(error_of(Tool::server, {"--port", "65536"}).message(),
            "error while handling argument \"--port\": expected a whole number from 0 to 65535, got \"65536\"");
  for (const char* value : {"", " 1", "1 ", "1e3", "0x10", "99999999999999999999", "--", "1.5"}) {
    EXPECT_EQ(error_of(Tool::server, {"-b", value}).code(), ggml::ErrorCode::invalid_argument) << value;
  }
  for (const char* value : {"", "nan", "inf", "0,5", "1e999", "abc"}) {
    EXPECT_EQ(error_of(Tool::server, {"--top-p", value}).code(), ggml::ErrorCode::invalid_argument) << value;
  }
  EXPECT_EQ(error_of(Tool::server, {"--rope-scaling", "x"}).message(),
            "error while handling argument \"--rope-scaling\": expected one of none, linear or yarn, got \"x\"");
}

TEST_F(Args, EnvironmentIsReadAndTheCommandLineWins) {
  fake_environment() = {{"LLAMA_ARG_CTX_SIZE", "4096"}, {"LLAMA_ARG_CPU_MOE", "1"}};
  EXPECT_EQ(settings_of(Tool::server, {}).context.n_ctx, 4096);
  const Parsed parsed = parse_line(Tool::server, {"-c", "8192"});
  EXPECT_EQ(parsed.settings.context.n_ctx, 8192);
  EXPECT_TRUE(parsed.settings.placement.cpu_moe);
  EXPECT_NE(notes_of(parsed).find("warning: LLAMA_ARG_CTX_SIZE is set, but -c on the command line overrides it"),
            std::string::npos);
}

TEST_F(Args, BooleanVariablesFollowTheirWords) {
  fake_environment() = {{"LLAMA_ARG_MMAP", "off"}};
  EXPECT_EQ(settings_of(Tool::server, {}).model.load_mode, LoadMode::read);
  fake_environment() = {{"LLAMA_ARG_NO_MMAP", "anything"}};
  EXPECT_EQ(settings_of(Tool::server, {}).model.load_mode, LoadMode::read);
  fake_environment() = {{"LLAMA_ARG_MMAP", "enabled"}};
  EXPECT_EQ(settings_of(Tool::server, {}).model.load_mode, LoadMode::mmap);
  fake_environment() = {{"LLAMA_ARG_MLOCK", "yes"}};  // no negative form: acts only on a true word
  EXPECT_FALSE(settings_of(Tool::server, {}).model.lock_memory);
  fake_environment() = {{"LLAMA_ARG_MMAP", "perhaps"}};
  EXPECT_EQ(error_of(Tool::server, {}).message(),
            "error while handling environment variable \"LLAMA_ARG_MMAP\": expected on or off, got \"perhaps\"");
}

TEST_F(Args, IllTypedVariableIsNamed) {
  fake_environment() = {{"LLAMA_ARG_PORT", "http"}};
  EXPECT_EQ(
      error_of(Tool::server, {}).message(),
      "error while handling environment variable \"LLAMA_ARG_PORT\": expected a whole number from 0 to 65535, got "
      "\"http\"");
  EXPECT_EQ(error_of(Tool::cli, {}).code(), ggml::ErrorCode::internal) << "llama-cli has no port";
}

TEST_F(Args, ScalarsKeepTheLastValueWithAWarningAndListsAddUp) {
  const Parsed parsed = parse_line(Tool::server, {"-c", "1", "-c", "2", "--api-key", "a,b", "--api-key", "c"});
  EXPECT_EQ(parsed.settings.context.n_ctx, 2);
  EXPECT_EQ(parsed.settings.server.api_keys, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(notes_of(parsed), "warning: -c is given more than once; the last value is used\n");
}

TEST_F(Args, ListsOfTheEnvironmentComeFirst) {
  fake_environment() = {{"LLAMA_ARG_OVERRIDE_TENSOR", "a=CPU"}, {"LLAMA_API_KEY", "env"}};
  const Settings s = settings_of(Tool::server, {"-ot", "b=CPU,c=CPU", "-ot", "d=CPU", "--api-key", "line"});
  ASSERT_EQ(s.placement.tensor_rules.size(), 4U);
  EXPECT_EQ(s.placement.tensor_rules[0].first, "a");
  EXPECT_EQ(s.placement.tensor_rules[3].first, "d");
  EXPECT_EQ(s.server.api_keys, (std::vector<std::string>{"env", "line"}));
}

TEST_F(Args, TensorRulesSplitAtCommasAndAtTheFirstEqualsSign) {
  const Settings s = settings_of(Tool::server, {"-ot", R"(blk\.(0|1)\.ffn_.*_exps\.=CPU,exps=CPU)"});
  ASSERT_EQ(s.placement.tensor_rules.size(), 2U);
  EXPECT_EQ(s.placement.tensor_rules[0],
            std::make_pair(std::string(R"(blk\.(0|1)\.ffn_.*_exps\.)"), std::string("CPU")));
}

TEST_F(Args, TensorRuleWithoutEqualsSignIsNamedAndTheCommaExplained) {
  const ggml::Error error = error_of(Tool::server, {"-ot", "a{1,2}=CPU"});
  EXPECT_NE(error.message().find("invalid value: \"a{1\""), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("a comma always begins the next item"), std::string::npos);
}

TEST_F(Args, TensorRuleWithoutABufferIsAnError) {
  EXPECT_NE(error_of(Tool::server, {"-ot", "exps="}).message().find("names no buffer type"), std::string::npos);
}

TEST_F(Args, TensorPatternsOfEcmaScriptCompileAndBrokenOnesAreLocated) {
  for (const char* good :
       {"[^]", "[]", R"(a\/b\-c)", "(ch|)", "a(?=b)", "a(?!b)", "a*?", R"((a)\1)", R"(\x41B\cA)", "a]", "a}"}) {
    EXPECT_EQ(error_of(Tool::server, {"-ot", std::string(good) + "=CPU"}).message(), "") << good;
  }
  const ggml::Error error = error_of(Tool::server, {"-ot", "(exps=CPU"});
  EXPECT_NE(error.message().find("pattern \"(exps\" does not compile: at position 5"), std::string::npos)
      << error.message();
}

TEST_F(Args, RefusedFlagNamesItselfTheFeatureAndTheWayOut) {
  EXPECT_EQ(error_of(Tool::server, {"-sm", "row"}).message(),
            "error: -sm row: needs split mode row, not in this version; use -sm layer");
  EXPECT_EQ(error_of(Tool::server, {"-md", "d.gguf"}).message(),
            "error: -md d.gguf: needs speculative decoding, not in this version; leave it out");
  EXPECT_EQ(error_of(Tool::server, {"--moe-cache-mib", "8192"}).message(),
            "error: --moe-cache-mib 8192: needs the expert cache, not in this version; use --cpu-moe or --n-cpu-moe");
  fake_environment() = {{"LLAMA_ARG_SPEC_TYPE", "ngram-mod"}};
  EXPECT_EQ(error_of(Tool::server, {}).message(),
            "error: LLAMA_ARG_SPEC_TYPE ngram-mod: needs speculative decoding, not in this version; leave it out");
}

TEST_F(Args, ValuesThatAskForNothingAreAccepted) {
  const Parsed parsed = parse_line(Tool::server, {"--spec-type",
                                                  "none",
                                                  "--moe-cache-mib",
                                                  "0",
                                                  "-no-mtp",
                                                  "--no-mmproj",
                                                  "--cache-ram",
                                                  "0",
                                                  "--ctx-checkpoints",
                                                  "0",
                                                  "--dry-multiplier",
                                                  "0",
                                                  "--mirostat",
                                                  "0",
                                                  "-ser",
                                                  "-1,0",
                                                  "-nr",
                                                  "-fmoe",
                                                  "-fmoe",
                                                  "1"});
  EXPECT_EQ(parsed.action, Action::run);
}

TEST_F(Args, FlagsWithoutEffectSaySoOnce) {
  EXPECT_EQ(
      notes_of(parse_line(Tool::server, {"--peg", "--peg"})),
      "info: --peg has no effect here: there is one parser\nwarning: --peg is given more than once; the last value "
      "is used\n");
  EXPECT_EQ(notes_of(parse_line(Tool::server, {"--penalize-nl"})),
            "warning: --penalize-nl has no effect here: it is always counted\n");
}

TEST_F(Args, PlacementFlagsAreKeptForThePlan) {
  const Parsed parsed =
      parse_line(Tool::server, {"-ngl",    "99",    "-ncmoe",  "7:even", "-ncffn", "2",           "-sm",   "none",
                                "-mg",     "1",     "-ts",     "3/1",    "-dev",   "CUDA1,CUDA0", "-nkvo", "-fit",
                                "explain", "-fitt", "100,200", "-gfm",   "1,300",  "-fitc",       "2048"});
  const PlacementSettings& placement = parsed.settings.placement;
  EXPECT_EQ(placement.n_gpu_layers, 99);
  EXPECT_EQ(placement.n_cpu_moe, 7);
  EXPECT_EQ(placement.n_cpu_moe_blocks, ExpertBlocks::even);
  EXPECT_EQ(placement.n_cpu_ffn, 2);
  EXPECT_EQ(placement.split_mode, SplitMode::none);
  EXPECT_EQ(placement.main_gpu, 1);
  EXPECT_EQ(placement.tensor_split, (std::vector<float>{3, 1}));
  EXPECT_EQ(placement.devices, (std::vector<std::string>{"CUDA1", "CUDA0"}));
  EXPECT_FALSE(placement.kv_offload);
  EXPECT_EQ(placement.fit, Fit::explain);
  EXPECT_EQ(placement.fit_margins_mib, (std::vector<int>{100, 200}));
  EXPECT_EQ(placement.gpu_margins, (std::vector<std::pair<std::string, int>>{{"1", 300}}));
  EXPECT_EQ(placement.fit_context, 2048);
  EXPECT_EQ(notes_of(parsed), "");
  EXPECT_TRUE(settings_of(Tool::server, {"-dev", "none"}).placement.devices->empty());
  EXPECT_EQ(settings_of(Tool::server, {"--fit", "-c", "8"}).placement.fit, Fit::on);
  EXPECT_EQ(settings_of(Tool::server, {"--dry-run", "-c", "8"}).placement.dry_run, DryRun::table);
  EXPECT_EQ(settings_of(Tool::server, {"-dr", "json"}).placement.dry_run, DryRun::json);
}

TEST_F(Args, NegativeAndMisspeltPlacementValuesAreErrors) {
  for (const std::vector<std::string>& line : {std::vector<std::string>{"-ncmoe", "-1"},
                                               {"-ncmoe", "3:middle"},
                                               {"-dev", ""},
                                               {"-gfm", "1"},
                                               {"-ts", "x"},
                                               {"-ts", ""},
                                               {"-ts", "1,,1"},
                                               {"-ts", "1/1/"},
                                               {"-fitt", "1024,"},
                                               {"-fitt", "1024,x"},
                                               {"-fitc", "4096,8192"},
                                               {"--sim-device", "none:8GiB"},
                                               {"--sim-device", "CUDA_Host:8GiB"},
                                               {"--sim-device", "cpu:8GiB"},
                                               {"--sim-device", "CUDA0\n:8GiB"},
                                               {"--sim-device", "0:8GiB"},
                                               {"--sim-device", "a b:8GiB"},
                                               {"--cuda-logical-devices", "0"},
                                               {"--cuda-logical-devices", "9"},
                                               {"-ts", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"}})
    EXPECT_EQ(error_of(Tool::server, line).code(), ggml::ErrorCode::invalid_argument) << line.back();
}

TEST_F(Args, SimulatedDevicesHaveASizeAndMayHaveSpeedsAndGaps) {
  const Settings s = settings_of(
      Tool::server, {"--sim-device", "CUDA0:24GiB,bw=1000,link=25,caps=mla/q4_k", "--sim-device", "CUDA1:512MiB"});
  const std::vector<SimulatedDevice>& devices = s.placement.simulated;
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[0].name, "CUDA0");
  EXPECT_EQ(devices[0].bytes, std::uint64_t{24} << 30);
  EXPECT_EQ(devices[0].bandwidth, 1000e9);
  EXPECT_EQ(devices[0].link, 25e9);
  EXPECT_EQ(devices[0].lacks, (std::vector<std::string>{"mla", "q4_k"}));
  EXPECT_EQ(devices[1].bytes, std::uint64_t{512} << 20);
  EXPECT_FALSE(devices[1].bandwidth.has_value());
  for (const char* bad : {"CUDA0", "CUDA0:", ":24GiB", "CUDA0:24XB", "CUDA0:24GiB,CUDA1:24GiB", "CUDA0:1GiB,bw=fast",
                          "CUDA0:1GiB,speed=1"})
    EXPECT_EQ(error_of(Tool::server, {"--sim-device", bad}).code(), ggml::ErrorCode::invalid_argument) << bad;
  EXPECT_EQ(error_of(Tool::server, {"--sim-device", "A:1M", "--sim-device", "A:1M"}).code(),
            ggml::ErrorCode::invalid_argument);
}

TEST_F(Args, GpuLayersKnowWords) {
  EXPECT_EQ(settings_of(Tool::server, {"-ngl", "auto"}).placement.n_gpu_layers, std::nullopt);
  EXPECT_EQ(settings_of(Tool::server, {"-ngl", "all"}).placement.n_gpu_layers, std::numeric_limits<int>::max());
  EXPECT_EQ(settings_of(Tool::server, {"-ngl", "-2"}).placement.n_gpu_layers, std::numeric_limits<int>::max());
}

TEST_F(Args, MicroBatchIsCappedToTheBatchWithOneWarning) {
  const Parsed parsed = parse_line(Tool::server, {"-b", "512", "-ub", "2048"});
  EXPECT_EQ(parsed.settings.context.n_ubatch, 512);
  EXPECT_EQ(notes_of(parsed), "warning: -ub 2048 is more than -b 512; -ub is now 512\n");
  EXPECT_EQ(notes_of(parse_line(Tool::server, {"-b", "256"})), "") << "a default is adjusted silently";
}

TEST_F(Args, QuantisedValuesNeedFlashAttention) {
  EXPECT_EQ(error_of(Tool::server, {"-ctv", "q8_0", "-fa", "off"}).message(),
            "error: -ctv q8_0 needs flash attention, which -fa off switches off");
  EXPECT_EQ(error_of(Tool::server, {"-ctv", "q8_0"}).message(), "");
  EXPECT_EQ(error_of(Tool::server, {"-ctk", "q8_0", "-fa", "off"}).message(), "");
  EXPECT_EQ(error_of(Tool::server, {"-ctv", "iq4_nl", "-fa", "off"}).message(),
            "error: -ctv iq4_nl needs flash attention, which -fa off switches off");
}

TEST_F(Args, CacheTypesAreCheckedByName) {
  const ggml::Error unknown = error_of(Tool::server, {"-ctk", "q9_9"});
  EXPECT_NE(unknown.message().find("Unsupported cache type: q9_9"), std::string::npos) << unknown.message();
  EXPECT_NE(unknown.message().find("known are f32, f16, bf16, q8_0"), std::string::npos) << unknown.message();
  EXPECT_NE(error_of(Tool::server, {"-ctv", "q4_k"}).message().find("Unsupported cache type: q4_k"), std::string::npos);
  for (const char* name : {"f32", "F16", "bf16", "q8_0", "q8_KV", "q6_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"}) {
    const Settings s = settings_of(Tool::server, {"-ctk", name, "-ctv", name});
    EXPECT_EQ(s.cache.type_k, *ggml::type_from_name(name));
    EXPECT_EQ(s.cache.type_v, s.cache.type_k);
  }
}

TEST_F(Args, TheHadamardTransformIsSwitchedForKeysAndValuesApart) {
  EXPECT_FALSE(settings_of(Tool::server, {}).cache.k_hadamard);
  const Settings keys = settings_of(Tool::server, {"-khad"});
  EXPECT_TRUE(keys.cache.k_hadamard);
  EXPECT_FALSE(keys.cache.v_hadamard);
  EXPECT_TRUE(settings_of(Tool::server, {"--v-cache-hadamard"}).cache.v_hadamard);
}

TEST_F(Args, MetadataOverridesAreTypedAndAddUp) {
  const Settings s = settings_of(Tool::server, {"--override-kv", "a.b=int:5,c=bool:true", "--override-kv",
                                                "\"d=str:x,y\"", "-okv", "e=float:1.5"});
  ASSERT_EQ(s.model.overrides.size(), 4U);
  EXPECT_EQ(s.model.overrides[0].integer, 5);
  EXPECT_TRUE(s.model.overrides[1].boolean);
  EXPECT_EQ(s.model.overrides[2].text, "x,y");
  EXPECT_EQ(s.model.overrides[3].number, 1.5);
  const std::string too_long(128, 'x');
  for (const std::string& bad :
       {std::string("a"), std::string("a=int:x"), std::string("a=what:1"), std::string("=int:1"),
        std::string("a=bool:on"), "a=str:" + too_long, too_long + "=int:1"}) {
    EXPECT_EQ(error_of(Tool::server, {"--override-kv", bad}).code(), ggml::ErrorCode::invalid_argument) << bad;
  }
}

TEST_F(Args, LogitBiasTakesAnIdAndASignedNumber) {
  const Settings s = settings_of(Tool::cli, {"-l", "15043+1", "-l", "7-0.5", "-l", "9-inf"});
  ASSERT_EQ(s.sampling.logit_bias.size(), 3U);
  EXPECT_EQ(s.sampling.logit_bias[0], std::make_pair(15043, 1.0F));
  EXPECT_EQ(s.sampling.logit_bias[1], std::make_pair(7, -0.5F));
  EXPECT_EQ(s.sampling.logit_bias[2].second, -std::numeric_limits<float>::infinity());
  for (const char* bad : {"15043", "x+1", "5+", "5+1x", "5+nan", "-5+1"})
    EXPECT_EQ(error_of(Tool::cli, {"-l", bad}).code(), ggml::ErrorCode::invalid_argument) << bad;
}

TEST_F(Args, SamplersAreNamedInAnySpellingAndUnknownOnesAreSkipped) {
  const Parsed parsed = parse_line(Tool::cli, {"--samplers", "Top-K;nucleus;typical;what;temp"});
  EXPECT_EQ(parsed.settings.sampling.samplers, (std::vector<std::string>{"top_k", "top_p", "typ_p", "temperature"}));
  EXPECT_EQ(notes_of(parsed), "warning: --samplers: unknown sampler \"what\" is skipped\n");
  EXPECT_EQ(settings_of(Tool::cli, {"--sampling-seq", "kmt"}).sampling.samplers,
            (std::vector<std::string>{"top_k", "min_p", "temperature"}));
}

TEST_F(Args, SamplingRemembersWhatTheUserSet) {
  const Settings s = settings_of(Tool::cli, {"--top-k", "5", "--temp", "0"});
  EXPECT_TRUE(s.sampling.is_given("top_k"));
  EXPECT_TRUE(s.sampling.is_given("temperature"));
  EXPECT_FALSE(s.sampling.is_given("top_p"));
}

TEST_F(Args, SeedMinusOneIsAllOnes) {
  EXPECT_EQ(settings_of(Tool::cli, {"-s", "-1"}).sampling.seed, 0xFFFFFFFFU);
  EXPECT_EQ(settings_of(Tool::cli, {"-s", "4294967295"}).sampling.seed, 0xFFFFFFFFU);
  EXPECT_EQ(settings_of(Tool::cli, {"-s", "42"}).sampling.seed, 42U);
}

TEST_F(Args, EverySamplerTakesItsNumbers) {
  const Settings s = settings_of(Tool::cli, {"--dry-multiplier",
                                             "0.8",
                                             "--dry-base",
                                             "2",
                                             "--dry-allowed-length",
                                             "3",
                                             "--dry-penalty-last-n",
                                             "-1",
                                             "--dry-sequence-breaker",
                                             "\\n\\n",
                                             "--mirostat",
                                             "2",
                                             "--mirostat-lr",
                                             "0.2",
                                             "--mirostat-ent",
                                             "4",
                                             "--xtc-probability",
                                             "0.5",
                                             "--xtc-threshold",
                                             "0.2",
                                             "--top-nsigma",
                                             "1.5",
                                             "--dynatemp-range",
                                             "0.3",
                                             "--dynatemp-exp",
                                             "2",
                                             "--adaptive-target",
                                             "0.4",
                                             "--adaptive-decay",
                                             "0.8",
                                             "--adaptive-updt-w-cur",
                                             "--tfs",
                                             "0.9"});
  EXPECT_FLOAT_EQ(s.sampling.dry_multiplier, 0.8F);
  EXPECT_FLOAT_EQ(s.sampling.dry_base, 2.0F);
  EXPECT_EQ(s.sampling.dry_allowed_length, 3);
  EXPECT_EQ(s.sampling.dry_penalty_last_n, -1);
  EXPECT_EQ(s.sampling.dry_breakers, (std::vector<std::string>{"\n\n"}));
  EXPECT_EQ(s.sampling.mirostat, 2);
  EXPECT_FLOAT_EQ(s.sampling.mirostat_lr, 0.2F);
  EXPECT_FLOAT_EQ(s.sampling.mirostat_ent, 4.0F);
  EXPECT_FLOAT_EQ(s.sampling.xtc_probability, 0.5F);
  EXPECT_FLOAT_EQ(s.sampling.xtc_threshold, 0.2F);
  EXPECT_FLOAT_EQ(s.sampling.top_n_sigma, 1.5F);
  EXPECT_FLOAT_EQ(s.sampling.dynatemp_range, 0.3F);
  EXPECT_FLOAT_EQ(s.sampling.dynatemp_exponent, 2.0F);
  EXPECT_FLOAT_EQ(s.sampling.adaptive_target, 0.4F);
  EXPECT_FLOAT_EQ(s.sampling.adaptive_decay, 0.8F);
  EXPECT_TRUE(s.sampling.adaptive_new_p);
  EXPECT_FLOAT_EQ(s.sampling.tfs_z, 0.9F);
  EXPECT_EQ(error_of(Tool::cli, {"--mirostat", "3"}).code(), ggml::ErrorCode::invalid_argument);
  EXPECT_TRUE(settings_of(Tool::cli, {"--dry-sequence-breaker", "none"}).sampling.dry_breakers.empty());
  EXPECT_EQ(settings_of(Tool::cli, {"--sampling-seq", "edskypmxtiaf"}).sampling.samplers.size(), 12U);
}

TEST_F(Args, FilesAreReadAndEscapesProcessed) {
  const tandem::TempDir folder;
  const std::string file = (folder.path() / "f").string();
  std::ofstream(file) << "one\\ntwo\n";
  EXPECT_EQ(settings_of(Tool::cli, {"-f", file}).prompt.prompt, "one\ntwo");
  EXPECT_EQ(settings_of(Tool::cli, {"-f", file, "--no-escape"}).prompt.prompt, "one\\ntwo");
  EXPECT_EQ(settings_of(Tool::cli, {"-bf", file}).prompt.prompt, "one\\ntwo\n");
  EXPECT_EQ(settings_of(Tool::cli, {"-p", R"(a\tb\\c\x41\q)"}).prompt.prompt, "a\tb\\cA\\q");
  std::ofstream(file) << "k1\r\n\nk2\n";
  EXPECT_EQ(settings_of(Tool::server, {"--api-key-file", file}).server.api_keys,
            (std::vector<std::string>{"k1", "k2"}));
  std::ofstream(file) << "\n";  // a server without a key would be open to all
  EXPECT_EQ(error_of(Tool::server, {"--api-key-file", file}).code(), ggml::ErrorCode::invalid_argument);
  const ggml::Error error = error_of(Tool::cli, {"-f", file + "x"});
  EXPECT_EQ(error.message(), "error while handling argument \"-f\": cannot read file \"" + file + "x\"");
}

TEST_F(Args, AFileThatIsAFolderOrNeverEndsIsAnError) {
  const tandem::TempDir folder;
  for (const char* option : {"-f", "-bf", "-sysf", "--chat-template-file"}) {
    const ggml::Error error = error_of(Tool::cli, {option, folder.path().string()});
    EXPECT_NE(error.message().find(": it is a folder"), std::string::npos) << error.message();
  }
  const ggml::Error endless = error_of(Tool::server, {"--api-key-file", "/dev/zero"});
  EXPECT_NE(endless.message().find("larger than 256 MiB"), std::string::npos) << endless.message();
}

TEST_F(Args, AnEmptyHostDoesNotMeanAllAddresses) {
  EXPECT_NE(error_of(Tool::server, {"--host", ""}).message().find("an address"), std::string::npos);
}

TEST_F(Args, LoadModesMapToOneChoice) {
  EXPECT_EQ(settings_of(Tool::server, {"--no-mmap"}).model.load_mode, LoadMode::read);
  EXPECT_EQ(settings_of(Tool::server, {"-dio"}).model.load_mode, LoadMode::direct_io);
  EXPECT_EQ(settings_of(Tool::server, {"-dio", "-ndio"}).model.load_mode, LoadMode::mmap);
  const Settings s = settings_of(Tool::server, {"-lm", "mmap+mlock"});
  EXPECT_EQ(s.model.load_mode, LoadMode::mmap);
  EXPECT_TRUE(s.model.lock_memory);
}

TEST_F(Args, CpuListsAreMasksAndRanges) {
  EXPECT_EQ(parse_cpu_mask("0x5"), (std::vector<int>{0, 2}));
  EXPECT_EQ(parse_cpu_mask("F0"), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(parse_cpu_mask("xyz"), std::nullopt);
  EXPECT_EQ(parse_cpu_mask("0"), std::nullopt);
  EXPECT_EQ(parse_cpu_range("2-4"), (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(parse_cpu_range("-1"), (std::vector<int>{0, 1}));
  EXPECT_EQ(parse_cpu_range("4-2"), std::nullopt);
  EXPECT_EQ(parse_cpu_range("-"), std::nullopt);
}

TEST_F(Args, CudaParametersAreCheckedByKey) {
  const ggml::Error error = error_of(Tool::server, {"-cuda", "grahps=1"});
  EXPECT_NE(error.message().find("graphs=BOOL"), std::string::npos) << error.message();
  EXPECT_EQ(error_of(Tool::server, {"-cuda", "fusion=1,graphs=off"}).message(), "");
  EXPECT_EQ(error_of(Tool::server, {"-op", "-1,0"}).message(), "");
  EXPECT_EQ(error_of(Tool::server, {"-op", "NOPE,0"}).code(), ggml::ErrorCode::invalid_argument);
}

TEST_F(Args, AMissingModelIsExplained) {
  EXPECT_NE(error_of(Tool::server, {}, true).message().find("router mode"), std::string::npos);
  EXPECT_EQ(error_of(Tool::cli, {}, true).message(), "error: no model: give -m MODEL");
  EXPECT_EQ(error_of(Tool::server, {"--list-devices"}, true).message(), "");
}

TEST_F(Args, PrintingOptionsEndTheProgram) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(parse_line(Tool::server, {"-c", "1", "--help", "--nonsense"}).action, Action::exit_success);
  EXPECT_NE(::testing::internal::GetCapturedStdout().find("usage: llama-server"), std::string::npos);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(parse_line(Tool::server, {"--version"}).action, Action::exit_success);
  EXPECT_EQ(::testing::internal::GetCapturedStderr().rfind("version: ", 0), 0U);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(parse_line(Tool::cli, {"--completion-bash"}).action, Action::exit_success);
  EXPECT_NE(::testing::internal::GetCapturedStdout().find("complete -o filenames -F _llama_cli llama-cli"),
            std::string::npos);
}

TEST_F(Args, UnifiedCacheFollowsTheNumberOfSlots) {
  EXPECT_TRUE(settings_of(Tool::server, {}).cache.unified);
  EXPECT_FALSE(settings_of(Tool::server, {"-np", "2"}).cache.unified);
  EXPECT_TRUE(settings_of(Tool::server, {"-np", "2", "-kvu"}).cache.unified);
  EXPECT_FALSE(settings_of(Tool::server, {"-no-kvu"}).cache.unified);
}

}  // namespace
}  // namespace common
