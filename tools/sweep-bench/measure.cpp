#include "measure.h"

#include <algorithm>
#include <optional>

#include "common/log/timings.h"
#include "common/setup/setup.h"
#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "ggml/roofline.h"
#include "llama/context.h"

namespace sweep {
namespace {

using common::Settings;
using ggml::strf;

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

std::string summary(const char* name, std::vector<double> shares) {
  std::sort(shares.begin(), shares.end());
  const std::size_t half = shares.size() / 2;
  const double median = shares.size() % 2 == 1 ? shares[half] : (shares[half - 1] + shares[half]) / 2;
  return strf("roofline: %s: median %.3f, %.3f to %.3f over %zu pairs", name, median, shares.front(), shares.back(),
              shares.size());
}

/// Measures the machine's limits before and after each row, so that row and limit see the same minutes.
class LimitProbe {
 public:
  LimitProbe(const Settings& settings, const llama::Model& model)
      : roofline_(settings.threads.cpu_isa, common::thread_counts(settings).decode),
        ops_per_token_(matmul_ops_per_token(settings.model.path, model.info())),
        before_(read()) {}

  Roofline limit_of(Row& row) {
    const Roofline after = read();
    const Roofline limit{(before_.bytes_per_s + after.bytes_per_s) / 2,
                         (before_.int8_ops_per_s + after.int8_ops_per_s) / 2};
    before_ = after;
    row.pp_ops = ops_per_token_ * row.pp;
    read_shares_.push_back(row.tg_bytes / row.t_tg_s / limit.bytes_per_s);
    peak_shares_.push_back(row.pp_ops / row.t_pp_s / limit.int8_ops_per_s);
    return limit;
  }

  void summarise(Output& output) const {
    output.note(summary("generation / measured read bandwidth", read_shares_));
    output.note(summary("prompt / measured int8 peak", peak_shares_));
  }

 private:
  Roofline read() { return {roofline_.read_bytes_per_s(), roofline_.int8_ops_per_s()}; }

  ggml::Roofline roofline_;
  double ops_per_token_;
  Roofline before_;
  std::vector<double> read_shares_, peak_shares_;
};

}  // namespace

void check_depth(const common::PlannedRun& planned, const Settings& settings) {
  const int n_ctx = planned.context.n_ctx, n_ubatch = planned.context.n_ubatch;
  const int n_predict = settings.prompt.n_predict;
  if (n_ctx >= n_ubatch && n_ctx >= n_predict) return;
  const bool by_batch = n_ctx < n_ubatch;
  throw ggml::Error(ggml::ErrorCode::invalid_argument,
                    strf("a row of the sweep is %d tokens (%s) and the context has %d (-c)",
                         by_batch ? n_ubatch : n_predict, by_batch ? "-ub" : "-n", n_ctx),
                    by_batch ? strf("give -c %d or more, or -ub %d or less", n_ubatch, n_ctx)
                             : strf("give -c %d or more, or -n %d or less", n_predict, n_ctx));
}

void check_last_row(const common::PlannedRun& planned, const Settings& settings) {
  const int n_ctx = planned.context.n_ctx, n_ubatch = planned.context.n_ubatch;
  if (n_ctx % n_ubatch == 0 && settings.prompt.n_predict <= n_ubatch) return;
  throw ggml::Error(
      ggml::ErrorCode::invalid_argument,
      strf("the last row does not fit: a row is %d tokens (-ub), generates %d, and the context has %d (-c)", n_ubatch,
           settings.prompt.n_predict > 0 ? settings.prompt.n_predict : n_ubatch / 4, n_ctx),
      "choose -c as a multiple of -ub, and -n no larger than -ub");
}

std::vector<Row> measure(const Settings& settings, common::LoadedModel& loaded, Output& output, const MoreKeys& more) {
  const common::PlannedRun& planned =
      loaded.prepare(settings, common::sequences_of(common::Tool::sweep_bench, settings));
  check_depth(planned, settings);
  llama::Context context(loaded.model(), planned.machine->pointers(), planned.plan(), planned.context);
  if (settings.model.warmup) common::warm_up(context);

  std::optional<LimitProbe> probe;
  if (settings.bench.roofline) probe.emplace(settings, loaded.model());
  SweepParams params;
  params.n_predict = settings.prompt.n_predict;
  params.repetitions = settings.bench.repetitions;
  params.stride = settings.bench.stride;
  params.warmup_batch = settings.bench.warmup_batch;
  if (probe) params.least_rows = kRooflinePairs;
  Table table(output, settings, context, more);
  table.header();
  std::vector<Row> rows;
  run_sweep(context, params, [&](Row row) {
    std::optional<Roofline> limit;
    if (probe) limit = probe->limit_of(row);
    if (row.round > 0) return;
    table.row(row, limit);
    rows.push_back(row);
  });
  if (probe) probe->summarise(output);
  common::RunTimings totals;
  for (const Row& row : rows) {
    totals.prompt_ms += 1000.0 * row.t_pp_s;
    totals.generate_ms += 1000.0 * row.t_tg_s;
    totals.n_prompt += row.pp;
    totals.n_generated += row.tg;
  }
  common::print_timings(totals);
  return rows;
}

}  // namespace sweep
