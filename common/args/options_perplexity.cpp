// llama-perplexity.
#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::string_view kGroup = "Perplexity";

const std::vector<Option> kRows = {
    option({"--chunks"}, "N", "Most chunks of the text that are read; -1: all.",
           whole(
               [](Settings& s) -> auto& { return s.perplexity.chunks; }, -1))
        .used_by(kScorers)
        .initially("-1"),
    option({"--ppl-stride"}, "N", "Windows that begin every N tokens instead of chunks; 0: chunks.",
           whole(
               [](Settings& s) -> auto& { return s.perplexity.stride; }, 0))
        .initially("0"),
    option({"--ppl-output-type"}, "0|1", "1: one line per chunk, with the number of tokens.",
           whole(
               [](Settings& s) -> auto& { return s.perplexity.output_type; }, 0, 1))
        .initially("0"),
    option({"--save-all-logits", "--kl-divergence-base"}, "FNAME",
           "File of the predictions: written, or with --kl-divergence read.",
           text([](Settings& s) -> auto& { return s.perplexity.logits_file; })),
    option({"--kl-divergence"}, "", "Compare the predictions with those in the file of --kl-divergence-base.",
           toggle([](Settings& s) -> auto& { return s.perplexity.kl_divergence; })),
    option({"--hellaswag"}, "", "Score HellaSwag tasks from -f.",
           toggle([](Settings& s) -> auto& { return s.perplexity.hellaswag; })),
    option({"--hellaswag-tasks"}, "N", "Number of tasks, drawn at random.",
           whole(
               [](Settings& s) -> auto& { return s.perplexity.hellaswag_tasks; }, 1))
        .initially("400"),
    option({"--winogrande"}, "", "Score Winogrande tasks from -f.",
           toggle([](Settings& s) -> auto& { return s.perplexity.winogrande; })),
    option({"--winogrande-tasks"}, "N", "Number of tasks, drawn at random; 0: all.",
           whole(
               [](Settings& s) -> auto& { return s.perplexity.winogrande_tasks; }, 0))
        .initially("0"),
    option({"--multiple-choice"}, "", "Score multiple-choice tasks from -bf.",
           toggle([](Settings& s) -> auto& { return s.perplexity.multiple_choice; })),
    option({"--multiple-choice-tasks"}, "N", "Number of tasks, drawn at random; 0: all.",
           whole(
               [](Settings& s) -> auto& { return s.perplexity.multiple_choice_tasks; }, 0))
        .initially("0"),
};

}  // namespace

void add_perplexity_options(std::vector<Option>& table) {
  for (Option row : kRows) {
    row.group = kGroup;
    // A row that names its own set keeps it.
    if (row.tools == kModelRunners) row.tools = kPerplexity;
    table.push_back(std::move(row));
  }
}

}  // namespace common
