#include "options.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <thread>

#include "common/args/args.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace bench {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

namespace {

/// One option: spellings separated by spaces, value placeholder ("" for a switch), help, and what it does. A row with a
/// reason is refused unless its value is one of the values that ask for nothing ("off" is a space-separated list).
struct Row {
  const char* spellings;
  const char* value;
  const char* help;
  void (*apply)(Grid& grid, std::string_view flag, const std::string& value);
  const char* off = nullptr;
};

[[noreturn]] void bad_value(std::string_view flag, const std::string& value, std::string_view expected) {
  throw Error(ErrorCode::invalid_argument, std::string(flag) + " '" + value + "': expected " + std::string(expected));
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> items;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

/// The first use of an option replaces its default list, later ones add to it. Grid lists start empty; finish() fills
/// the defaults in.
template <std::vector<int> Grid::*List>
void add_ints(Grid& grid, std::string_view flag, const std::string& value) {
  const std::vector<int> values = parse_int_list(flag, value);
  (grid.*List).insert((grid.*List).end(), values.begin(), values.end());
}

template <std::vector<int> Grid::*List, int Lowest>
void add_bounded_ints(Grid& grid, std::string_view flag, const std::string& value) {
  for (const int n : parse_int_list(flag, value)) {
    if (n < Lowest) bad_value(flag, std::to_string(n), strf("an integer of at least %d", Lowest));
    (grid.*List).push_back(n);
  }
}

template <std::vector<ggml::DType> Grid::*List>
void add_types(Grid& grid, std::string_view flag, const std::string& value) {
  for (const std::string& name : split(value, ',')) {
    const std::optional<ggml::DType> type = ggml::type_from_name(name);
    if (!type || !ggml::type_info(*type).kv_capable)
      bad_value(flag, name, "a type a KV cache can have, such as f32, f16, q8_0");
    (grid.*List).push_back(*type);
  }
}

template <std::vector<std::pair<int, int>> Grid::*List>
void add_pair(Grid& grid, std::string_view flag, const std::string& value) {
  const std::vector<std::string> parts = split(value, ',');
  if (parts.size() != 2) bad_value(flag, value, "two integers, PROMPT,GENERATE");
  const std::vector<int> prompt = parse_int_list(flag, parts[0]);
  const std::vector<int> gen = parse_int_list(flag, parts[1]);
  if (prompt.size() != 1 || gen.size() != 1 || prompt[0] < 0 || gen[0] < 0)
    bad_value(flag, value, "two integers, PROMPT,GENERATE");
  (grid.*List).emplace_back(prompt[0], gen[0]);
}

int one_int(std::string_view flag, const std::string& value, int lowest) {
  const std::vector<int> values = parse_int_list(flag, value);
  if (values.size() != 1 || values[0] < lowest) bad_value(flag, value, strf("an integer of at least %d", lowest));
  return values[0];
}

void add_flash(Grid& grid, std::string_view flag, const std::string& value) {
  for (const std::string& item : split(value, ',')) {
    if (item == "on" || item == "1") {
      grid.flash_attention.push_back(FlashAttention::on);
    } else if (item == "off" || item == "0") {
      grid.flash_attention.push_back(FlashAttention::off);
    } else if (item == "auto" || item == "-1") {
      grid.flash_attention.push_back(FlashAttention::automatic);
    } else {
      bad_value(flag, item, "on, off, auto, 1, 0 or -1");
    }
  }
}

void add_load_modes(Grid& grid, std::string_view flag, const std::string& value) {
  for (const std::string& item : split(value, ',')) {
    bool found = false;
    for (const LoadMode mode :
         {LoadMode::none, LoadMode::mmap, LoadMode::mlock, LoadMode::mmap_mlock, LoadMode::direct_io}) {
      if (item != load_mode_name(mode)) continue;
      grid.load_mode.push_back(mode);
      found = true;
    }
    if (!found) bad_value(flag, item, "none, mmap, mlock, mmap+mlock or dio");
  }
}

template <LoadMode On, LoadMode Off>
void add_load_switch(Grid& grid, std::string_view flag, const std::string& value) {
  for (const std::string& item : split(value, ',')) {
    if (item != "0" && item != "1") bad_value(flag, item, "0 or 1");
    grid.load_mode.push_back(item == "1" ? On : Off);
  }
}

void add_rules(Grid& grid, std::string_view flag, const std::string& value) {
  for (const std::string& group : split(value, ',')) {
    for (const std::string& rule : group.empty() ? std::vector<std::string>() : split(group, ';')) {
      const std::size_t at = rule.rfind('=');
      if (at == std::string::npos) bad_value(flag, rule, "PATTERN=BUFFER");
      if (rule.substr(at + 1) != "CPU") {
        throw Error(ErrorCode::invalid_argument,
                    strf("-ot '%s': there is no device %s here", rule.c_str(), rule.substr(at + 1).c_str()),
                    "the devices of this machine: CPU");
      }
    }
    grid.tensor_rules.push_back(group);
  }
}

Format parse_format(std::string_view flag, const std::string& value) {
  static constexpr std::pair<const char*, Format> kNames[] = {{"none", Format::none}, {"csv", Format::csv},
                                                              {"json", Format::json}, {"jsonl", Format::jsonl},
                                                              {"md", Format::md},     {"sql", Format::sql}};
  for (const auto& [name, format] : kNames) {
    if (value == name) return format;
  }
  bad_value(flag, value, "csv, json, jsonl, md or sql");
}

void ignore(Grid&, std::string_view, const std::string&) {}

constexpr const char* kOnCpu = "accepted: without a GPU everything is on the CPU";

const Row kRows[] = {
    {"-m --model", "FILE", "model to measure; repeat or separate by commas",
     [](Grid& g, std::string_view, const std::string& v) {
       for (std::string& name : split(v, ',')) g.models.push_back(std::move(name));
     }},
    {"-p --n-prompt", "N", "prompt lengths; 0 for none (512)", add_bounded_ints<&Grid::n_prompt, 0>},
    {"-n --n-gen", "N", "tokens to generate; 0 for none (128)", add_bounded_ints<&Grid::n_gen, 0>},
    {"-pg", "PP,TG", "prompt and generation timed as one test; repeatable", add_pair<&Grid::prompt_gen>},
    {"-gp", "PP,TG", "generation behind an untimed prompt; repeatable", add_pair<&Grid::gen_at_prompt>},
    {"-d --n-depth", "N", "tokens in the cache before the timed part (0)", add_bounded_ints<&Grid::n_depth, 0>},
    {"-b --batch-size", "N", "tokens per call (2048)", add_bounded_ints<&Grid::n_batch, 1>},
    {"-ub --ubatch-size", "N", "tokens computed at a time (512)", add_bounded_ints<&Grid::n_ubatch, 1>},
    {"-ctk --cache-type-k", "TYPE", "type of the keys in the cache (f16)", add_types<&Grid::type_k>},
    {"-ctv --cache-type-v", "TYPE", "type of the values in the cache (f16)", add_types<&Grid::type_v>},
    {"-t --threads", "N", "threads (cores of the machine)", add_bounded_ints<&Grid::n_threads, 1>},
    {"--poll", "0..100", "how long idle threads spin (50)", add_bounded_ints<&Grid::poll, 0>},
    {"-fa --flash-attn", "on|off|auto", "flash attention (auto)", add_flash},
    {"-lm --load-mode", "MODE", "none, mmap, mlock, mmap+mlock, dio (mmap)", add_load_modes},
    {"-mmp --mmap", "0|1", "older spelling of -lm", add_load_switch<LoadMode::mmap, LoadMode::none>},
    {"-dio --direct-io", "0|1", "older spelling of -lm", add_load_switch<LoadMode::direct_io, LoadMode::mmap>},
    {"-ngl --n-gpu-layers", "N", kOnCpu, add_ints<&Grid::n_gpu_layers>},
    {"-ncmoe --n-cpu-moe", "N", kOnCpu, add_bounded_ints<&Grid::n_cpu_moe, 0>},
    {"-ot --override-tensor", "PATTERN=CPU;...", "placement rules; ';' within a group, ',' between groups", add_rules},
    {"-r --repetitions", "N", "runs of each test (5)",
     [](Grid& g, std::string_view f, const std::string& v) { g.repetitions = one_int(f, v, 1); }},
    {"-w --warmup", "0|1", "run once untimed before each test (1)",
     [](Grid& g, std::string_view f, const std::string& v) { g.warmup = one_int(f, v, 0) != 0; }},
    {"--no-warmup", "", "same as -w 0", [](Grid& g, std::string_view, const std::string&) { g.warmup = false; }},
    {"--delay", "S", "seconds of rest between tests (0)",
     [](Grid& g, std::string_view f, const std::string& v) { g.delay_s = one_int(f, v, 0); }},
    {"--progress", "", "say on stderr which test runs",
     [](Grid& g, std::string_view, const std::string&) { g.progress = true; }},
    {"-v --verbose", "", "show the log of loading",
     [](Grid& g, std::string_view, const std::string&) { g.verbose = true; }},
    {"-o --output", "FORMAT", "csv, json, jsonl, md or sql on stdout (md)",
     [](Grid& g, std::string_view f, const std::string& v) { g.output = parse_format(f, v); }},
    {"-oe --output-err", "FORMAT", "the same on stderr (none)",
     [](Grid& g, std::string_view f, const std::string& v) { g.output_stderr = parse_format(f, v); }},
    {"-nkvo --no-kv-offload", "0|1", kOnCpu, ignore, "0 1"},
    {"-nopo --no-op-offload", "0|1", kOnCpu, ignore, "0 1"},
    {"--no-host", "0|1", kOnCpu, ignore, "0 1"},
    {"-fmoe --fused-moe", "0|1", "accepted: experts are always fused where that is possible", ignore, "0 1"},
    {"-sm --split-mode", "none|layer", kOnCpu, ignore, "none layer"},
    {"-mg --main-gpu", "N", kOnCpu, ignore, "0"},
    {"-ts --tensor-split", "R/R", kOnCpu, ignore, "0 0.00"},
    {"-embd --embeddings", "0|1", "embeddings belong to a later version", ignore, "0"},
    {"-rtr --run-time-repack", "0|1", "belongs to a later version", ignore, "0"},
    {"-ser", "I,F", "belongs to a later version", ignore, "-1,0"},
    {"-sas --scheduler-async", "0|1", "needs several GPUs", ignore, "0"},
    {"-mla", "N", "accepted for models without latent attention", ignore, "0 1 2 3"},
    {"-amb", "N", "accepted for models without latent attention", ignore, "0 256 512 1024 2048"},
    {"--numa", "MODE", "belongs to a later version", ignore, "disabled"},
    {"--fit", "0|1", kOnCpu, ignore, "0 1"},
};

const Row* find_row(const std::string& flag) {
  for (const Row& row : kRows) {
    for (const std::string& spelling : split(row.spellings, ' ')) {
      if (spelling == flag) return &row;
    }
  }
  return nullptr;
}

void print_help() {
  std::printf(
      "usage: llama-bench -m FILE [options]\n\nMeasures every combination of the values given; lists are separated by "
      "commas, and integers may be\n"
      "ranges (1-4, 16-64+16, 1-64*2).\n\n");
  for (const Row& row : kRows) {
    std::string names = row.spellings;
    std::replace(names.begin(), names.end(), ' ', ',');
    std::printf("  %-36s %s\n", (names + " " + row.value).c_str(), row.help);
  }
  std::printf("  %-36s %s\n  %-36s %s\n", "-h,--help", "this text", "--version", "version and build");
}

/// Fills the lists that the user left alone.
void finish(Grid& grid) {
  const Grid defaults = default_grid();
  const auto fill = [&](auto Grid::*list) {
    if ((grid.*list).empty()) grid.*list = defaults.*list;
  };
  for (auto list : {&Grid::n_prompt, &Grid::n_gen, &Grid::n_depth, &Grid::n_batch, &Grid::n_ubatch, &Grid::n_threads,
                    &Grid::n_gpu_layers, &Grid::n_cpu_moe, &Grid::poll}) {
    fill(list);
  }
  fill(&Grid::models);
  fill(&Grid::type_k);
  fill(&Grid::type_v);
  fill(&Grid::flash_attention);
  fill(&Grid::load_mode);
  fill(&Grid::tensor_rules);
}

}  // namespace

Grid default_grid() {
  Grid grid;
  grid.models = {"models/7B/ggml-model-q4_0.gguf"};
  grid.n_prompt = {512};
  grid.n_gen = {128};
  grid.n_depth = {0};
  grid.n_batch = {2048};
  grid.n_ubatch = {512};
  grid.n_threads = {std::max(1, static_cast<int>(std::thread::hardware_concurrency()))};
  grid.n_gpu_layers = {-1};
  grid.n_cpu_moe = {0};
  grid.poll = {50};
  grid.type_k = {ggml::DType::f16};
  grid.type_v = {ggml::DType::f16};
  grid.flash_attention = {FlashAttention::automatic};
  grid.load_mode = {LoadMode::mmap};
  grid.tensor_rules = {""};
  return grid;
}

Action parse_options(int argc, const char* const* argv, Grid& grid) {
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i];
    if (flag == "-h" || flag == "--help") {
      print_help();
      return Action::exit_success;
    }
    if (flag == "--version") {
      std::fputs(common::version_text().c_str(), stderr);
      return Action::exit_success;
    }
    const Row* row = find_row(flag);
    if (row == nullptr) {
      throw Error(ErrorCode::invalid_argument, "unknown option " + flag, "llama-bench --help lists the options");
    }
    std::string value;
    if (row->value[0] != '\0') {
      if (i + 1 == argc) throw Error(ErrorCode::invalid_argument, flag + " needs a value: " + row->value);
      value = argv[++i];
    }
    if (row->off != nullptr) {
      const std::vector<std::string> accepted = split(row->off, ' ');
      if (std::find(accepted.begin(), accepted.end(), value) == accepted.end()) {
        throw Error(ErrorCode::unsupported, flag + " " + value + " is not available in this version",
                    std::string("accepted: ") + row->off);
      }
    }
    row->apply(grid, flag, value);
  }
  finish(grid);
  return Action::run;
}

}  // namespace bench
