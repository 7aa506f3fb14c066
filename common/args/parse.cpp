#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>

#include "common/args/args.h"
#include "common/args/check.h"
#include "common/args/help.h"
#include "common/args/rewrite.h"
#include "common/args/table.h"
#include "common/log/log.h"
#include "common/log/standard_output.h"

namespace common {
namespace {

/// What one run of parse() collects beside the settings.
class Parsing {
 public:
  Parsing(Tool tool, Parsed& parsed) : tool_(tool), target_{parsed.settings, parsed.notes} {}

  void use(const Option& row, const Argument& argument);
  void finish();

  [[nodiscard]] const std::set<std::string_view>& given() const { return given_; }

 private:
  Tool tool_;
  Target target_;
  std::set<std::string_view> given_;  // long names
  std::vector<std::string> unused_;   // of other programs
  std::vector<std::string> on_cpu_;   // placement that a machine without a GPU satisfies
};

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

void Parsing::use(const Option& row, const Argument& argument) {
  if ((row.tools & tool_bit(tool_)) == 0) {
    add_once(unused_, argument.name);
    return;
  }
  if (!argument.from_environment && !row.accumulates && given_.contains(row.long_name())) {
    target_.note(ggml::LogLevel::warn, argument.name + " is given more than once; the last value is used");
  }
  if (!argument.from_environment) given_.insert(row.long_name());
  const auto names_nothing = [&] {
    return !argument.bare() && std::find(row.values_asking_nothing.begin(), row.values_asking_nothing.end(),
                                         lower_case(argument.value())) != row.values_asking_nothing.end();
  };
  if (!row.refused_feature.empty()) {
    if (!argument.negative && !names_nothing()) refuse(argument, row.refused_feature, row.refused_advice);
    return;
  }
  try {
    if (row.apply) row.apply(target_, argument);
  } catch (const ggml::Error& error) {
    // An ill-typed value is answered with the help of its option, as users of llama.cpp expect.
    if (error.code() != ggml::ErrorCode::invalid_argument || !error.hint().empty()) throw;
    throw ggml::Error(error.code(), error.message(),
                      option_help(row, terminal_width()) + "For all options: " + std::string(tool_name(tool_)) + " -h");
  }
  if (!row.no_effect_reason.empty() && !names_nothing()) {
    target_.note(row.no_effect_changes_answers ? ggml::LogLevel::warn : ggml::LogLevel::info,
                 argument.name + " has no effect here: " + std::string(row.no_effect_reason));
  }
  if (row.satisfied_on_cpu) add_once(on_cpu_, argument.name);
}

void Parsing::finish() {
#ifndef TANDEM_HAS_CUDA
  if (!on_cpu_.empty()) {
    target_.note(ggml::LogLevel::info,
                 joined(on_cpu_) +
                     ": this build has no GPU; all weights and the KV cache are in host memory and "
                     "the CPU computes everything");
  }
#endif
  if (!unused_.empty()) {
    target_.note(ggml::LogLevel::info, "not used by " + std::string(tool_name(tool_)) + ": " + joined(unused_));
  }
  const OffloadSettings& offload = target_.settings.placement.offload;
  if (offload.min_batch && (offload.batch_size || offload.batch_size_per_byte))
    target_.note(ggml::LogLevel::warn,
                 "GGML_OP_OFFLOAD_MIN_BATCH is set, but the batch size of -cuda on the command line overrides it");
  check_settings(tool_, given_, target_);
}

/// Hands the resolved command line to CLI11: a CLI option per row that occurs, called back in the order of the line.
void run_cli(const std::vector<Occurrence>& occurrences, Parsing& parsing) {
  CLI::App app;
  app.set_help_flag();
  std::map<const Option*, std::string> names;
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < occurrences.size(); ++i) {
    const Occurrence& use = occurrences[i];
    const auto [entry, is_new] = names.try_emplace(use.row, "--option-" + std::to_string(names.size()));
    if (is_new) {
      // The value that CLI11 carries is the occurrence's number, since CLI11 gives "" and "{}" meanings of their own.
      const auto call = [&](const CLI::results_t& results) {
        const Occurrence& next = occurrences[static_cast<std::size_t>(std::stoul(results.back()))];
        parsing.use(*next.row, next.argument);
        return true;
      };
      app.add_option(entry->second, call, std::string(use.row->help))->trigger_on_parse();
    }
    tokens.push_back(entry->second);
    tokens.push_back(std::to_string(i));
  }
  std::reverse(tokens.begin(), tokens.end());  // CLI11 reads its vector from the back
  app.parse(std::move(tokens));
}

void print_and_end(Tool tool, std::string_view printing) {
  if (printing == "--help") std::fputs(help_text(tool, terminal_width()).c_str(), stdout);
  if (printing == "--version") std::fputs(version_text().c_str(), stderr);
  if (printing == "--completion-bash") std::fputs(bash_completion(tool).c_str(), stdout);
}

}  // namespace

