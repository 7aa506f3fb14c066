// Options of programs that are not here (or not yet): known, so that a command line can be moved from one program to
// another; they are listed once as unused.
#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

struct Row {
  std::vector<std::string_view> spellings;
  std::string_view placeholder;
};

const std::vector<Row> kRows = {
    {{"--perplexity", "--all-logits"}, ""},
    {{"--context-file"}, "FNAME"},
    {{"--chunk-size"}, "N"},
    {{"--chunk-separator"}, "S"},
    {{"--junk"}, "N"},
    {{"--pos"}, "N"},
    {{"-pps"}, ""},
    {{"-tgs"}, ""},
    {{"-npp"}, "N,..."},
    {{"-ntg"}, "N,..."},
    {{"-npl"}, "N,..."},
    {{"--embd-output-format"}, "FORMAT"},
    {{"--embd-separator"}, "S"},
    {{"--cls-separator"}, "S"},
    {{"--positive-file"}, "FNAME"},
    {{"--negative-file"}, "FNAME"},
    {{"--pca-batch"}, "N"},
    {{"--pca-iter"}, "N"},
    {{"--method"}, "WORD"},
    {{"--tts-lang"}, "LANG"},
    {{"--tts-speaker-file"}, "FNAME"},
    {{"--diffusion-steps"}, "N"},
    {{"--diffusion-visual"}, ""},
    {{"--diffusion-eps"}, "N"},
    {{"--diffusion-algorithm"}, "N"},
    {{"--diffusion-alg-temp"}, "N"},
    {{"--diffusion-block-length"}, "N"},
    {{"--diffusion-cfg-scale"}, "N"},
    {{"--diffusion-add-gumbel-noise"}, "0|1"},
    {{"-lr", "--learning-rate"}, "N"},
    {{"-lr-min", "--learning-rate-min"}, "N"},
    {{"-decay-epochs", "--learning-rate-decay-epochs"}, "N"},
    {{"-wd", "--weight-decay"}, "N"},
    {{"-val-split", "--val-split"}, "N"},
    {{"-epochs", "--epochs"}, "N"},
    {{"-opt", "--optimizer"}, "WORD"},
    {{"--check"}, ""},
    {{"--save-logits"}, ""},
    {{"--logits-output-dir"}, "DIR"},
    {{"--tensor-filter"}, "REGEX"},
};

}  // namespace

void add_foreign_options(std::vector<Option>& table) {
  for (const Row& row : kRows) {
    Option next = option(row.spellings, row.placeholder, "Option of another program.");
    next.group = "Other programs";
    next.tools = 0;
    table.push_back(std::move(next));
  }
}

}  // namespace common
