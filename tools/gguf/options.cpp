#include "options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "ggml/error.h"
#include "nearest.h"
#include "synth/mix.h"

namespace gguf_tool {
namespace {

[[noreturn]] void refuse(const std::string& message, const std::string& hint = {}) {
  throw ggml::Error(ggml::ErrorCode::invalid_argument, message, hint);
}

/// The arguments that no option took: unknown flags get the nearest spelling.
void refuse_extras(const CLI::App& app) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    for (const std::string& name : option->get_snames()) known.push_back("-" + name);
  }
  for (const std::string& extra : app.remaining()) {
    if (!extra.starts_with('-')) refuse(fmt::format("unexpected argument \"{}\"", extra));
    refuse(fmt::format("unknown option {}; did you mean {}?", extra, nearest(extra.substr(0, extra.find('=')), known)));
  }
}

/// Parses; true when help was asked for.
bool parse(CLI::App& app, int argc, const char* const* argv) {
  app.allow_extras();
  app.get_formatter()->column_width(34);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return true;
  } catch (const CLI::ParseError& error) {
    refuse(error.what(), fmt::format("`{} --help` shows all options", app.get_name()));
  }
  refuse_extras(app);
  return false;
}

/// CLI11 puts help first by itself, and its group with it.
void add_help(CLI::App& app) {
  app.set_help_flag("-h,--help", "Print this help and stop")->group("Output");
}

std::string mix_names() {
  std::string writable;
  std::string others;
  for (const Mix& mix : mixes()) {
    std::string& names = can_write(mix) ? writable : others;
    names += (names.empty() ? "" : ", ") + std::string(mix.name);
  }
  return others.empty() ? writable : writable + "; not in this version: " + others;
}

Options parse_synth(int argc, const char* const* argv) {
  Options options;
  bool list = false;
  CLI::App app(
      "Writes a model of a published model's exact shape with random weights, for speed, memory and planning "
      "work where the real weights cannot be had. Text that comes out is noise.",
      "llama-gguf synth");
  app.add_option("--preset", options.synth.preset, "Model whose shape is taken; --list shows all")
      ->type_name("NAME")
      ->group("Model");
  app.add_option("--mix", options.synth.mix, "Types of the weights (default q4_k_m): " + mix_names())
      ->type_name("NAME")
      ->group("Model");
  app.add_flag("--list", list, "Show the presets with their sizes in the mix, and stop")->group("Model");
  app.add_option("--layers", options.synth.resize.layers, "Layers, instead of the preset's")
      ->type_name("N")
      ->group("Size");
  app.add_option("--experts", options.synth.resize.experts, "Experts of each layer, instead of the preset's")
      ->type_name("N")
      ->group("Size");
  app.add_option("--vocab", options.synth.resize.vocab, "Tokens, instead of the preset's (at least 259)")
      ->type_name("N")
      ->group("Size");
  app.add_option("--seed", options.synth.seed, "Seed of the random weights (default 1); equal seeds give equal files")
      ->type_name("N")
      ->group("Weights");
  app.add_option("--router-skew", options.synth.router_skew,
                 "Uneven and repetitive choice of experts: 0 (default) is uniform, 1 is strong")
      ->type_name("S")
      ->group("Weights");
  app.add_flag("--sparse", options.synth.sparse, "Complete header, but the weights are a hole that takes no disk space")
      ->group("Weights");
  app.add_option("-o,--output", options.synth.output, "File to write")->type_name("FILE")->group("Output");
  add_help(app);
  if (parse(app, argc, argv)) {
    options.help = app.help();
    return options;
  }
  options.command = list ? Command::list_presets : Command::synthesise;
  if (list) return options;
  if (options.synth.preset.empty()) refuse("--preset is missing", "`llama-gguf synth --list` shows all presets");
  if (options.synth.output.empty()) refuse("-o FILE is missing");
  if (!(options.synth.router_skew >= 0 && options.synth.router_skew <= 10)) {
    refuse(fmt::format("--router-skew is {}, must be from 0 to 10", options.synth.router_skew));
  }
  return options;
}

Options parse_inspect(int argc, const char* const* argv) {
  Options options;
  bool full = false;
  CLI::App app(
      "Shows what a GGUF file holds: container, metadata, tensors, totals per type.\n"
      "`llama-gguf synth --help` describes how to write models with random weights.",
      "llama-gguf");
  app.add_option("FILE", options.files, "GGUF file; of a split model the first part, or all parts in order")
      ->type_name("")
      ->group("Input");
  app.add_flag("--full", full, "Print arrays and long strings whole")->group("Output");
  app.add_flag("--json", options.json, "Print everything as one JSON object")->group("Output");
  add_help(app);
  if (parse(app, argc, argv)) {
    options.help = app.help();
    return options;
  }
  if (options.files.empty()) refuse("no file is given", "usage: llama-gguf FILE, or llama-gguf synth --help");
  options.command = Command::inspect;
  if (full) options.detail = Detail::full;
  return options;
}

}  // namespace

Options parse_options(int argc, const char* const* argv) {
  if (argc > 1 && std::string_view(argv[1]) == "synth") return parse_synth(argc - 1, argv + 1);
  return parse_inspect(argc, argv);
}

}  // namespace gguf_tool
