#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/args/environment.h"
#include "common/args/settings.h"
#include "ggml/error.h"

namespace common {

/// The programs that read the table; the subcommand of llama-gguf counts as one.
enum class Tool : std::uint8_t {
  server,
  cli,
  sweep_bench,
  tokenize,
  bench,
  gguf,
  gguf_synth,
  gguf_split,
  quantize,
  imatrix,
  perplexity,
  fit_params,
};
inline constexpr int kToolCount = 12;
/// "llama-server", "llama-cli", ..., "llama-gguf synth".
[[nodiscard]] std::string_view tool_name(Tool tool) noexcept;

/// What the program does after parsing.
enum class Action : std::uint8_t {
  run,           // settings are complete and checked
  exit_success,  // --help, --version, --completion-bash: everything was printed
};

struct Parsed {
  Action action = Action::run;
  Settings settings;
  /// Notes for the user in the order they arose: flags without effect here, variables that a flag overrides, flags of
  /// other programs. Only warn and info occur.
  std::vector<std::pair<ggml::LogLevel, std::string>> notes;
};

/// What a caller may replace in tests.
struct ParseOptions {
  EnvironmentLookup environment = &common::environment;
  EnvironmentNames environment_names = &common::environment_names;
  /// Whether a missing -m is an error (for the programs that load a model).
  bool require_model = true;
};

/// Reads the environment, then the command line (which wins), against the table of options.
///
/// Throws ggml::Error (invalid_argument or unsupported) for an unknown or ill-typed flag or variable and for one that
/// is not in this version: the message is the whole line to show ("error: invalid argument: --x"), the hint may have
/// several. Prints to stdout only for --help and --completion-bash, to stderr for --version.
[[nodiscard]] Parsed parse(Tool tool, int argc, const char* const* argv, const ParseOptions& options = {});

/// parse() for a tool's main(): prints the error and its hint to stderr and ends the process with status 1; ends it
/// with 0 after --help and its like. Also installs the log (common/log) and prints the notes.
[[nodiscard]] Parsed parse_or_exit(Tool tool, int argc, const char* const* argv, const ParseOptions& options = {});

/// The grouped help text of one tool, wrapped to `width` columns.
[[nodiscard]] std::string help_text(Tool tool, int width);
/// docs/parameters.md, generated from the table.
[[nodiscard]] std::string parameters_document();
/// What --version prints: version, commit and compiler, two lines.
[[nodiscard]] std::string version_text();
/// Columns of the terminal that `--help` writes to; 100 when there is none.
[[nodiscard]] int terminal_width();

}  // namespace common
