#pragma once

#include <vector>

#include "common/args/settings.h"
#include "common/setup/loaded_model.h"
#include "output.h"
#include "table.h"

namespace sweep {

/// Throws Error(invalid_argument) where a plan's context is too small for one row.
void check_depth(const common::PlannedRun& planned, const common::Settings& settings);

/// The same where the last row would not fit: its error would come behind all others.
void check_last_row(const common::PlannedRun& planned, const common::Settings& settings);

/// One sweep: plans, loads where that is needed, measures, and writes the rows while they come. Returns the rows of
/// the first round.
[[nodiscard]] std::vector<Row> measure(const common::Settings& settings, common::LoadedModel& loaded, Output& output,
                                       const MoreKeys& more);

}  // namespace sweep
