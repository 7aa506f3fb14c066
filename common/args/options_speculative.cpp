// Speculative decoding: every flag is known and, in this version, refused.
#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::string_view kGroup = "Speculative decoding";

struct Row {
  std::vector<std::string_view> spellings;
  std::string_view placeholder;
  std::string_view help;
  std::string_view variable;
};

const std::vector<Row> kRows = {
    {{"-md", "--spec-draft-model", "--model-draft"}, "FNAME", "Draft model.", "LLAMA_ARG_SPEC_DRAFT_MODEL"},
    {{"-hfd", "-hfrd", "--spec-draft-hf", "--hf-repo-draft"},
     "REPO",
     "Download a draft model.",
     "LLAMA_ARG_SPEC_DRAFT_HF_REPO"},
    {{"-td", "--spec-draft-threads", "--threads-draft"}, "N", "Threads of the draft model.", ""},
    {{"-tbd", "--spec-draft-threads-batch", "--threads-batch-draft"}, "N", "Batch threads of the draft model.", ""},
    {{"-Cd", "--spec-draft-cpu-mask", "--cpu-mask-draft"}, "M", "CPU mask of the draft model.", ""},
    {{"-Crd", "--spec-draft-cpu-range", "--cpu-range-draft"}, "LO-HI", "CPU range of the draft model.", ""},
    {{"--spec-draft-cpu-strict", "--cpu-strict-draft"}, "0|1", "Strict placement of the draft model.", ""},
    {{"--spec-draft-prio", "--prio-draft"}, "N", "Priority of the draft model.", ""},
    {{"--spec-draft-poll", "--poll-draft"}, "N", "Polling of the draft model.", ""},
    {{"-Cbd", "--spec-draft-cpu-mask-batch", "--cpu-mask-batch-draft"}, "M", "Batch CPU mask of the draft model.", ""},
    {{"-Crbd", "--spec-draft-cpu-range-batch", "--cpu-range-batch-draft"},
     "LO-HI",
     "Batch CPU range of the draft model.",
     ""},
    {{"--spec-draft-cpu-strict-batch", "--cpu-strict-batch-draft"},
     "0|1",
     "Strict batch placement of the draft model.",
     ""},
    {{"--spec-draft-prio-batch", "--prio-batch-draft"}, "N", "Batch priority of the draft model.", ""},
    {{"--spec-draft-poll-batch", "--poll-batch-draft"}, "N", "Batch polling of the draft model.", ""},
    {{"-ctkd", "--spec-draft-type-k", "--cache-type-k-draft"},
     "TYPE",
     "Key type of the draft model.",
     "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K"},
    {{"-ctvd", "--spec-draft-type-v", "--cache-type-v-draft"},
     "TYPE",
     "Value type of the draft model.",
     "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V"},
    {{"-otd", "--spec-draft-override-tensor", "--override-tensor-draft"},
     "PATTERN=BUFFER",
     "Placement rules of the draft model.",
     ""},
    {{"-cmoed", "--spec-draft-cpu-moe", "--cpu-moe-draft"},
     "",
     "Experts of the draft model on the CPU.",
     "LLAMA_ARG_SPEC_DRAFT_CPU_MOE"},
    {{"-ncmoed", "--spec-draft-n-cpu-moe", "--spec-draft-ncmoe", "--n-cpu-moe-draft"},
     "N",
     "Blocks of them.",
     "LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE"},
    {{"--spec-draft-n-max"}, "N", "Longest draft.", "LLAMA_ARG_SPEC_DRAFT_N_MAX"},
    {{"--spec-draft-n-min"}, "N", "Shortest draft.", "LLAMA_ARG_SPEC_DRAFT_N_MIN"},
    {{"--draft-p-split", "--spec-draft-p-split"}, "P", "Split probability.", "LLAMA_ARG_SPEC_DRAFT_P_SPLIT"},
    {{"--draft-p-min", "--spec-draft-p-min"},
     "P",
     "Least probability of a drafted token.",
     "LLAMA_ARG_SPEC_DRAFT_P_MIN"},
    {{"-devd", "--spec-draft-device", "--device-draft"}, "LIST", "GPUs of the draft model.", ""},
    {{"-ngld", "--spec-draft-ngl", "--gpu-layers-draft", "--n-gpu-layers-draft"},
     "N",
     "GPU layers of the draft model.",
     "LLAMA_ARG_N_GPU_LAYERS_DRAFT"},
    {{"--spec-ngram-mod-n-min"}, "N", "n-gram drafting.", ""},
    {{"--spec-ngram-mod-n-max"}, "N", "n-gram drafting.", ""},
    {{"--spec-ngram-mod-n-match"}, "N", "n-gram drafting.", ""},
    {{"--spec-ngram-simple-size-n"}, "N", "n-gram drafting.", ""},
    {{"--spec-ngram-simple-size-m"}, "N", "n-gram drafting.", ""},
    {{"--spec-ngram-simple-min-hits"}, "N", "n-gram drafting.", ""},
    {{"--spec-ngram-map-k-size-n"}, "N", "n-gram drafting.", ""},
    {{"--spec-ngram-map-k-size-m"}, "N", "n-gram drafting.", ""},
    {{"--spec-ngram-map-k-min-hits"}, "N", "n-gram drafting.", ""},
    {{"--spec-ngram-map-k4v-size-n"}, "N", "n-gram drafting.", ""},
    {{"--spec-ngram-map-k4v-size-m"}, "N", "n-gram drafting.", ""},
    {{"--spec-ngram-map-k4v-min-hits"}, "N", "n-gram drafting.", ""},
    {{"--spec-ngram-size-n"}, "N", "Old name of --spec-ngram-simple-size-n.", ""},
    {{"--spec-ngram-size-m"}, "N", "Old name of --spec-ngram-simple-size-m.", ""},
    {{"--spec-ngram-min-hits"}, "N", "Old name of --spec-ngram-simple-min-hits.", ""},
    {{"--draft", "--draft-n", "--draft-max"}, "N", "Old name of --spec-draft-n-max.", "LLAMA_ARG_DRAFT_MAX"},
    {{"--draft-min", "--draft-n-min"}, "N", "Old name of --spec-draft-n-min.", "LLAMA_ARG_DRAFT_MIN"},
    {{"-draft", "--draft-params"}, "LIST", "Flags of the draft model.", ""},
    {{"-cd", "--ctx-size-draft"}, "N", "Context of the draft model.", ""},
    {{"-ps", "--p-split"}, "P", "Split probability.", ""},
    {{"-lcs", "--lookup-cache-static"}, "FNAME", "Static n-gram file.", ""},
    {{"-lcd", "--lookup-cache-dynamic"}, "FNAME", "Dynamic n-gram file.", ""},
    {{"--recurrent-ckpt-mode", "--spec-ckpt-mode"}, "WORD", "Checkpoints of recurrent layers.", ""},
    {{"--spec-autotune"}, "", "Tuning of the draft length.", ""},
    {{"--spec-default"}, "", "Preset of n-gram drafting.", ""},
    {{"--spec-stage"}, "S", "Stage of drafting.", ""},
    {{"--suffix-pattern-len"}, "N", "Suffix drafting.", ""},
    {{"--suffix-max-depth"}, "N", "Suffix drafting.", ""},
    {{"--suffix-corpus"}, "FNAME", "Suffix drafting.", ""},
    {{"-mtprot", "--mtp-requantize-output-tensor"}, "TYPE", "Output head of the MTP layer.", ""},
    {{"--mtp"}, "", "Draft with the MTP layer.", ""},
    {{"--dflash"}, "", "Draft with DFlash.", ""},
    {{"--eagle3"}, "", "Draft with EAGLE-3.", ""},
};

}  // namespace

