#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/args/settings.h"
#include "common/setup/machine.h"
#include "ggml/error.h"
#include "llama/context.h"
#include "llama/placement.h"

namespace common {

/// The plan asks more of a device than it has. Programs end with status 2.
class DoesNotFit : public ggml::Error {
 public:
  using Error::Error;
};

/// What a start decides before anything is loaded.
struct PlannedRun {
  std::shared_ptr<const Machine> machine;
  std::unique_ptr<llama::Model> outline;
  llama::PlanModel model;
  llama::PlacementRules rules;  // with what --fit chose
  llama::Placed placed;
  llama::ContextParams context;
  std::vector<std::string> fit_notes;    // what --fit did that nobody asked for
  std::vector<std::string> explanation;  // of what --fit chose
  bool explains = false;                 // --fit explain
  std::optional<llama::PromptOffload> prompt_offload;
  std::string offload_note;  // why prompts are not computed so although it would be faster
  bool fits = true;
  std::string change;  // that would make it fit; empty: none does

  [[nodiscard]] const llama::Plan& plan() const { return placed.plan; }
};

/// Reads the headers of -m and plans for `n_seq` sequences. `machine`: devices that are open already, else they are
/// opened. Throws Error for bad input; that the plan does not fit is told in the result.
[[nodiscard]] PlannedRun plan_run(const Settings& settings, int n_seq,
                                  std::shared_ptr<const Machine> machine = nullptr);

/// What of the placement flags does nothing for this model on this machine, and the plan's warnings: a line each.
[[nodiscard]] std::vector<std::string> idle_flags(const PlannedRun& run);

/// Logs what the rules did and which devices there are. Throws DoesNotFit.
void announce(const PlannedRun& run);

/// The plan as flags (llama-fit-params): with them, and otherwise as it was, a start makes the same plan.
[[nodiscard]] std::string flags_of(const PlannedRun& run, const Settings& settings);

/// "op offload: ...": from which prompt size on weights in host memory are sent to a device; empty: there are none.
[[nodiscard]] std::string prompt_offload_text(const PlannedRun& run);

/// "assumed", "given", "measured".
[[nodiscard]] std::string_view source_name(llama::SpeedSource source);
/// "speeds: CPU 60 GB/s (assumed), ...": what the plan was made from.
[[nodiscard]] std::string speeds_text(const PlannedRun& run, const Settings& settings);

/// "CUDA0 needs 25.1 GiB and has 23.6 GiB: 1.5 GiB too little", a line per device that lacks room, and what would help.
[[nodiscard]] std::string shortfall_text(const PlannedRun& run);

inline constexpr int kDoesNotFit = 2;  // the exit status that says so
/// --dry-run: prints the plan to stdout. The exit status: 0 it fits, kDoesNotFit it does not.
[[nodiscard]] int print_plan(const PlannedRun& run, const Settings& settings);

}  // namespace common
