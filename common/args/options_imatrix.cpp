// llama-imatrix.
#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::string_view kGroup = "Importance matrix";
constexpr std::string_view kLeaveOut = "leave it out";

const std::vector<Option> kRows = {
    option({"-o", "--output-file", "--output"}, "FNAME", "File to write.",
           text([](Settings& s) -> auto& { return s.imatrix.output; }))
        .initially("imatrix.gguf"),
    option({"--output-format"}, "gguf|dat",
           "Format of that file: GGUF, or the older one of llama.cpp and ik_llama.cpp.",
           [](Target& target, const Argument& argument) {
             target.settings.imatrix.legacy_format = to_word(argument, Words<bool>{{"gguf", false}, {"dat", true}});
           })
        .initially("gguf; dat if the name ends with .dat"),
    option({"-ofreq", "--output-frequency"}, "N", "Write the file every N chunks.",
           whole(
               [](Settings& s) -> auto& { return s.imatrix.output_frequency; }, 1))
        .initially("10"),
    option({"--save-frequency"}, "N", "Keep a copy, named with the number of chunks, every N chunks; 0: never.",
           whole(
               [](Settings& s) -> auto& { return s.imatrix.save_frequency; }, 0))
        .initially("0"),
    option({"--process-output"}, "", "Collect for output.weight too.",
           toggle([](Settings& s) -> auto& { return s.imatrix.process_output; }))
        .initially("off"),
    option({"--ppl"}, "", "Compute the perplexity on the way.",
           toggle([](Settings& s) -> auto& { return s.imatrix.perplexity; }))
        .negative({"--no-ppl"})
        .initially("on"),
    option({"--chunk", "--from-chunk"}, "N", "Skip the first N chunks of the text.",
           whole(
               [](Settings& s) -> auto& { return s.imatrix.first_chunk; }, 0))
        .initially("0"),
    option({"--in-file"}, "FNAME", "Begin with the sums of this file, to go on or to merge; repeatable.",
           [](Target& target, const Argument& argument) { target.settings.imatrix.inputs.push_back(argument.value()); })
        .list(),
    option({"--show-statistics"}, "", "Print statistics of the files given with --in-file and end.",
           toggle([](Settings& s) -> auto& { return s.imatrix.show_statistics; })),
    option({"--parse-special"}, "", "Read special tokens in the text as such.",
           toggle([](Settings& s) -> auto& { return s.imatrix.parse_special; }))
        .initially("off"),
    option({"-lsim", "--layer-similarity"}, "", "Print how much each layer changes its input.")
        .refused("layer similarity", kLeaveOut),
    option({"--output-draft", "--draft-output", "--draft-output-file"}, "FNAME", "Matrix of a draft model.")
        .refused("draft models", "run llama-imatrix on the draft model"),
    option({"--output-tensor-name"}, "NAME", "Name of the output tensor.")
        .no_effect("the output tensor is known by its role"),
};

}  // namespace

void add_imatrix_options(std::vector<Option>& table) {
  for (Option row : kRows) {
    row.group = kGroup;
    row.tools = kImatrix;
    table.push_back(std::move(row));
  }
}

}  // namespace common
