// llama-perplexity: how well a model predicts a text, how far it is from another, and how it does in multiple choice.
#include <array>
#include <atomic>
#include <csignal>

#include "common/score/setup.h"
#include "common/setup/output_file.h"
#include "common/setup/run_tool.h"
#include "common/setup/setup.h"
#include "modes.h"

namespace {

std::atomic<bool> g_stop{false};  // a signal handler may touch nothing else
static_assert(std::atomic<bool>::is_always_lock_free);

int run(const common::Settings& settings) {
  const common::PerplexitySettings& wanted = settings.perplexity;
  if (!wanted.logits_file.empty() && !wanted.kl_divergence) {
    common::check_output(wanted.logits_file, std::array{settings.model.path, settings.prompt.prompt_file});
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, [](int) { g_stop = true; });
  }
  const common::PlannedRun planned = common::plan_scores(settings);
  const std::unique_ptr<llama::Model> model = common::load_model(settings, planned);
  const perplexity::Run run{settings, *model, planned, g_stop};
  if (wanted.hellaswag) {
    perplexity::run_hellaswag(run);
  } else if (wanted.winogrande) {
    perplexity::run_winogrande(run);
  } else if (wanted.multiple_choice) {
    perplexity::run_multiple_choice(run);
  } else if (wanted.kl_divergence) {
    perplexity::run_kl_divergence(run);
  } else {
    perplexity::run_chunks(run);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return common::run_tool(common::Tool::perplexity, argc, argv, run);
}
