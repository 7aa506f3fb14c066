#pragma once

#include <string>
#include <vector>

#include "chart.h"
#include "common/args/args.h"
#include "output.h"
#include "table.h"

namespace sweep {

/// One of the settings that --compare measures: the command line with its flags at the end.
struct Configuration {
  std::string name = {};   // "A", "B", ...; empty: the command line as it is
  std::string flags = {};  // as given
  common::Settings settings = {};
  std::vector<Row> rows = {};  // filled by its measurement

  /// "A: -ub 512".
  [[nodiscard]] std::string label() const;
};

/// The configurations of a command line; one without a name where it compares nothing. Logs what the parser has to say
/// of each set of flags. Throws Error(invalid_argument, unsupported) naming the configuration: for flags that do not
/// parse, for those that are no matter of one configuration (the model, the outputs, ...), for more than 26.
[[nodiscard]] std::vector<Configuration> configurations_of(const common::Settings& settings,
                                                           const common::ParseOptions& options = {});

/// What the JSONL rows of `configuration` say beside their numbers: its name and flags, and behind the first one its
/// ratio to the row of `first` at the same depth (null where there is none).
[[nodiscard]] MoreKeys keys_of(const Configuration& configuration, const Configuration& first);

/// The markdown table of speeds and ratios per depth, and a line with the mean ratio for each configuration but the
/// first.
[[nodiscard]] std::vector<std::string> comparison_lines(const std::vector<Configuration>& configurations);

[[nodiscard]] Chart chart_of(const std::vector<Configuration>& configurations, const std::string& model_name);

}  // namespace sweep
