// llama-fit-params: the flags that --fit chooses for a model and this machine.
#include <cstdio>

#include "common/setup/planned_run.h"
#include "common/setup/run_tool.h"
#include "common/setup/setup.h"

namespace {

unsigned long long mib(std::uint64_t bytes) {
  constexpr int kMib = 20;
  return bytes >> kMib;
}

/// "NAME MODEL CONTEXT COMPUTE" in MiB for each GPU, then the host.
void print_memory(const llama::Plan& plan) {
  for (std::size_t i = 1; i <= plan.devices.size(); ++i) {
    const std::size_t d = i % plan.devices.size();
    const llama::DeviceUse& use = plan.use[d];
    std::printf("%s %llu %llu %llu\n", d == 0 ? "Host" : plan.devices[d].name.c_str(), mib(use.weights), mib(use.kv),
                mib(use.arenas + use.staging + use.overhead));
  }
}

int run(const common::Settings& given) {
  common::Settings settings = given;
  settings.placement.dry_run = common::DryRun::table;  // nothing is loaded: the host may have any size
  if (settings.placement.fit == common::Fit::automatic) settings.placement.fit = common::Fit::on;
  common::PlannedRun planned = common::plan_run(settings, common::sequences_of(common::Tool::fit_params, settings));
  planned.explains = true;
  common::announce(planned);
  if (settings.placement.fit_print)
    print_memory(planned.plan());
  else
    std::printf("%s\n", common::flags_of(planned, settings).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return common::run_tool(common::Tool::fit_params, argc, argv, run);
}
