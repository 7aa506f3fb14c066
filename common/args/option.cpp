#include "common/args/option.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/args/text_value.h"
#include "common/json/json_fault.h"
#include "common/json/parse_json.h"

namespace common {
namespace {

constexpr std::size_t kMaxFileBytes = 256u << 20;  // a device such as /dev/zero never ends

/// `error while handling argument "-c": ` or the same for a variable.
std::string handling(const Argument& argument) {
  return std::string("error while handling ") + (argument.from_environment ? "environment variable" : "argument") +
         " \"" + argument.name + "\": ";
}

std::string number_text(double value) {
  return std::abs(value) < 1e15 && value == std::floor(value) ? ggml::strf("%.0f", value) : ggml::strf("%g", value);
}

/// "from 0 to 100", "of at least 1", ... A bound that is only where the type or the arithmetic ends is named when the
/// value lies beyond it.
std::string range_text(double least, double most, std::optional<double> value, double end_below, double end_above) {
  const bool below = least <= end_below && !(value.has_value() && *value < least);
  const bool above = most >= end_above && !(value.has_value() && *value > most);
  if (below && above) return {};
  if (above) return " of at least " + number_text(least);
  if (below) return " of at most " + number_text(most);
  return " from " + number_text(least) + " to " + number_text(most);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

void Target::note(ggml::LogLevel level, std::string text) {
  for (const auto& [known_level, known_text] : notes)
    if (known_text == text) return;
  notes.emplace_back(level, std::move(text));
}

Option option(std::vector<std::string_view> spellings, std::string_view placeholder, std::string_view help,
              Apply apply) {
  Option row;
  row.spellings = std::move(spellings);
  row.placeholder = placeholder;
  row.help = help;
  row.arity = placeholder.empty() ? 0 : 1;
  row.apply = std::move(apply);
  return row;
}

Option& Option::negative(std::vector<std::string_view> names) {
  negatives = std::move(names);
  return *this;
}
Option& Option::variable(std::string_view name) {
  variables.push_back(name);
  return *this;
}
Option& Option::initially(std::string_view text) {
  default_text = text;
  return *this;
}
Option& Option::used_by(ToolSet set) {
  tools = set;
  return *this;
}
Option& Option::takes(int values) {
  arity = values;
  return *this;
}
Option& Option::words(std::vector<std::string_view> list) {
  optional_words = std::move(list);
  arity = 0;
  return *this;
}
Option& Option::list() {
  accumulates = true;
  return *this;
}
Option& Option::operand() {
  is_operand = true;
  accumulates = true;
  arity = 1;
  return *this;
}
Option& Option::refused(std::string_view feature, std::string_view advice) {
  refused_feature = feature;
  refused_advice = advice;
  return *this;
}
Option& Option::unless(std::vector<std::string_view> values) {
  values_asking_nothing = std::move(values);
  return *this;
}
Option& Option::no_effect(std::string_view reason) {
  no_effect_reason = reason;
  return *this;
}
Option& Option::no_effect_warning(std::string_view reason) {
  no_effect_reason = reason;
  no_effect_changes_answers = true;
  return *this;
}
Option& Option::on_cpu() {
  satisfied_on_cpu = true;
  return *this;
}

void bad_value(const Argument& argument, std::string_view expected) {
  const std::string got = argument.bare() ? "nothing" : "\"" + argument.value() + "\"";
  throw ggml::Error(ggml::ErrorCode::invalid_argument,
                    handling(argument) + "expected " + std::string(expected) + ", got " + got);
}

void refuse(const Argument& argument, std::string_view feature, std::string_view advice) {
  std::string line = "error: " + argument.name;
  if (!argument.bare()) line += " " + argument.value();
  line += ": needs " + std::string(feature) + ", not in this version; " + std::string(advice);
  throw ggml::Error(ggml::ErrorCode::unsupported, std::move(line));
}

std::optional<std::int64_t> as_integer(std::string_view text) {
  std::int64_t value = 0;
  const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<double> as_real(std::string_view text) {
  double value = 0;
  const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::int64_t to_integer(const Argument& argument, std::string_view text, std::int64_t least, std::int64_t most) {
  const std::optional<std::int64_t> value = as_integer(text);
  if (value.has_value() && *value >= least && *value <= most) return *value;
  const std::optional<double> beyond = value.has_value() ? std::optional(static_cast<double>(*value)) : std::nullopt;
  bad_value(argument, "a whole number" + range_text(static_cast<double>(least), static_cast<double>(most), beyond,
                                                    -2147483648.0, static_cast<double>(kMaxInt)));
}

double to_real(const Argument& argument, std::string_view text, double least, double most) {
  const std::optional<double> value = as_real(text);
  if (value.has_value() && *value >= least && *value <= most) return *value;
  bad_value(argument, "a number" + range_text(least, most, value, -1e9, 1e9));
}

bool is_true_word(std::string_view text) {
  const std::string word = lower_case(text);
  return word == "on" || word == "enabled" || word == "true" || word == "1";
}

bool is_false_word(std::string_view text) {
  const std::string word = lower_case(text);
  return word == "off" || word == "disabled" || word == "false" || word == "0";
}

Tristate to_tristate(const Argument& argument, std::string_view text, bool automatic_allowed) {
  if (is_true_word(text)) return Tristate::on;
  if (is_false_word(text)) return Tristate::off;
  if (automatic_allowed && (lower_case(text) == "auto" || text == "-1")) return Tristate::automatic;
  bad_value(argument, automatic_allowed ? "on, off or auto" : "on or off");
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  std::string item;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      // A doubled quote inside a quoted item is one quote, as in CSV.
      if (quoted && i + 1 < text.size() && text[i + 1] == '"') {
        item += text[++i];
      } else {
        quoted = !quoted;
      }
    } else if (c == ',' && !quoted) {
      items.push_back(std::move(item));
      item.clear();
    } else {
      item += c;
    }
  }
  items.push_back(std::move(item));
  return items;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string read_file(const Argument& argument, const std::string& path) {
  const auto fail = [&](const std::string& why) {
    throw ggml::Error(ggml::ErrorCode::io, handling(argument) + "cannot read file \"" + path + "\"" + why);
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail(": it is a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) fail("");
  std::string contents;
  std::vector<char> chunk(1u << 16);
  while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || file.gcount() > 0) {
    contents.append(chunk.data(), static_cast<std::size_t>(file.gcount()));
    if (contents.size() > kMaxFileBytes) fail(ggml::strf(": it is larger than %zu MiB", kMaxFileBytes >> 20));
  }
  if (file.bad()) fail("");
  return contents;
}

std::string read_text_file(const Argument& argument, const std::string& path) {
  std::string contents = read_file(argument, path);
  const auto fail = [&](const std::string& what, std::string hint = {}) {
    throw ggml::Error(ggml::ErrorCode::invalid_argument, handling(argument) + "the file \"" + path + "\" " + what,
                      std::move(hint));
  };
  if (contents.starts_with("GGUF")) fail("is a GGUF file, not a text", "A model is given with -m.");
  if (const auto at = invalid_text_at(contents))
    fail(ggml::strf("is not a text: byte %zu is 0x%02X", *at + 1, static_cast<unsigned char>(contents[*at])));
  if (contents.find_first_not_of(" \t\r\n") == std::string::npos) fail("is empty");
  return contents;
}

void check_json(const Argument& argument, std::string_view text, std::string_view what) {
  try {
    (void)parse_json(text, std::string(what) + " is");
  } catch (const ggml::Error& error) {
    throw ggml::Error(error.code(), handling(argument) + error.message(),
                      argument.from_environment ? "" : "In a shell, put the whole text in single quotes.");
  }
}

std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    switch (c) {
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case 'r':
        out += '\r';
        break;
      case '\\':
      case '"':
      case '\'':
        out += c;
        break;
      case 'x': {
        const int high = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
        const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
        if (high >= 0 && low >= 0) {
          out += static_cast<char>(high * 16 + low);
          i += 2;
          break;
        }
        [[fallthrough]];
      }
      default:
        out += '\\';
        out += c;
    }
  }
  return out;
}

std::string join_words(std::span<const std::string_view> words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

}  // namespace common
