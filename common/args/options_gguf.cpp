// llama-gguf and its subcommand synth.
#include <limits>

#include "common/args/option.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::string_view kInspect = "GGUF file";
constexpr std::string_view kSynthGroup = "Model with random weights (llama-gguf synth)";
constexpr double kMaxSkew = 10;

const std::vector<Option> kInspectRows = {
    option({"FILE"}, "", "GGUF file; of a split model the first part, or all parts in order.",
           [](Target& target, const Argument& argument) { target.settings.gguf.files.push_back(argument.value()); })
        .operand(),
    option({"--full"}, "", "Print arrays and long strings whole.",
           toggle([](Settings& s) -> auto& { return s.gguf.full; }))
        .initially("off"),
    option({"--json"}, "", "Print everything as one JSON object.",
           toggle([](Settings& s) -> auto& { return s.gguf.json; }))
        .initially("off"),
};

const std::vector<Option> kSynthRows = {
    option({"--preset"}, "NAME", "Model whose shape is taken; --list shows all.",
           text([](Settings& s) -> auto& { return s.synth.preset; })),
    option({"--mix"}, "NAME", "Types of the weights; --list shows all.",
           text([](Settings& s) -> auto& { return s.synth.mix; }))
        .initially("q4_k_m"),
    option({"--list"}, "", "Show the mixes, and the presets with their sizes in the mix, and end.",
           toggle([](Settings& s) -> auto& { return s.synth.list; })),
    option({"--layers"}, "N", "Layers, instead of the preset's.",
           whole(
               [](Settings& s) -> auto& { return s.synth.layers; }, 1)),
    option({"--experts"}, "N", "Experts of each layer, instead of the preset's.",
           whole(
               [](Settings& s) -> auto& { return s.synth.experts; }, 1)),
    option({"--vocab"}, "N", "Tokens, instead of the preset's; from 259 on.",
           whole(
               [](Settings& s) -> auto& { return s.synth.vocab; }, 1)),
    option({"--seed"}, "N", "Seed of the random weights; equal seeds give equal files.",
           [](Target& target, const Argument& argument) {
             constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
             target.settings.synth.seed = static_cast<std::uint64_t>(to_integer(argument, argument.value(), 0, kMost));
           })
        .initially("1"),
    option({"--router-skew"}, "S", "Uneven and repetitive choice of experts: 0 is uniform, 1 is strong.",
           real(
               [](Settings& s) -> auto& { return s.synth.router_skew; }, 0, kMaxSkew))
        .initially("0"),
    option({"--sparse"}, "", "Complete header, but the weights are a hole that takes no disk space.",
           toggle([](Settings& s) -> auto& { return s.synth.sparse; }))
        .initially("off"),
    option({"-o", "--output"}, "FNAME", "File to write.", text([](Settings& s) -> auto& { return s.synth.output; })),
};

}  // namespace

void add_gguf_options(std::vector<Option>& table) {
  for (Option row : kInspectRows) {
    row.group = kInspect;
    row.tools = kGguf;
    table.push_back(std::move(row));
  }
  for (Option row : kSynthRows) {
    row.group = kSynthGroup;
    row.tools = kSynth;
    table.push_back(std::move(row));
  }
}

}  // namespace common