void add_speculative_options(std::vector<Option>& table) {
  constexpr std::string_view kFeature = "speculative decoding";
  constexpr std::string_view kAdvice = "leave it out";
  const auto add = [&](Option row) {
    row.group = kGroup;
    row.tools = kGenerators;
    table.push_back(std::move(row));
  };
  add(option({"--spec-type"}, "LIST", "Ways of drafting; none: off.")
          .variable("LLAMA_ARG_SPEC_TYPE")
          .list()
          .refused(kFeature, kAdvice)
          .unless({"none"})
          .initially("none"));
  add(option({"-mtp", "--multi-token-prediction"}, "", "Draft with the MTP layer.")
          .negative({"-no-mtp", "--no-multi-token-prediction"})
          .refused(kFeature, kAdvice)
          .initially("off"));
  add(option({"--spec-draft-backend-sampling"}, "", "Sample the draft on the device.")
          .negative({"--no-spec-draft-backend-sampling"})
          .variable("LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING")
          .refused(kFeature, kAdvice));
  add(option({"--spec-replace"}, "TARGET DRAFT", "Replace text between the vocabularies.")
          .takes(2)
          .refused(kFeature, kAdvice));
  add(option({"--speculative-decoding"}, "N", "Draft, N tokens at most.")
          .words({"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "12", "16", "24", "32", "48", "64"})
          .refused(kFeature, kAdvice));
  for (const Row& row : kRows) {
    Option next = option(row.spellings, row.placeholder, row.help);
    if (!row.variable.empty()) next.variable(row.variable);
    add(std::move(next.refused(kFeature, kAdvice)));
  }
}

}  // namespace common
