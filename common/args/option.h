#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/args/args.h"
#include "common/args/settings.h"

namespace common {

/// A set of Tools, one bit each.
using ToolSet = std::uint32_t;
constexpr ToolSet tool_bit(Tool tool) noexcept {
  return ToolSet{1} << static_cast<unsigned>(tool);
}
inline constexpr ToolSet kServer = tool_bit(Tool::server);
inline constexpr ToolSet kCli = tool_bit(Tool::cli);
inline constexpr ToolSet kSweepBench = tool_bit(Tool::sweep_bench);
inline constexpr ToolSet kTokenize = tool_bit(Tool::tokenize);
inline constexpr ToolSet kBench = tool_bit(Tool::bench);
inline constexpr ToolSet kGguf = tool_bit(Tool::gguf);
inline constexpr ToolSet kSynth = tool_bit(Tool::gguf_synth);
inline constexpr ToolSet kGgufSplit = tool_bit(Tool::gguf_split);
inline constexpr ToolSet kQuantize = tool_bit(Tool::quantize);
inline constexpr ToolSet kImatrix = tool_bit(Tool::imatrix);
inline constexpr ToolSet kPerplexity = tool_bit(Tool::perplexity);
inline constexpr ToolSet kFitParams = tool_bit(Tool::fit_params);
inline constexpr ToolSet kGenerators = kServer | kCli;       // programs that sample tokens
inline constexpr ToolSet kScorers = kImatrix | kPerplexity;  // programs that read a text
inline constexpr ToolSet kModelRunners = kGenerators | kSweepBench | kScorers | kFitParams;  // programs that compute
inline constexpr ToolSet kModelLoaders = kModelRunners | kTokenize;
inline constexpr ToolSet kEveryTool = kModelLoaders | kBench | kGguf | kSynth | kGgufSplit | kQuantize;
/// Programs between which command lines are moved: an option of one is known to the others, which list it as unused.
inline constexpr ToolSet kSharedLine = kModelLoaders | kBench;

/// One use of an option on the command line or in the environment.
struct Argument {
  std::string name;  // as typed, or the variable's name
  bool negative = false;
  bool from_environment = false;
  std::vector<std::string> values;  // as many as the option's arity said; empty for a bare switch

  [[nodiscard]] const std::string& value() const { return values.front(); }
  [[nodiscard]] bool bare() const { return values.empty(); }
};

/// What apply functions write to.
struct Target {
  Settings& settings;
  std::vector<std::pair<ggml::LogLevel, std::string>>& notes;

  /// Adds a note unless the same one is there already.
  void note(ggml::LogLevel level, std::string text);
};

using Apply = std::function<void(Target&, const Argument&)>;

/// One row of the table: an option of any executable. The methods fill the optional columns, so that a row reads as a
/// sentence.
struct Option {
  std::vector<std::string_view> spellings;  // the long form that documents it comes last
  std::vector<std::string_view> negatives;  // spellings that switch it off
  std::vector<std::string_view> variables;  // environment, the first one documented
  std::string_view placeholder;             // "N", "FNAME"; empty for a switch
  std::string_view help;
  std::string_view default_text;
  std::string_view group;
  std::string_view since = "0.1";
  ToolSet tools = kModelRunners;
  int arity = 0;  // values consumed; -1: a second one if the first holds no ':'
  // Not empty: a value is consumed only if it is one of these; where uses add up, also if it is a comma list of them.
  std::vector<std::string_view> optional_words;
  bool is_operand = false;   // not an option but a bare word of the line; FILE is its name
  bool accumulates = false;  // repeated uses add up instead of the last one winning
  Apply apply;

  // What becomes of the option in this version. At most one of the three is set.
  std::string_view refused_feature;                     // "needs <feature>, not in this version"
  std::string_view refused_advice;                      // "; <what to do>"
  std::vector<std::string_view> values_asking_nothing;  // "0", "none": accepted without a word, whatever the row is
  std::string_view no_effect_reason;
  bool no_effect_changes_answers = false;  // then it is a warning
  bool satisfied_on_cpu = false;           // its meaning holds by itself where there is no GPU

  [[nodiscard]] std::string_view long_name() const { return spellings.back(); }
  [[nodiscard]] bool is_switch() const { return arity == 0 && optional_words.empty(); }

