#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/args/option.h"

namespace common {

/// Every option of every executable, in the order of the help text. Immutable; built at the first call.
[[nodiscard]] std::span<const Option> all_options();

/// The row that `spelling` names for `tool` (of a tool with which it shares command lines if this one has none), and
/// whether it is one of its negative forms. Null row: unknown.
struct Match {
  const Option* row = nullptr;
  bool negative = false;
};
[[nodiscard]] Match find_option(Tool tool, std::string_view spelling);
/// The row that takes the bare words of the command line; null if the tool has none.
[[nodiscard]] const Option* find_operand(Tool tool);
/// The spelling as looked up: in a `--` argument `_` stands for `-`.
[[nodiscard]] std::string normal_spelling(std::string_view typed);
/// The known spelling that `typed` was probably meant to be; empty when none is near.
[[nodiscard]] std::string_view nearest_spelling(Tool tool, std::string_view typed);

inline constexpr std::string_view kVariablePrefix = "LLAMA_ARG_";
/// The variable that switches the option off by being there, "LLAMA_ARG_NO_..."; empty when there is none.
[[nodiscard]] std::string negative_variable(const Option& row, std::string_view variable);
/// Whether any option of any program reads the variable.
[[nodiscard]] bool is_known_variable(std::string_view name);
/// The known variable that `name` was probably meant to be; empty when none is near.
[[nodiscard]] std::string nearest_variable(std::string_view name);

// The groups, a file each; they append their rows with their group's name set.
void add_context_options(std::vector<Option>& table);      // options_context.cpp
void add_model_options(std::vector<Option>& table);        // options_model.cpp
void add_placement_options(std::vector<Option>& table);    // options_placement.cpp
void add_cache_options(std::vector<Option>& table);        // options_cache.cpp
void add_sampling_options(std::vector<Option>& table);     // options_sampling.cpp
void add_server_options(std::vector<Option>& table);       // options_server.cpp
void add_chat_options(std::vector<Option>& table);         // options_chat.cpp
void add_prompt_options(std::vector<Option>& table);       // options_prompt.cpp
void add_speculative_options(std::vector<Option>& table);  // options_speculative.cpp
void add_bench_options(std::vector<Option>& table);        // options_bench.cpp
void add_grid_options(std::vector<Option>& table);         // options_grid.cpp
void add_gguf_options(std::vector<Option>& table);         // options_gguf.cpp
void add_gguf_split_options(std::vector<Option>& table);   // options_gguf_split.cpp
void add_quantize_options(std::vector<Option>& table);     // options_quantize.cpp
void add_imatrix_options(std::vector<Option>& table);      // options_imatrix.cpp
void add_perplexity_options(std::vector<Option>& table);   // options_perplexity.cpp
void add_log_options(std::vector<Option>& table);          // options_log.cpp
void add_foreign_options(std::vector<Option>& table);      // options_foreign.cpp

}  // namespace common
