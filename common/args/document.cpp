// docs/parameters.md, from the table.
#include <array>
#include <string>

#include "common/args/args.h"
#include "common/args/table.h"

namespace common {
namespace {

constexpr std::array<std::pair<Tool, std::string_view>, kToolCount> kToolColumns = {
    std::pair<Tool, std::string_view>{Tool::server, "server"},
    {Tool::cli, "cli"},
    {Tool::sweep_bench, "sweep-bench"},
    {Tool::tokenize, "tokenize"},
    {Tool::bench, "bench"},
    {Tool::gguf, "gguf"},
    {Tool::gguf_synth, "gguf synth"},
    {Tool::gguf_split, "gguf-split"},
    {Tool::quantize, "quantize"},
    {Tool::imatrix, "imatrix"},
    {Tool::fit_params, "fit-params"},
    {Tool::perplexity, "perplexity"}};

struct Variable {
  std::string_view name;
  std::string_view meaning;
};

/// Variables that belong to no option.
constexpr std::array<Variable, 4> kVariables = {{
    {"GGML_CPU_ISA", "forces one instruction set of the CPU kernels: scalar, avx2, avx512, avx512vnni or avx512vbmi"},
    {"GGML_OP_OFFLOAD_MIN_BATCH",
     "micro-batches of at least that many tokens are computed on a GPU although their weights are in host memory "
     "(--op-offload)"},
    {"NO_COLOR", "set to anything: no colours"},
    {"COLUMNS", "width of --help when standard output is not a terminal"},
}};

/// Text inside a table cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*') out += '\\';
    out += c;
  }
  return out;
}

std::string programs(const Option& row) {
  if (row.tools == kEveryTool) return "all";
  std::string out;
  for (const auto& [tool, name] : kToolColumns)
    if ((row.tools & tool_bit(tool)) != 0) out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

std::string spellings(const Option& row) {
  std::string out;
  for (const auto* list : {&row.spellings, &row.negatives})
    for (const std::string_view name : *list) out += (out.empty() ? "`" : ", `") + std::string(name) + "`";
  if (!row.placeholder.empty()) out += " " + cell(row.placeholder);
  return out;
}

std::string meaning(const Option& row) {
  std::string out = cell(row.help);
  if (!row.refused_feature.empty()) {
    out +=
        " **Refused**: needs " + cell(row.refused_feature) + ", not in this version; " + cell(row.refused_advice) + ".";
    for (const auto* list : {&row.negatives, &row.values_asking_nothing})
      for (const std::string_view value : *list) out += " `" + std::string(value) + "` is accepted.";
  }
  if (!row.no_effect_reason.empty()) out += " *No effect here*: " + cell(row.no_effect_reason) + ".";
  if (row.satisfied_on_cpu) out += " *Without a GPU*: checked, and nothing else to do.";
  return out;
}

std::string variables(const Option& row) {
  std::string out;
  for (const std::string_view name : row.variables) out += (out.empty() ? "`" : ", `") + std::string(name) + "`";
  return out;
}

}  // namespace

std::string parameters_document() {
  std::string out =
      "# Parameters\n\nGenerated from the table in common/args by `params-doc`; edit the rows there, then run\n"
      "`build/bin/params-doc > docs/parameters.md`. A test fails when this file is stale.\n\n"
      "A flag on the command line wins over its environment variable; where values add up (`-ot`), those of the "
      "variable come\nfirst, and of placement rules the first match wins. A variable that begins with `LLAMA_ARG_` and "
      "belongs to no option is a\nwarning with the nearest name. In a flag that begins with `--`, `_` may "
      "stand for `-`.\nA value is the next argument (`--port 8080`, not `--port=8080`). Of a flag that is repeated the "
      "last value is used, except\nfor lists. Flags of another program are accepted and listed once as unused, but by "
      "llama-gguf, llama-gguf-split\nand llama-quantize, which share no command lines with the others. Options of "
      "llama-bench take lists and have no variables, so that a command line says all that\nit measured.\n";
  std::string_view group;
  for (const Option& row : all_options()) {
    if (row.tools == 0) continue;
    if (row.group != group) {
      group = row.group;
      out += "\n## " + std::string(group) +
             "\n\n| Option | Meaning | Default | Variable | Programs |\n|---|---|---|---|---|\n";
    }
    out += "| " + spellings(row) + " | " + meaning(row) + " | " + cell(row.default_text) + " | " + variables(row) +
           " | " + programs(row) + " |\n";
  }
  out += "\n## Other variables\n\n| Variable | Meaning |\n|---|---|\n";
  for (const Variable& variable : kVariables)
    out += "| `" + std::string(variable.name) + "` | " + std::string(variable.meaning) + " |\n";
  out +=
      "\n## Options of other programs\n\nKnown and accepted, so that a command line can be moved from one program to "
      "another:\n\n";
  std::string names;
  for (const Option& row : all_options())
    if (row.tools == 0) names += (names.empty() ? "" : ", ") + spellings(row);
  return out + names + ".\n";
}

}  // namespace common
