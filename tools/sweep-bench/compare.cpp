#include "compare.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "flags.h"
#include "ggml/error.h"
#include "ggml/log.h"

namespace sweep {
namespace {

using common::Parsed;
using common::Settings;
using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

constexpr std::size_t kMostConfigurations = 26;

const Row* row_at(const Configuration& configuration, int n_kv) {
  const auto found = std::find_if(configuration.rows.begin(), configuration.rows.end(),
                                  [&](const Row& row) { return row.n_kv == n_kv; });
  return found == configuration.rows.end() ? nullptr : &*found;
}

[[noreturn]] void fail(const Configuration& configuration, ErrorCode code, const std::string& what,
                       const std::string& hint) {
  throw Error(code, strf("--compare, configuration %s: %s", configuration.label().c_str(), what.c_str()), hint);
}

Parsed parse_words(const std::vector<std::string>& words, const common::ParseOptions& options) {
  std::vector<const char*> arguments{"llama-sweep-bench"};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  return common::parse(common::Tool::sweep_bench, static_cast<int>(arguments.size()), arguments.data(), options);
}

/// What only the whole command line can say. `alone`: the flags without it.
void check_flags(const Configuration& configuration, const Parsed& alone) {
  const Settings defaults;
  const Settings& given = alone.settings;
  const auto refuse = [&](bool is_given, const char* what) {
    if (!is_given) return;
    fail(configuration, ErrorCode::invalid_argument, strf("%s holds for the whole comparison", what),
         "put it outside of the quotes");
  };
  refuse(alone.action != common::Action::run, "--help and its like");
  refuse(!given.model.path.empty(), "the model (-m)");
  refuse(!given.bench.compare.empty(), "--compare");
  refuse(!given.bench.output_file.empty(), "--output-file");
  refuse(!given.bench.chart_file.empty(), "--chart");
  refuse(given.bench.format != defaults.bench.format, "--output-format");
  refuse(given.placement.dry_run != defaults.placement.dry_run, "--dry-run");
  refuse(given.model.list_devices || given.model.list_architectures, "a list");
  refuse(
      given.log.disabled || !given.log.file.empty() || given.log.verbosity != defaults.log.verbosity || given.log.json,
      "the log");
}

/// Runs the parser; what it throws then names the configuration.
template <class Parse>
auto named(const Configuration& configuration, const Parse& parse) {
  try {
    return parse();
  } catch (const Error& error) {
    std::string what = error.message();
    constexpr std::string_view kPrefix = "error: ";
    if (what.starts_with(kPrefix)) what.erase(0, kPrefix.size());
    fail(configuration, error.code(), what, error.hint());
  }
}

/// Notes that the line alone did not cause, but for what is meant by writing the flags twice.
void log_notes(const Configuration& configuration, const Parsed& line, const Parsed& with_flags) {
  for (const auto& [level, text] : with_flags.notes) {
    const bool known = std::any_of(line.notes.begin(), line.notes.end(),
                                   [text = &text](const auto& note) { return note.second == *text; });
    if (known || text.find("given more than once") != std::string::npos) continue;
    ggml::logf(level, "configuration %s: %s", configuration.name.c_str(), text.c_str());
  }
}

double as_printed(double speed) {
  return std::strtod(strf("%f", speed).c_str(), nullptr);
}

std::string number_or_dash(const Row* row, double (Row::*speed)() const) {
  return row == nullptr ? strf("%10s", "-") : strf("%10.2f", (row->*speed)());
}

std::string ratio_or_dash(const Row* row, const Row* base, double (Row::*speed)() const) {
  return row == nullptr || base == nullptr ? strf("%6s", "-") : strf("%6.3f", (row->*speed)() / (base->*speed)());
}

constexpr double (Row::*kSpeeds[])() const = {&Row::speed_pp, &Row::speed_tg};

std::string mean_line(const Configuration& first, const Configuration& other) {
  double log_pp = 0;
  double log_tg = 0;
  int depths = 0;
  for (const Row& row : other.rows) {
    const Row* base = row_at(first, row.n_kv);
    if (base == nullptr) continue;
    ++depths;
    log_pp += std::log(row.speed_pp() / base->speed_pp());
    log_tg += std::log(row.speed_tg() / base->speed_tg());
  }
  if (depths == 0) return strf("%s / %s: no depth in common", other.name.c_str(), first.name.c_str());
  return strf("%s / %s: geometric mean of the ratios over %d depth%s: PP %.3f, TG %.3f", other.name.c_str(),
              first.name.c_str(), depths, depths == 1 ? "" : "s", std::exp(log_pp / depths), std::exp(log_tg / depths));
}

std::string header_cells(const Configuration& configuration, const Configuration& first) {
  std::string cells = strf(" %10s | %10s |", ("PP " + configuration.name + " t/s").c_str(),
                           ("TG " + configuration.name + " t/s").c_str());
  if (&configuration == &first) return cells;
  const std::string ratio = configuration.name + "/" + first.name;
  return cells + strf(" %6s | %6s |", ("PP " + ratio).c_str(), ("TG " + ratio).c_str());
}

}  // namespace

std::string Configuration::label() const {
  if (name.empty()) return {};
  return name + ": " + (flags.empty() ? "(no flags)" : flags);
}

std::vector<Configuration> configurations_of(const Settings& settings, const common::ParseOptions& options) {
  const std::vector<std::string>& flags = settings.bench.compare;
  std::vector<Configuration> configurations;
  if (flags.empty()) {
    configurations.push_back({.settings = settings});
    return configurations;
  }
  if (flags.size() > kMostConfigurations) {
    throw Error(ErrorCode::invalid_argument,
                strf("--compare: %zu configurations, at most %zu", flags.size(), kMostConfigurations));
  }
  const Parsed line = parse_words(settings.line, options);
  common::ParseOptions without_line = options;
  without_line.environment = [](const std::string&) { return std::optional<std::string>(); };
  without_line.require_model = false;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    Configuration& configuration = configurations.emplace_back(
        Configuration{.name = std::string(1, static_cast<char>('A' + i)), .flags = flags[i]});
    const std::vector<std::string> words = named(configuration, [&] { return split_words(configuration.flags); });
    check_flags(configuration, named(configuration, [&] { return parse_words(words, without_line); }));
    std::vector<std::string> all = settings.line;
    all.insert(all.end(), words.begin(), words.end());
    Parsed parsed = named(configuration, [&] { return parse_words(all, options); });
    log_notes(configuration, line, parsed);
    configuration.settings = std::move(parsed.settings);
  }
  return configurations;
}

