// Resolves what was typed. CLI11 takes `-ngl` for `-n gl`, consumes an optional value whatever it looks like, and has
// its own words for unknown flags; so spellings and values are settled here, from the table, and CLI11 (parse.cpp) sees
// only long names with the right number of values.
#include "common/args/rewrite.h"

#include <algorithm>
#include <span>

#include "common/args/table.h"

namespace common {
namespace {

/// What is wrong with a bare word behind `before`, which took no value.
std::string no_value_text(const Occurrence& before, const std::string& word) {
  const Option& row = *before.row;
  const std::string& name = before.argument.name;
  if (!row.optional_words.empty() && !before.argument.negative)
    return name + " takes one of the words " + join_words(row.optional_words) + ", or none.";
  std::string text = name + " takes no value";
  if (is_true_word(word)) return text + ": leave \"" + word + "\" out.";
  if (is_false_word(word) && !before.argument.negative)
    return text +
           (row.negatives.empty() ? ": leave both out." : "; to switch it off: " + std::string(row.negatives.back()));
  return text + ".";
}

/// `before`: the option that the word follows and that took no value; null: none.
[[noreturn]] void unknown_argument(Tool tool, const std::string& typed, const Occurrence* before) {
  std::string hint;
  const std::size_t equals = typed.find('=');
  const std::string name = normal_spelling(typed.substr(0, equals));
  const Match match = equals == std::string::npos ? Match{} : find_option(tool, name);
  if (match.row != nullptr) {
    const std::string value = typed.substr(equals + 1);
    const bool takes_one = !match.negative && !match.row->is_switch();
    hint = takes_one ? "A value is the next argument: " + name + " " + value
                     : no_value_text({match.row, {name, match.negative, false, {}}}, value);
  } else if (typed.starts_with('-')) {
    const std::string_view nearest = nearest_spelling(tool, name);
    if (!nearest.empty()) hint = "Did you mean " + std::string(nearest) + "? ";
    hint += "For the list of options: " + std::string(tool_name(tool)) + " --help";
  } else if (before != nullptr) {
    hint = no_value_text(*before, typed);
  } else {
    hint =
        "Values follow the option they belong to; for the list of options: " + std::string(tool_name(tool)) + " --help";
  }
  throw ggml::Error(ggml::ErrorCode::invalid_argument, "error: invalid argument: " + typed, std::move(hint));
}

bool is_word(const Option& row, std::string_view text) {
  return std::any_of(row.optional_words.begin(), row.optional_words.end(),
                     [&](std::string_view word) { return lower_case(text) == word; });
}

/// Whether a value that the option may do without is one of its own.
bool is_own_value(const Option& row, std::string_view text) {
  if (!row.accumulates) return is_word(row, text);
  const std::vector<std::string> items = split_list(text);
  return std::all_of(items.begin(), items.end(), [&](const std::string& item) { return is_word(row, item); });
}

/// How many of `rest` belong to the option.
int values_wanted(const Option& row, std::span<const char* const> rest) {
  if (!row.optional_words.empty()) return !rest.empty() && is_own_value(row, rest[0]) ? 1 : 0;
  if (row.arity == -1) return rest.empty() || std::string_view(rest[0]).find(':') != std::string_view::npos ? 1 : 2;
  return row.arity;
}

}  // namespace

Rewritten rewrite_arguments(Tool tool, int argc, const char* const* argv) {
  Rewritten out;
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(std::max(argc, 0)));
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string typed = arguments[i];
    const bool looks_like_option = typed.size() > 1 && typed[0] == '-';
    const Match match = looks_like_option ? find_option(tool, normal_spelling(typed)) : Match{find_operand(tool)};
    if (match.row == nullptr) {
      const bool follows = !out.occurrences.empty() && out.occurrences.back().argument.bare();
      unknown_argument(tool, typed, follows ? &out.occurrences.back() : nullptr);
    }
    const std::string_view name = match.row->long_name();
    if (!looks_like_option) {
      out.occurrences.push_back({match.row, {std::string(name), false, false, {typed}}});
      continue;
    }
    if (name == "--help" || name == "--version" || name == "--completion-bash") {
      out.printing = name;
      return out;
    }
    Occurrence use{match.row, {.name = typed, .negative = match.negative, .from_environment = false, .values = {}}};
    const std::span<const char* const> rest = arguments.subspan(i + 1);
    const auto wanted = static_cast<std::size_t>(match.negative ? 0 : values_wanted(*match.row, rest));
    if (wanted > rest.size()) {
      throw ggml::Error(ggml::ErrorCode::invalid_argument,
                        "error while handling argument \"" + typed + "\": expected value for argument",
                        "usage: " + std::string(match.row->long_name()) + " " + std::string(match.row->placeholder));
    }
    for (std::size_t v = 0; v < wanted; ++v) use.argument.values.emplace_back(rest[v]);
    i += wanted;
    out.occurrences.push_back(std::move(use));
  }
  return out;
}

std::vector<std::string> unknown_variables(EnvironmentNames names) {
  std::vector<std::string> out;
  for (std::string& name : names(kVariablePrefix)) {
    if (is_known_variable(name)) continue;
    const std::string nearest = nearest_variable(name);
    out.push_back(name + " is set, but there is no option of that name" +
                  (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
  }
  return out;
}

std::vector<Occurrence> environment_occurrences(Tool tool, EnvironmentLookup lookup) {
  std::vector<Occurrence> out;
  for (const Option& row : all_options()) {
    if ((row.tools & tool_bit(tool)) == 0) continue;
    // The documented name comes first in the row and last here: of two that are set it is the one that holds.
    for (auto name = row.variables.rbegin(); name != row.variables.rend(); ++name) {
      const std::string_view variable = *name;
      Occurrence use{&row, {.name = std::string(variable), .negative = false, .from_environment = true, .values = {}}};
      const std::optional<std::string> value = lookup(use.argument.name);
      if (value && row.is_switch()) {
        if (is_true_word(*value)) {
          out.push_back(use);
        } else if (!row.negatives.empty()) {
          use.argument.values = {*value};
          if (!is_false_word(*value)) bad_value(use.argument, "on or off");
          use.argument.values.clear();
          use.argument.negative = true;
          out.push_back(use);
        }
      } else if (value && !value->empty()) {
        use.argument.values = {*value};
        out.push_back(use);
      }
      // The mere presence of the NO form switches off, whatever its value.
      const std::string no = negative_variable(row, variable);
      if (!no.empty() && lookup(no)) {
        use.argument = {.name = no, .negative = true, .from_environment = true, .values = {}};
        out.push_back(use);
      }
    }
  }
  return out;
}

}  // namespace common
