#include "common/args/help.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "common/args/build_info.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::size_t kHelpColumn = 34;
constexpr int kDefaultWidth = 100;
constexpr int kNarrowest = 60;

/// Appends `text` from column `begin` on, broken at spaces so that no line passes `width`. The cursor stands at
/// `column`.
void append_wrapped(std::string& out, std::string_view text, std::size_t begin, std::size_t column, std::size_t width) {
  std::istringstream words{std::string(text)};
  bool first = true;
  for (std::string word; words >> word;) {
    const std::size_t needed = word.size() + (first ? 0 : 1);
    if (!first && column + needed > width) {
      out += "\n" + std::string(begin, ' ');
      column = begin;
      first = true;
    }
    out += (first ? "" : " ") + word;
    column += word.size() + (first ? 0 : 1);
    first = false;
  }
  out += "\n";
}

std::string names_text(const Option& row) {
  std::string out;
  for (const auto* list : {&row.spellings, &row.negatives})
    for (const std::string_view name : *list) out += (out.empty() ? "" : ", ") + std::string(name);
  if (!row.placeholder.empty()) {
    const bool optional = !row.optional_words.empty() && !row.placeholder.starts_with('[');
    out += optional ? " [" + std::string(row.placeholder) + "]" : " " + std::string(row.placeholder);
  }
  return out;
}

bool acts(const Option& row) {
  return row.refused_feature.empty() && row.no_effect_reason.empty();
}

/// What of a row that is refused is accepted: " (accepted: --no-a, -a 0)"; empty: nothing is.
std::string accepted_text(const Option& row) {
  if (row.refused_feature.empty()) return {};
  std::string names;
  for (const std::string_view name : row.negatives) names += (names.empty() ? "" : ", ") + std::string(name);
  for (const std::string_view value : row.values_asking_nothing)
    names += (names.empty() ? "" : ", ") + std::string(row.long_name()) + " " + std::string(value);
  return names.empty() ? names : " (accepted: " + names + ")";
}

/// "Refused in this version: -a, -b, ..." for the rows that `wanted` picks.
template <class Wanted>
void append_list(std::string& out, Tool tool, std::string_view title, int width, Wanted wanted) {
  std::string names;
  for (const Option& row : all_options()) {
    if ((row.tools & tool_bit(tool)) == 0 || !wanted(row)) continue;
    for (const std::string_view name : row.spellings) names += (names.empty() ? "" : ", ") + std::string(name);
    names += accepted_text(row);
  }
  if (names.empty()) return;
  out += "\n" + std::string(title) + "\n  ";
  append_wrapped(out, names, 2, 2, static_cast<std::size_t>(width));
}

/// What the program does, for those that take no model to run.
std::string_view introduction(Tool tool) {
  switch (tool) {
    case Tool::sweep_bench:
      return "Measures the speed of prompts and of generation at growing depth. The table, or the JSONL, goes to "
             "standard error together with the log, as users of ik_llama.cpp expect: --output-file FNAME writes it "
             "alone, 2> FNAME both.";
    case Tool::bench:
      return "Measures every combination of the values given. Values are lists, separated by commas or from repeated "
             "options; integers may be ranges: 1-4, 16-64+16, 1-64*2.";
    case Tool::gguf:
      return "Shows what a GGUF file holds: container, metadata, tensors, totals per type. llama-gguf synth --help "
             "describes how to write models with random weights.";
    case Tool::gguf_synth:
      return "Writes a model of a published model's exact shape with random weights, for speed, memory and planning "
             "work where the real weights cannot be had. Text that comes out is noise.";
    case Tool::gguf_split:
      return "Splits a model into several files (OUT is the prefix of their names), or merges such files into one (IN "
             "is "
             "the first of them, OUT the new file). All files appear together, when they are complete.";
    case Tool::quantize:
      return "Writes a model with other types of weights. TYPE is the name of a file type, in any case, or its number; "
             "without OUT the file is ggml-model-TYPE.gguf beside IN. docs/quantization.md lists the file types.";
    case Tool::fit_params:
      return "Prints the flags that --fit would choose: context, layers, split, placement of experts.";
    case Tool::imatrix:
      return "Reads a text with the model and writes how much each column of its weights counts, for llama-quantize "
             "--imatrix.";
    case Tool::perplexity:
      return "Says how well the model predicts a text, or how far its predictions are from another model's.";
    default:
      return {};
  }
}

