// llama-sweep-bench: prompt and generation speed at growing cache depth, of one configuration or of several in turn.
#include <optional>
#include <vector>

#include "chart.h"
#include "common/setup/loaded_model.h"
#include "common/setup/planned_run.h"
#include "common/setup/run_tool.h"
#include "common/setup/setup.h"
#include "compare.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "measure.h"
#include "output.h"

namespace {

using ggml::strf;
using sweep::Configuration;

/// Runs `body`; what it throws then names the configuration.
template <class Body>
void named(const Configuration& configuration, const Body& body) {
  const auto text = [&](const ggml::Error& error) {
    return configuration.name.empty()
               ? error.message()
               : strf("configuration %s: %s", configuration.label().c_str(), error.message().c_str());
  };
  try {
    body();
  } catch (const common::DoesNotFit& error) {
    throw common::DoesNotFit(error.code(), text(error), error.hint());
  } catch (const ggml::Error& error) {
    throw ggml::Error(error.code(), text(error), error.hint());
  }
}

/// The headers alone say whether a configuration can run: better now than after an hour of the first one.
void check_all(const std::vector<Configuration>& configurations) {
  if (configurations.size() < 2) return;
  for (const Configuration& configuration : configurations) {
    named(configuration, [&] {
      const common::PlannedRun planned = common::plan_run(
          configuration.settings, common::sequences_of(common::Tool::sweep_bench, configuration.settings));
      sweep::check_depth(planned, configuration.settings);
      sweep::check_last_row(planned, configuration.settings);
      if (planned.fits) return;
      throw common::DoesNotFit(ggml::ErrorCode::out_of_memory,
                               "the model does not fit: " + common::shortfall_text(planned));
    });
  }
}

void measure_all(std::vector<Configuration>& configurations, sweep::Output& output) {
  common::LoadedModel loaded;
  const bool is_table = configurations.front().settings.bench.format == common::SweepFormat::markdown;
  for (Configuration& configuration : configurations) {
    if (!configuration.name.empty()) {
      const std::string title = "configuration " + configuration.label();
      is_table ? output.line((configuration.name == "A" ? "" : "\n") + title + "\n") : output.note(title);
    }
    named(configuration, [&] {
      configuration.rows =
          sweep::measure(configuration.settings, loaded, output, sweep::keys_of(configuration, configurations.front()));
    });
  }
  if (configurations.size() < 2) return;
  if (is_table) {
    output.line("\ncomparison\n");
    for (const std::string& line : sweep::comparison_lines(configurations)) output.line(line);
  }
  output.note(strf("main: %zu configurations, %d model load%s", configurations.size(), loaded.loads(),
                   loaded.loads() == 1 ? "" : "s"));
}

int run(const common::Settings& settings) {
  std::vector<Configuration> configurations = sweep::configurations_of(settings);
  sweep::Output output(settings);
  std::optional<sweep::ChartFile> chart_file;
  if (!settings.bench.chart_file.empty()) chart_file.emplace(settings);
  check_all(configurations);
  measure_all(configurations, output);
  if (chart_file) {
    const sweep::Chart chart = sweep::chart_of(configurations, common::model_name(settings));
    chart_file->finish(chart_file->is_html() ? sweep::html_text(chart) : sweep::svg_text(chart));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return common::run_tool(common::Tool::sweep_bench, argc, argv, run);
}
