// llama-bench: options that take lists, each list being an axis of the grid that it measures. Spellings and meanings
// are those of the other programs wherever both have the option; the values are not, so the rows are rows of their own.
#include "common/args/grid.h"

#include <algorithm>

#include "common/args/apply_placement.h"
#include "common/args/cpu_list.h"
#include "common/args/option.h"
#include "common/args/table.h"
#include "llama/name_pattern.h"

namespace common {
namespace {

using grid::FlashAttention;
using grid::Format;
using grid::Grid;

constexpr std::string_view kGroup = "Benchmark grid";
constexpr std::string_view kLeaveOut = "leave it out";
constexpr std::string_view kSwitch = "0|1";

std::vector<int> to_ints(const Argument& argument, const std::string& text, int least) {
  std::string why;
  std::vector<int> values = grid::parse_int_list(text, why);
  if (!why.empty())
    bad_value(argument, "integers, or ranges such as 1-8, 16-64+16, 1-64*2, separated by commas (" + why + ")");
  for (const int n : values)
    if (n < least) bad_value(argument, "integers of at least " + std::to_string(least));
  return values;
}

Apply ints(std::vector<int> Grid::*list, int least) {
  return [=](Target& target, const Argument& argument) {
    for (const int n : to_ints(argument, argument.value(), least)) (target.settings.grid.*list).push_back(n);
  };
}

/// PROMPT,GENERATE
Apply pair(std::vector<std::pair<int, int>> Grid::*list) {
  return [=](Target& target, const Argument& argument) {
    const std::vector<int> two = to_ints(argument, argument.value(), 0);
    if (two.size() != 2) bad_value(argument, "two integers, PROMPT,GENERATE");
    (target.settings.grid.*list).emplace_back(two[0], two[1]);
  };
}

void apply_gpu_layers(Target& target, const Argument& argument) {
  constexpr int kAll = 999;  // more layers than a model has
  for (const std::string& item : split_list(argument.value())) {
    const std::string word = lower_case(item);
    std::vector<int>& list = target.settings.grid.n_gpu_layers;
    if (word == "auto" || word == "all")
      list.push_back(word == "all" ? kAll : -1);
    else
      for (const int n : to_ints(argument, item, -1)) list.push_back(n);
  }
}

void apply_thread_pairs(Target& target, const Argument& argument) {
  const std::vector<int> counts = to_ints(argument, argument.value(), 1);
  if (counts.size() % 2 != 0) bad_value(argument, "pairs GENERATION,PROMPTS of numbers of threads");
  for (std::size_t i = 0; i < counts.size(); i += 2)
    target.settings.grid.threads_gen_batch.emplace_back(counts[i], counts[i + 1]);
}

void apply_mla(Target& target, const Argument& argument) {
  constexpr int kMost = 3;
  for (const int form : to_ints(argument, argument.value(), 0)) {
    if (form > kMost) bad_value(argument, "numbers from 0 to 3");
    target.settings.grid.mla.push_back(form);
  }
}

/// Pairs KMIN,T; one more than the other programs take, since each pair is a value of the axis.
void apply_reductions(Target& target, const Argument& argument) {
  const std::vector<std::string> parts = split_list(argument.value());
  if (parts.size() % 2 != 0) bad_value(argument, "pairs KMIN,T such as 6,1");
  for (std::size_t i = 0; i < parts.size(); i += 2) {
    const auto least = static_cast<int>(to_integer(argument, parts[i], -1, kMaxInt));
    const auto threshold = static_cast<float>(to_real(argument, parts[i + 1], -1e9, 1e9));
    target.settings.grid.expert_reduction.emplace_back(least, least >= 0 ? threshold : 0.0F);
  }
}

/// `convert` turns one item of the comma list into a value of the axis.
template <class T, class Convert>
Apply each(std::vector<T> Grid::*list, Convert convert) {
  return [=](Target& target, const Argument& argument) {
    for (std::string& item : split_list(argument.value())) {
      const Argument one{argument.name, argument.negative, argument.from_environment, {std::move(item)}};
      (target.settings.grid.*list).push_back(convert(one));
    }
  };
}

std::string to_model(const Argument& item) {
  if (item.value().empty()) bad_value(item, "the paths of models, separated by commas");
  return item.value();
}

ggml::DType to_type(const Argument& item) {
  const std::optional<ggml::DType> type = ggml::type_from_name(item.value());
  if (!type || !ggml::type_info(*type).kv_capable)
    bad_value(item, "a type that a KV cache can have, such as f32, f16, q8_0");
  return *type;
}

/// Each item may have a form at its end, as the other programs' one value may.
void apply_n_cpu_moe(Target& target, const Argument& argument) {
  for (std::string& item : split_list(argument.value())) {
    const ExpertBlocks blocks = take_expert_blocks(argument, item);
    for (const int n : to_ints(argument, item, 0)) target.settings.grid.n_cpu_moe.push_back({n, blocks});
  }
}

/// A mask without a CPU stands for all of them.
std::vector<int> to_mask(const Argument& item) {
  if (item.value().find_first_not_of("0xX") == std::string::npos && item.value().find('0') != std::string::npos)
    return {};
  return to_cpu_mask(item);
}

void strict_list(Target& target, const Argument& argument) {
  for (const int n : to_ints(argument, argument.value(), 0)) {
    if (n > 1) bad_value(argument, "0 or 1");
    target.settings.grid.cpu_strict.push_back(n);
  }
}

FlashAttention to_flash(const Argument& item) {
  switch (to_tristate(item, item.value(), true)) {
    case Tristate::on:
      return FlashAttention::on;
    case Tristate::off:
      return FlashAttention::off;
    case Tristate::automatic:
      break;
  }
  return FlashAttention::automatic;
}

/// Bare: on, as in the other programs.
void apply_flash(Target& target, const Argument& argument) {
  std::vector<FlashAttention>& list = target.settings.grid.flash_attention;
  if (argument.bare()) return list.push_back(FlashAttention::on);
  for (std::string& item : split_list(argument.value()))
    list.push_back(to_flash({argument.name, argument.negative, argument.from_environment, {std::move(item)}}));
}

grid::LoadMode to_load_mode(const Argument& item) {
  Words<grid::LoadMode> words;
  for (const grid::LoadMode mode : {grid::LoadMode::none, grid::LoadMode::mmap, grid::LoadMode::mlock,
                                    grid::LoadMode::mmap_mlock, grid::LoadMode::direct_io}) {
    words.emplace_back(grid::load_mode_name(mode), mode);
  }
  return to_word(item, words);
}

/// The older switches of -lm: what they say when on and when off.
Apply load_switch(grid::LoadMode on, grid::LoadMode off) {
  return [=](Target& target, const Argument& argument) {
    std::vector<grid::LoadMode>& list = target.settings.grid.load_mode;
    if (argument.bare()) return list.push_back(argument.negative ? off : on);
    for (const std::string& item : split_list(argument.value())) list.push_back(item == "1" ? on : off);
  };
}

/// `;` within a group of rules, `,` between groups; an empty group has none.
void apply_rules(Target& target, const Argument& argument) {
  for (const std::string& group : split_list(argument.value())) {
    for (std::size_t begin = 0; begin < group.size();) {
      const std::size_t end = std::min(group.find(';', begin), group.size());
      const std::string rule = group.substr(begin, end - begin);
      const std::size_t equals = rule.rfind('=');
      if (equals == std::string::npos || equals == 0 || equals + 1 == rule.size())
        bad_value(argument, "PATTERN=BUFFER;...");
      const ggml::Result<llama::NamePattern> pattern = llama::NamePattern::compile(rule.substr(0, equals));
      if (!pattern.ok()) bad_value(argument, "a regular expression: " + pattern.error().message());
      begin = end + 1;
    }
    target.settings.grid.tensor_rules.push_back(group);
  }
}

Apply format(Format Grid::*field) {
  return [=](Target& target, const Argument& argument) {
    target.settings.grid.*field = to_word(argument, Words<Format>{{"none", Format::none},
                                                                  {"csv", Format::csv},
                                                                  {"json", Format::json},
                                                                  {"jsonl", Format::jsonl},
                                                                  {"md", Format::md},
                                                                  {"sql", Format::sql}});
  };
}

template <class Get>
Option zero_or_one(std::vector<std::string_view> spellings, std::string_view help, Get get) {
  return option(std::move(spellings), kSwitch, help, toggle_word(get)).words({"0", "1"});
}

Option placement(std::vector<std::string_view> spellings, std::string_view help) {
  return option(std::move(spellings), kSwitch, help).words({"0", "1"}).on_cpu();
}

/// A switch of a feature that is not there: 0 is accepted.
Option absent(std::vector<std::string_view> spellings, std::string_view help, std::string_view feature) {
  return option(std::move(spellings), kSwitch, help).words({"0", "1"}).refused(feature, kLeaveOut).unless({"0"});
}

const std::vector<Option> kAxes = {
    option({"-m", "--model"}, "FNAME", "Model to measure.", each(&Grid::models, to_model))
        .initially("models/7B/ggml-model-q4_0.gguf"),
    option({"-p", "--n-prompt"}, "N", "Prompt lengths; 0: none.", ints(&Grid::n_prompt, 0)).initially("512"),
    option({"-n", "--n-gen"}, "N", "Tokens to generate; 0: none.", ints(&Grid::n_gen, 0)).initially("128"),
    option({"-pg"}, "PP,TG", "Prompt and generation timed as one test.", pair(&Grid::prompt_gen)),
    option({"-gp"}, "PP,TG", "Generation behind an untimed prompt.", pair(&Grid::gen_at_prompt)),
    option({"-d", "--n-depth"}, "N", "Tokens in the cache before the timed part.", ints(&Grid::n_depth, 0))
        .initially("0"),
    option({"-b", "--batch-size"}, "N", "Tokens per call.", ints(&Grid::n_batch, 1)).initially("2048"),
    option({"-ub", "--ubatch-size"}, "N", "Tokens computed at a time.", ints(&Grid::n_ubatch, 1)).initially("512"),
    option({"-ctk", "--cache-type-k"}, "TYPE", "Type of the cached keys.", each(&Grid::type_k, to_type))
        .initially("f16"),
    option({"-ctv", "--cache-type-v"}, "TYPE", "Type of the cached values.", each(&Grid::type_v, to_type))
        .initially("f16"),
    option({"-t", "--threads"}, "N", "Threads.", ints(&Grid::n_threads, 1)).initially("physical cores"),
    option({"-C", "--cpu-mask"}, "M", "CPUs that the threads may use, as a mask in hexadecimal; 0x0: all.",
           each(&Grid::cpus, to_mask))
        .initially("0x0"),
    option({"--cpu-strict"}, "0|1", "Pin each thread to one CPU of the mask.", strict_list).initially("0"),
    option({"--poll"}, "0...100", "How long idle threads spin.", ints(&Grid::poll, 0)).initially("50"),
    option({"-fa", "--flash-attn"}, "on|off|auto", "Flash attention; also 1, 0 and -1; bare: on.", apply_flash)
        .words({"on", "enabled", "true", "1", "off", "disabled", "false", "0", "auto", "-1"})
        .initially("auto"),
    option({"-lm", "--load-mode"}, "MODE", "none, mmap, mlock, mmap+mlock or dio.",
           each(&Grid::load_mode, to_load_mode))
        .initially("mmap"),
    option({"-mmp", "--mmap"}, kSwitch, "Older spelling of -lm mmap and -lm none.",
           load_switch(grid::LoadMode::mmap, grid::LoadMode::none))
        .negative({"--no-mmap"})
        .words({"0", "1"}),
    option({"-dio", "--direct-io"}, kSwitch, "Older spelling of -lm dio and -lm mmap.",
           load_switch(grid::LoadMode::direct_io, grid::LoadMode::mmap))
        .negative({"-ndio", "--no-direct-io"})
        .words({"0", "1"}),
    option({"-ngl", "--gpu-layers", "--n-gpu-layers"}, "N", "Layers on the GPU; -1 or auto: as many as fit, or all.",
           apply_gpu_layers)
        .initially("-1"),
    option({"-tgb", "--threads-gen-batch"}, "G,B", "Threads of generation and of prompts, in the place of -t.",
           apply_thread_pairs),
    option({"-mla", "--mla-use"}, "N", "How latent attention is computed: 0 to 3, as in the other programs.", apply_mla)
        .initially("by modelled cost"),
    option({"-amb", "--attention-max-batch"}, "MIB", "Bound of what latent attention holds at a time; 0: none.",
           ints(&Grid::attention_max_batch_mib, 0))
        .initially("256"),
    option({"-ser", "--smart-expert-reduction"}, "KMIN,T",
           "Skip experts beyond rank KMIN whose score is below T times the best one; -1,0 is off.", apply_reductions)
        .initially("-1,0"),
    option({"-ncmoe", "--n-cpu-moe"}, "N[:first|:last|:even]", "Blocks whose experts are on the CPU.", apply_n_cpu_moe)
        .initially("0"),
    option({"-ot", "--override-tensor"}, "PATTERN=BUFFER;...",
           "Placement of tensors: ; between the rules of a group, a comma between groups.", apply_rules),
};

const std::vector<Option> kRun = {
    option({"--prompt"}, "TEXT", "Measure a prompt of the tokens of this text, in the place of -p's random ones.",
           [](Target& target, const Argument& argument) {
             if (argument.value().empty()) bad_value(argument, "a text");
             target.settings.prompt.prompt = argument.value();
           }),
    option({"-r", "--repetitions", "--iterations"}, "N", "Runs of each test.",
           whole(
               [](Settings& s) -> auto& { return s.grid.repetitions; }, 1))
        .initially("5"),
    option({"-w", "--warmup"}, kSwitch, "Run once untimed before each test.",
           toggle_word([](Settings& s) -> auto& { return s.model.warmup; }))
        .negative({"--no-warmup"})
        .words({"0", "1"})
        .initially("1"),
    option({"--delay"}, "S", "Seconds of rest between tests.",
           whole(
               [](Settings& s) -> auto& { return s.grid.delay_s; }, 0))
        .initially("0"),
    option({"--progress"}, "", "Say on standard error which test runs.",
           toggle([](Settings& s) -> auto& { return s.grid.progress; }))
        .initially("off"),
    option({"-o", "--output"}, "FORMAT", "csv, json, jsonl, md or sql on standard output.", format(&Grid::output))
        .initially("md"),
    option({"-oe", "--output-err"}, "FORMAT", "The same on standard error.", format(&Grid::output_stderr))
        .initially("none"),
    zero_or_one(
        {"-gr", "--graph-reuse"}, "Keep the built step graph between steps of the same shape.",
        [](Settings& s) -> auto& { return s.context.graph_reuse; })
        .negative({"-no-gr", "--no-graph-reuse"})
        .initially("1"),
    option({"-nkvo", "--no-kv-offload"}, kSwitch, "KV cache in host memory.",
           [](Target& target, const Argument& argument) {
             target.settings.placement.kv_offload = !argument.bare() && argument.value() == "0";
           })
        .words({"0", "1"})
        .initially("0"),
    option({"-nopo", "--no-op-offload"}, kSwitch, "No prompts on the GPU with weights in host memory.",
           [](Target& target, const Argument& argument) {
             target.settings.placement.op_offload = !argument.bare() && argument.value() == "0";
           })
        .words({"0", "1"})
        .initially("0"),
    placement({"--no-host"}, "No pinned host buffers."),
    option({"-no-ooae", "--no-offload-only-active-experts"}, kSwitch, "Then send all experts of a layer.",
           [](Target& target, const Argument& argument) {
             target.settings.placement.offload.only_active_experts = !argument.bare() && argument.value() == "0";
           })
        .words({"0", "1"})
        .initially("0"),
    option({"-fit", "--fit"}, kSwitch, "Choose the placement by itself.",
           [](Target& target, const Argument& argument) {
             const bool on = argument.bare() || to_tristate(argument, argument.value(), false) == Tristate::on;
             target.settings.placement.fit = on ? Fit::on : Fit::off;
           })
        .words({"0", "1", "on", "off", "true", "false"})
        .initially("0"),
    option({"-fitt", "--fit-target", "--fit-margin"}, "MIB,...", "Memory that --fit leaves free per GPU.",
           [](Target& target, const Argument& argument) {
             std::vector<int>& margins = target.settings.placement.fit_margins_mib;
             margins.clear();
             for (const std::string& item : split_list(argument.value()))
               margins.push_back(static_cast<int>(to_integer(argument, item, 0, kMaxInt)));
           })
        .initially("1024"),
    option({"-fitc", "--fit-ctx"}, "N", "Smallest context that --fit may choose; here each test says its own.",
           whole(
               [](Settings& s) -> auto& { return s.placement.fit_context; }, 0)),
    option({"-sm", "--split-mode"}, "MODE", "How several GPUs share a model: none or layer.", apply_split_mode)
        .initially("layer"),
    option({"-mg", "--main-gpu"}, "N", "The GPU used with -sm none.",
           whole(
               [](Settings& s) -> auto& { return s.placement.main_gpu; }, -kMaxInt))
        .initially("0"),
    option({"-ts", "--tensor-split"}, "N0/N1/...", "Proportions of the GPUs.", apply_tensor_split),
    option({"-dev", "--device"}, "D0/D1", "GPU devices to use; none: the CPU only; auto: all.",
           [](Target& target, const Argument& argument) {
             if (argument.value() == "auto") return;
             std::string names = argument.value();
             std::replace(names.begin(), names.end(), '/', ',');
             apply_device(target, {argument.name, argument.negative, argument.from_environment, {std::move(names)}});
           })
        .initially("auto"),
    zero_or_one(
        {"-fmoe", "--fused-moe"}, "Compute the expert layer as one operation.",
        [](Settings& s) -> auto& { return s.context.fused_experts; })
        .negative({"-no-fmoe", "--no-fused-moe"})
        .initially("1"),
    option({"-no-fug", "--no-fused-up-gate"}, kSwitch, "Compute up and gate of dense layers one by one.",
           [](Target& target, const Argument& argument) {
             target.settings.context.fused_up_gate = !argument.bare() && argument.value() == "0";
           })
        .words({"0", "1"})
        .initially("0"),
    zero_or_one(
        {"-mqkv", "--merge-qkv"}, "Merge the Q, K and V weights of a layer at load.",
        [](Settings& s) -> auto& { return s.model.merge_qkv; })
        .initially("0"),
    zero_or_one(
        {"-muge", "--merge-up-gate-exps"}, "Merge the up and gate expert tensors at load.",
        [](Settings& s) -> auto& { return s.model.merge_up_gate; })
        .initially("0"),
    option({"-ger", "--grouped-expert-routing"}, kSwitch, "Group-limited choice of experts.")
        .words({"0", "1"})
        .no_effect("groups are used whenever the model defines them")
        .unless({"0"}),
    option({"-rcache", "--rope-cache"}, kSwitch, "Removed by its project.")
        .words({"0", "1"})
        .no_effect("it was removed where it came from"),
    option({"--print-overrides"}, kSwitch, "A column with the rules of -ot.")
        .words({"0", "1"})
        .no_effect("the column is there whenever -ot is given"),
    zero_or_one(
        {"-rtr", "--run-time-repack"}, "Repack the weights of the CPU to interleaved types while loading.",
        [](Settings& s) -> auto& { return s.model.repack; })
        .initially("0"),
    option({"-thp", "--transparent-huge-pages"}, kSwitch, "Huge pages for mapped weights.")
        .words({"0", "1"})
        .no_effect("mapped files keep the pages that the kernel gives them")
        .unless({"0"}),
    absent({"-sas", "--scheduler-async"}, "Threads of split mode graph.", "split mode graph"),
    absent({"-embd", "--embeddings"}, "Measure embeddings.", "embeddings"),
    option({"--max-gpu"}, "N", "GPUs per layer.").refused("split mode graph", kLeaveOut).unless({"0"}),
    option({"-rpc", "--rpc"}, "HOST:PORT,...", "Remote backends.").refused("remote backends", kLeaveOut),
};

}  // namespace

void add_grid_options(std::vector<Option>& table) {
  for (const auto* rows : {&kAxes, &kRun}) {
    for (Option row : *rows) {
      row.group = kGroup;
      row.tools = kBench;
      row.accumulates = rows == &kAxes;
      table.push_back(std::move(row));
    }
  }
}

}  // namespace common
