// llama-sweep-bench: prompt and generation speed at growing cache depth.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "common/args/args.h"
#include "common/setup/planned_run.h"
#include "common/setup/run_tool.h"
#include "common/setup/setup.h"
#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "ggml/roofline.h"
#include "llama/context.h"
#include "sweep.h"
#include "table.h"

namespace {

using common::Settings;

/// Operations of the matrix products that one prompt token needs: every matrix of the layers once, of expert stacks the
/// share that is used.
double matmul_ops_per_token(const std::string& path, const llama::ModelInfo& info) {
  double elements = 0;
  const ggml::gguf::File file = ggml::gguf::File::open(path);
  for (const ggml::gguf::TensorInfo& tensor : file.tensors()) {
    if (tensor.name.compare(0, 4, "blk.") != 0 || tensor.n_dims < 2) continue;
    const double share =
        tensor.n_dims == 3 && info.n_expert > 0 ? static_cast<double>(info.n_expert_used) / info.n_expert : 1.0;
    elements += share * static_cast<double>(tensor.shape.elements());
  }
  return 2.0 * elements;
}

/// One ratio says little on a shared machine: a short sweep is run again, for the summary alone, until there are so
/// many.
constexpr int kRooflinePairs = 5;

void print_summary(const char* name, std::vector<double> shares) {
  if (shares.empty()) return;
  std::sort(shares.begin(), shares.end());
  const std::size_t half = shares.size() / 2;
  const double median = shares.size() % 2 == 1 ? shares[half] : (shares[half - 1] + shares[half]) / 2;
  std::fprintf(stderr, "roofline: %s: median %.3f, %.3f to %.3f over %zu pairs\n", name, median, shares.front(),
               shares.back(), shares.size());
}

int run(const Settings& settings) {
  const common::PlannedRun planned =
      common::plan_run(settings, common::sequences_of(common::Tool::sweep_bench, settings));
  common::announce(planned);
  const std::unique_ptr<llama::Model> model = common::load_model(settings, planned);
  llama::Context context(*model, planned.machine->pointers(), planned.plan(), planned.context);
  if (settings.model.warmup) common::warm_up(context);

  const common::ThreadCounts threads = common::thread_counts(settings);
  std::optional<ggml::Roofline> roofline;
  if (settings.bench.roofline) roofline.emplace(settings.threads.cpu_isa, threads.decode);
  const double ops = settings.bench.roofline ? matmul_ops_per_token(settings.model.path, model->info()) : 0.0;

  sweep::SweepParams params;
  params.n_predict = settings.prompt.n_predict;
  params.repetitions = settings.bench.repetitions;
  params.stride = settings.bench.stride;
  params.warmup_batch = settings.bench.warmup_batch;
  if (roofline) params.least_rows = kRooflinePairs;
  sweep::Table table(settings, context, threads.decode, threads.batch);
  table.header();
  std::vector<double> read_shares;
  std::vector<double> peak_shares;
  // The probe runs before and after each row, so that row and limit see the same minutes.
  double bytes_before = roofline ? roofline->read_bytes_per_s() : 0.0;
  double ops_before = roofline ? roofline->int8_ops_per_s() : 0.0;
  sweep::run_sweep(context, params, [&](sweep::Row row) {
    row.pp_ops = ops * row.pp;
    if (!roofline) {
      table.row(row, std::nullopt);
      return;
    }
    const double bytes_after = roofline->read_bytes_per_s();
    const double ops_after = roofline->int8_ops_per_s();
    const sweep::Roofline limit{(bytes_before + bytes_after) / 2, (ops_before + ops_after) / 2};
    bytes_before = bytes_after;
    ops_before = ops_after;
    read_shares.push_back(row.tg_bytes / row.t_tg_s / limit.bytes_per_s);
    peak_shares.push_back(row.pp_ops / row.t_pp_s / limit.int8_ops_per_s);
    if (row.round == 0) table.row(row, limit);
  });
  print_summary("generation / measured read bandwidth", read_shares);
  print_summary("prompt / measured int8 peak", peak_shares);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return common::run_tool(common::Tool::sweep_bench, argc, argv, run);
}
