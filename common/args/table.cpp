#include "common/args/table.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <vector>

namespace common {
namespace {

std::vector<Option> build_table() {
  std::vector<Option> table;
  add_log_options(table);
  add_model_options(table);
  add_context_options(table);
  add_cache_options(table);
  add_placement_options(table);
  add_prompt_options(table);
  add_sampling_options(table);
  add_chat_options(table);
  add_server_options(table);
  add_speculative_options(table);
  add_bench_options(table);
  add_grid_options(table);
  add_gguf_options(table);
  add_gguf_split_options(table);
  add_quantize_options(table);
  add_imatrix_options(table);
  add_perplexity_options(table);
  add_foreign_options(table);
  return table;
}

bool contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// How far apart two names are; kEdit is a letter too many, one that is missing, or two that are swapped. A wrong
/// letter is a little more, since letters are left out more often.
constexpr int kEdit = 16, kReplace = 20;

int replacement(char a, char b) {
  if (a == b) return 0;
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return lower(a) == lower(b) ? kEdit / 2 : kReplace;
}

int edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<int> cells((a.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> int& { return cells[i * width + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = static_cast<int>(i) * kEdit;
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = static_cast<int>(j) * kEdit;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = at(i - 1, j - 1) + replacement(a[i - 1], b[j - 1]);
      int best = std::min({at(i - 1, j) + kEdit, at(i, j - 1) + kEdit, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) best = std::min(best, at(i - 2, j - 2) + kEdit);
      at(i, j) = best;
    }
  }
  return at(a.size(), b.size());
}

/// The same where `typed` is a part of a longer name: its beginning, or whole words of it (`ctx` of `ctx-size`). Of
/// several the shortest is nearest. `separator` stands between words.
int shortened_distance(std::string_view typed, std::string_view name, char separator) {
  constexpr std::size_t kLeast = 3;  // letters that tell something
  constexpr int kOther = kEdit / 2;  // for a beginning in the middle of a word, and for words that are not the first
  const std::size_t begin = name.find(typed);
  if (typed.size() < kLeast || begin == std::string_view::npos || (begin > 0 && name[begin - 1] != separator))
    return std::numeric_limits<int>::max();
  const std::size_t end = begin + typed.size();
  const bool whole = end == name.size() || name[end] == separator;
  if (begin > 0 && !whole) return std::numeric_limits<int>::max();
  const int longer = std::min(static_cast<int>(name.size() - typed.size()), kOther - 1);
  return kEdit / 2 + longer + (begin == 0 ? 0 : kOther) + (whole ? 0 : kOther);
}

/// Names that are at least so far apart are not meant for one another.
int too_far(std::string_view word) {
  if (word.size() <= 1) return kEdit * static_cast<int>(word.size());  // of one letter only the other case is left
  return (std::max(1, static_cast<int>(word.size()) / 3) + 1) * kEdit;
}

/// Calls `visit` with every variable that some option reads, LLAMA_ARG_NO_... included.
template <class Visit>
void for_each_variable(const Visit& visit) {
  for (const Option& row : all_options()) {
    for (const std::string_view variable : row.variables) {
      visit(std::string(variable));
      if (const std::string no = negative_variable(row, variable); !no.empty()) visit(no);
    }
  }
}

/// Whether an option that is not the tool's own means something to it: it belongs to a program with which the tool
/// shares command lines, or to one that is not here.
bool shares(Tool tool, const Option& row) {
  return (kSharedLine & tool_bit(tool)) != 0 && (row.tools == 0 || (row.tools & kSharedLine) != 0);
}

std::string_view without_dashes(std::string_view name) {
  while (name.starts_with('-')) name.remove_prefix(1);
  return name;
}

}  // namespace

std::span<const Option> all_options() {
  static const std::vector<Option> table = build_table();
  return table;
}

Match find_option(Tool tool, std::string_view spelling) {
  Match other;
  for (const Option& row : all_options()) {
    const bool positive = contains(row.spellings, spelling);
    const bool negative = !positive && contains(row.negatives, spelling);
    if (!positive && !negative) continue;
    if ((row.tools & tool_bit(tool)) != 0) return {&row, negative};
    if (other.row == nullptr && shares(tool, row)) other = {&row, negative};
  }
  return other;
}

const Option* find_operand(Tool tool) {
  for (const Option& row : all_options())
    if (row.is_operand && (row.tools & tool_bit(tool)) != 0) return &row;
  return nullptr;
}

std::string normal_spelling(std::string_view typed) {
  std::string out(typed);
  if (typed.starts_with("--")) std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

std::string_view nearest_spelling(Tool tool, std::string_view typed) {
  // An argument list may hold anything; only the length of a flag is worth comparing.
  constexpr std::size_t kLongest = 64;
  const std::string_view word = without_dashes(typed).substr(0, kLongest);
  int best_distance = too_far(word);
  std::string_view best;
  const bool is_long = typed.starts_with("--");
  const auto consider = [&](std::string_view name, int handicap) {
    const std::string_view other = without_dashes(name);
    // -thp is not what --tmp was meant to be where there is --temp.
    if (is_long != name.starts_with("--")) handicap += kEdit / 2;
    const int distance = std::min(edit_distance(word, other), shortened_distance(word, other, '-')) + handicap;
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  };
  for (const Option& row : all_options()) {
    // An option of another program is only suggested when it is strictly nearer.
    const bool own = (row.tools & tool_bit(tool)) != 0;
    if (row.is_operand || (!own && !shares(tool, row))) continue;
    const int handicap = own ? 0 : kEdit;
    for (const std::string_view name : row.spellings) consider(name, handicap);
    for (const std::string_view name : row.negatives) consider(name, handicap);
  }
  return best;
}

std::string negative_variable(const Option& row, std::string_view variable) {
  if (row.negatives.empty() || !variable.starts_with(kVariablePrefix)) return {};
  return std::string(kVariablePrefix) + "NO_" + std::string(variable.substr(kVariablePrefix.size()));
}

bool is_known_variable(std::string_view name) {
  bool known = false;
  for_each_variable([&](const std::string& variable) { known = known || variable == name; });
  return known;
}

std::string nearest_variable(std::string_view name) {
  constexpr std::size_t kLongest = 64;
  const std::string_view word = name.substr(std::min(name.size(), kVariablePrefix.size()), kLongest);
  int best_distance = too_far(word);
  std::string best;
  for_each_variable([&](const std::string& variable) {
    if (!variable.starts_with(kVariablePrefix)) return;
    const std::string_view other = std::string_view(variable).substr(kVariablePrefix.size());
    const int distance = std::min(edit_distance(word, other), shortened_distance(word, other, '_'));
    if (distance >= best_distance) return;
    best_distance = distance;
    best = variable;
  });
  return best;
}

}  // namespace common