  Option& negative(std::vector<std::string_view> names);
  Option& variable(std::string_view name);
  Option& initially(std::string_view text);
  Option& used_by(ToolSet set);
  Option& takes(int values);
  Option& words(std::vector<std::string_view> list);
  Option& list();
  Option& operand();
  Option& refused(std::string_view feature, std::string_view advice);
  Option& unless(std::vector<std::string_view> values);
  Option& no_effect(std::string_view reason);
  Option& no_effect_warning(std::string_view reason);
  Option& on_cpu();
};

/// A row; `placeholder` empty makes it a switch, otherwise it takes one value.
[[nodiscard]] Option option(std::vector<std::string_view> spellings, std::string_view placeholder,
                            std::string_view help, Apply apply = {});

/// Throws the error for a value that has the wrong type: `what` says what was expected.
[[noreturn]] void bad_value(const Argument& argument, std::string_view expected);
/// Throws the error for something that is known but not in this version.
[[noreturn]] void refuse(const Argument& argument, std::string_view feature, std::string_view advice);

[[nodiscard]] std::int64_t to_integer(const Argument& argument, std::string_view text, std::int64_t least,
                                      std::int64_t most);
[[nodiscard]] double to_real(const Argument& argument, std::string_view text, double least, double most);
/// on, enabled, true, 1 | off, disabled, false, 0; and auto, -1 if `automatic_allowed`.
[[nodiscard]] Tristate to_tristate(const Argument& argument, std::string_view text, bool automatic_allowed);
/// Nothing for a word that is neither true nor false.
[[nodiscard]] bool is_true_word(std::string_view text);
[[nodiscard]] bool is_false_word(std::string_view text);
/// Comma list; an item that holds a comma is wrapped in "...".
[[nodiscard]] std::vector<std::string> split_list(std::string_view text);
[[nodiscard]] std::string lower_case(std::string_view text);
/// Contents of a file that an option names.
[[nodiscard]] std::string read_file(const Argument& argument, const std::string& path);
/// The escapes \n \t \r \\ \" \' \xHH replaced by what they stand for.
[[nodiscard]] std::string unescape(std::string_view text);

inline constexpr std::int64_t kMaxInt = 2147483647;

/// Apply function of a whole number; `get(settings)` names the field, an int or an optional<int>.
template <class Get>
Apply whole(Get get, std::int64_t least, std::int64_t most = kMaxInt) {
  return [=](Target& target, const Argument& argument) {
    get(target.settings) = static_cast<int>(to_integer(argument, argument.value(), least, most));
  };
}

template <class Get>
Apply real(Get get, double least, double most) {
  return [=](Target& target, const Argument& argument) {
    get(target.settings) = static_cast<float>(to_real(argument, argument.value(), least, most));
  };
}

template <class Get>
Apply text(Get get) {
  return [=](Target& target, const Argument& argument) { get(target.settings) = argument.value(); };
}

/// Sets a bool: true for the positive spelling, false for the negative one.
template <class Get>
Apply toggle(Get get) {
  return [=](Target& target, const Argument& argument) { get(target.settings) = !argument.negative; };
}

/// A switch that may carry a boolean word: bare = on, negative spelling = off.
template <class Get>
Apply toggle_word(Get get) {
  return [=](Target& target, const Argument& argument) {
    get(target.settings) =
        argument.bare() ? !argument.negative : to_tristate(argument, argument.value(), false) == Tristate::on;
  };
}

/// One of a closed set of words.
template <class T>
using Words = std::vector<std::pair<std::string_view, T>>;

[[nodiscard]] std::string join_words(std::span<const std::string_view> words);

template <class T>
T to_word(const Argument& argument, const Words<T>& words) {
  std::vector<std::string_view> known;
  for (const auto& [word, value] : words) {
    if (lower_case(argument.value()) == word) return value;
    known.push_back(word);
  }
  bad_value(argument, "one of " + join_words(known));
}

template <class Get, class T>
Apply word(Get get, Words<T> words) {
  return [=](Target& target, const Argument& argument) { get(target.settings) = to_word(argument, words); };
}

/// Appends every item of a comma list.
template <class Get>
Apply items(Get get) {
  return [=](Target& target, const Argument& argument) {
    for (std::string& item : split_list(argument.value())) get(target.settings).push_back(std::move(item));
  };
}

}  // namespace common