std::string_view tool_name(Tool tool) noexcept {
  switch (tool) {
    case Tool::server:
      return "llama-server";
    case Tool::cli:
      return "llama-cli";
    case Tool::sweep_bench:
      return "llama-sweep-bench";
    case Tool::tokenize:
      return "llama-tokenize";
    case Tool::bench:
      return "llama-bench";
    case Tool::gguf:
      return "llama-gguf";
    case Tool::gguf_synth:
      return "llama-gguf synth";
    case Tool::gguf_split:
      return "llama-gguf-split";
    case Tool::quantize:
      return "llama-quantize";
    case Tool::imatrix:
      return "llama-imatrix";
    case Tool::perplexity:
      return "llama-perplexity";
    case Tool::fit_params:
      return "llama-fit-params";
  }
  return {};
}

Parsed parse(Tool tool, int argc, const char* const* argv, const ParseOptions& options) {
  Parsed parsed;
  Rewritten line = rewrite_arguments(tool, argc, argv);
  if (line.printing) {
    print_and_end(tool, *line.printing);
    parsed.action = Action::exit_success;
    return parsed;
  }
  for (int i = 1; i < argc; ++i) parsed.settings.line.emplace_back(argv[i]);
  parsed.settings.threads.cpu_isa = options.environment("GGML_CPU_ISA").value_or("");
  if (const std::optional<std::string> batch = options.environment("GGML_OP_OFFLOAD_MIN_BATCH")) {
    const Argument argument{"GGML_OP_OFFLOAD_MIN_BATCH", false, true, {*batch}};
    parsed.settings.placement.offload.min_batch =
        static_cast<int>(to_integer(argument, *batch, 0, std::numeric_limits<int>::max()));
  }
  for (std::string& text : unknown_variables(options.environment_names))
    parsed.notes.emplace_back(ggml::LogLevel::warn, std::move(text));
  Parsing parsing(tool, parsed);
  for (const Occurrence& use : environment_occurrences(tool, options.environment)) {
    const auto winner = std::find_if(line.occurrences.begin(), line.occurrences.end(),
                                     [&](const Occurrence& typed) { return typed.row == use.row; });
    if (winner != line.occurrences.end() && !use.row->accumulates) {
      parsed.notes.emplace_back(ggml::LogLevel::warn, use.argument.name + " is set, but " + winner->argument.name +
                                                          " on the command line overrides it");
    } else {
      parsing.use(*use.row, use.argument);
    }
  }
  run_cli(line.occurrences, parsing);
  parsing.finish();
  const ModelSettings& model = parsed.settings.model;
  if (!options.require_model || model.list_architectures || model.list_devices) return parsed;
  check_model_given(tool, parsed.settings);
  return parsed;
}

Parsed parse_or_exit(Tool tool, int argc, const char* const* argv, const ParseOptions& options) {
  try {
    Parsed parsed = parse(tool, argc, argv, options);
    if (parsed.action == Action::exit_success) {
      flush_standard_output();
      std::exit(EXIT_SUCCESS);  // NOLINT(concurrency-mt-unsafe): no threads yet
    }
    init_log(parsed.settings.log);
    for (const auto& [level, text] : parsed.notes) {
      if (!ggml::log_enabled(level)) continue;
      std::fprintf(stderr, "%s: %s\n", level == ggml::LogLevel::warn ? "warning" : "info", text.c_str());
    }
    return parsed;
  } catch (const ggml::Error& error) {
    // The table's errors are whole lines; one that arose below it is not.
    const bool whole = std::string_view(error.what()).starts_with("error");
    std::fprintf(stderr, "%s%s\n", whole ? "" : "error: ", error.what());
    if (!error.hint().empty()) std::fprintf(stderr, "%s\n", error.hint().c_str());
    std::exit(EXIT_FAILURE);  // NOLINT(concurrency-mt-unsafe): no threads yet
  }
}

}  // namespace common