MoreKeys keys_of(const Configuration& configuration, const Configuration& first) {
  if (configuration.name.empty()) return {};
  return [&configuration, &first](const Row& row) {
    const nlohmann::json flags = configuration.flags;
    std::string text = strf(", \"configuration\": \"%s\", \"flags\": %s", configuration.name.c_str(),
                            flags.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    if (&configuration == &first) return text;
    const Row* base = row_at(first, row.n_kv);
    if (base == nullptr) return text + ", \"ratio_pp\": null, \"ratio_tg\": null";
    return text + strf(", \"ratio_pp\": %f, \"ratio_tg\": %f", row.speed_pp() / base->speed_pp(),
                       row.speed_tg() / base->speed_tg());
  };
}

std::vector<std::string> comparison_lines(const std::vector<Configuration>& configurations) {
  const Configuration& first = configurations.front();
  std::vector<std::string> lines;
  std::string head = strf("|%6s |", "N_KV"), rule = "|-------|";
  std::set<int> depths;
  for (const Configuration& configuration : configurations) {
    head += header_cells(configuration, first);
    rule += "------------|------------|";
    if (&configuration != &first) rule += "--------|--------|";
    for (const Row& row : configuration.rows) depths.insert(row.n_kv);
  }
  lines.push_back(head);
  lines.push_back(rule);
  for (const int n_kv : depths) {
    const Row* base = row_at(first, n_kv);
    std::string text = strf("|%6d |", n_kv);
    for (const Configuration& configuration : configurations) {
      const Row* row = row_at(configuration, n_kv);
      for (const auto speed : kSpeeds) text += " " + number_or_dash(row, speed) + " |";
      if (&configuration == &first) continue;
      for (const auto speed : kSpeeds) text += " " + ratio_or_dash(row, base, speed) + " |";
    }
    lines.push_back(text);
  }
  lines.emplace_back();
  for (std::size_t i = 1; i < configurations.size(); ++i) lines.push_back(mean_line(first, configurations[i]));
  return lines;
}

Chart chart_of(const std::vector<Configuration>& configurations, const std::string& model_name) {
  Chart chart;
  chart.title = "llama-sweep-bench " + model_name;
  for (const Configuration& configuration : configurations) {
    Series series{configuration.label(), {}};
    // The numbers of the JSONL rows, so that a drawing of these is the same.
    for (const Row& row : configuration.rows)
      series.points.push_back({row.n_kv, as_printed(row.speed_pp()), as_printed(row.speed_tg())});
    chart.series.push_back(std::move(series));
  }
  return chart;
}

}  // namespace sweep
