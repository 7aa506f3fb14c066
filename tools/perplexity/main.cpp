// llama-perplexity: how well a model predicts a text, how far it is from another, and how it does in multiple choice.
#include "common/score/setup.h"
#include "common/setup/run_tool.h"
#include "common/setup/setup.h"
#include "modes.h"

namespace {

int run(const common::Settings& settings) {
  const common::PerplexitySettings& wanted = settings.perplexity;
  const common::PlannedRun planned = common::plan_scores(settings);
  const std::unique_ptr<llama::Model> model = common::load_model(settings, planned);
  const perplexity::Run run{settings, *model, planned};
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