std::string usage_text(Tool tool) {
  const std::string name(tool_name(tool));
  if (tool == Tool::gguf_split) return name + " [--split | --merge] [options] IN OUT";
  if (tool == Tool::quantize) return name + " [options] IN.gguf [OUT.gguf] TYPE [NTHREADS]";
  if (tool == Tool::imatrix || tool == Tool::perplexity) return name + " -m MODEL (-f FILE | -p TEXT) [options]";
  if (tool == Tool::gguf)
    return name + " FILE... [options]\n       " + name + " synth --preset NAME -o FNAME [options]";
  if (tool == Tool::gguf_synth) return name + " --preset NAME -o FNAME [options]";
  return name + " -m MODEL" + (tool == Tool::tokenize ? " (-p TEXT | -f FILE | --stdin)" : "") + " [options]";
}

}  // namespace

std::string option_help(const Option& row, int width) {
  std::string out = "  " + names_text(row);
  std::size_t column = out.size();
  if (column + 2 > kHelpColumn) {
    out += "\n";
    column = 0;
  }
  out += std::string(kHelpColumn - column, ' ');
  std::string text(row.help);
  if (!row.default_text.empty()) text += " (default: " + std::string(row.default_text) + ")";
  if (!row.variables.empty()) text += " (env: " + std::string(row.variables.front()) + ")";
  append_wrapped(out, text, kHelpColumn, kHelpColumn, static_cast<std::size_t>(std::max(width, kNarrowest)));
  return out;
}

std::string help_text(Tool tool, int width) {
  std::string out = "usage: " + usage_text(tool) + "\n";
  if (const std::string_view text = introduction(tool); !text.empty()) {
    out += "\n";
    append_wrapped(out, text, 0, 0, static_cast<std::size_t>(std::max(width, kNarrowest)));
  }
  std::string_view group;
  for (const Option& row : all_options()) {
    if ((row.tools & tool_bit(tool)) == 0 || !acts(row)) continue;
    if (row.group != group) {
      group = row.group;
      out += "\n" + std::string(group) + ":\n";
    }
    out += option_help(row, width);
  }
  append_list(out, tool, "Accepted, without effect here (a line says why):", std::max(width, kNarrowest),
              [](const Option& row) { return !row.no_effect_reason.empty(); });
  append_list(out, tool, "Known, but refused in this version:", std::max(width, kNarrowest),
              [](const Option& row) { return !row.refused_feature.empty(); });
  out += "\n";
  append_wrapped(out,
                 "A flag wins over its environment variable; where values add up (-ot), the variable's come first. "
                 "docs/parameters.md has every option of every program.",
                 0, 0, static_cast<std::size_t>(std::max(width, kNarrowest)));
  return out;
}

std::string version_text() {
  return "version: " + std::string(build_version()) + " (" + std::to_string(build_number()) + ", " +
         std::string(build_commit()) + ")\nbuilt with " + std::string(build_compiler()) + "\n";
}

std::string bash_completion(Tool tool) {
  // The shell knows programs, not their subcommands: both forms of llama-gguf have one completion.
  const ToolSet tools = (tool_bit(tool) & (kGguf | kSynth)) != 0 ? kGguf | kSynth : tool_bit(tool);
  const std::string name((tools & kGguf) != 0 ? tool_name(Tool::gguf) : tool_name(tool));
  std::string function = "_" + name;
  std::replace(function.begin(), function.end(), '-', '_');
  std::string words;
  for (const Option& row : all_options()) {
    if ((row.tools & tools) == 0 || row.is_operand) continue;
    for (const auto* list : {&row.spellings, &row.negatives})
      for (const std::string_view spelling : *list) words += (words.empty() ? "" : " ") + std::string(spelling);
  }
  return function + "() {\n  local word=\"${COMP_WORDS[COMP_CWORD]}\"\n  if [[ \"$word\" == -* ]]; then\n" +
         "    COMPREPLY=($(compgen -W \"" + words + "\" -- \"$word\"))\n  else\n" +
         "    COMPREPLY=($(compgen -f -- \"$word\"))\n  fi\n}\ncomplete -o filenames -F " + function + " " + name +
         "\n";
}

int terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const std::string columns = environment("COLUMNS").value_or("");
  int width = 0;
  const auto [end, failure] = std::from_chars(columns.data(), columns.data() + columns.size(), width);
  return failure == std::errc() && width >= kNarrowest ? width : kDefaultWidth;
}

}  // namespace common
