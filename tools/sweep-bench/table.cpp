#include "table.h"

#include <sys/resource.h>

#include <utility>

#include "ggml/log.h"

namespace sweep {

using ggml::strf;

namespace {

double peak_rss_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

double share(double done, double seconds, double limit) {
  return seconds > 0 && limit > 0 ? done / seconds / limit : 0.0;
}

double pp_share(const Row& row, const Roofline& limit) {
  return share(row.pp_ops, row.t_pp_s, limit.int8_ops_per_s);
}
double tg_share(const Row& row, const Roofline& limit) {
  return share(row.tg_bytes, row.t_tg_s, limit.bytes_per_s);
}

}  // namespace

Table::Table(Output& output, const common::Settings& settings, const llama::Context& context, MoreKeys more)
    : output_(output),
      settings_(settings),
      context_(context.params()),
      threads_(common::thread_counts(settings)),
      more_(std::move(more)) {}

void Table::header() {
  if (settings_.bench.format == common::SweepFormat::jsonl) return;
  output_.note(
      strf("\nmain: n_kv_max = %d, n_batch = %d, n_ubatch = %d, flash_attn = %d, n_gpu_layers = %d, n_threads = "
           "%d, n_threads_batch = %d\n",
           context_.n_ctx, context_.n_batch, context_.n_ubatch, context_.flash_attention ? 1 : 0,
           settings_.placement.n_gpu_layers.value_or(-1), threads_.decode, threads_.batch));
  std::string head = strf("|%6s | %6s | %6s | %8s | %8s | %8s | %8s |", "PP", "TG", "N_KV", "T_PP s", "S_PP t/s",
                          "T_TG s", "S_TG t/s");
  std::string rule = "|-------|--------|--------|----------|----------|----------|----------|";
  if (settings_.bench.memory) {
    head += strf(" %10s | %10s |", "RSS HWM", "VRAM delta");
    rule += "------------|------------|";
  }
  if (settings_.bench.roofline) {
    head += strf(" %9s | %9s |", "PP / peak", "TG / read");
    rule += "-----------|-----------|";
  }
  output_.line(head);
  output_.line(rule);
}

void Table::row(const Row& row, const std::optional<Roofline>& limit) {
  if (settings_.bench.format == common::SweepFormat::jsonl) {
    jsonl_row(row, limit);
    return;
  }
  std::string text = strf("|%6d | %6d | %6d | %8.3f | %8.2f | %8.3f | %8.2f |", row.pp, row.tg, row.n_kv, row.t_pp_s,
                          row.speed_pp(), row.t_tg_s, row.speed_tg());
  if (settings_.bench.memory) text += strf(" %10.1f | %10s |", peak_rss_mib(), "n/a");
  if (limit) text += strf(" %9.3f | %9.3f |", pp_share(row, *limit), tg_share(row, *limit));
  output_.line(text);
}

void Table::jsonl_row(const Row& row, const std::optional<Roofline>& limit) {
  std::string text = strf(
      "{\"n_kv_max\": %d, \"n_batch\": %d, \"n_ubatch\": %d, \"flash_attn\": %d, \"n_gpu_layers\": %d, "
      "\"n_threads\": %d, \"n_threads_batch\": %d, \"pp\": %d, \"tg\": %d, \"n_kv\": %d, \"t_pp\": %f, \"speed_pp\": "
      "%f, "
      "\"t_tg\": %f, \"speed_tg\": %f",
      context_.n_ctx, context_.n_batch, context_.n_ubatch, context_.flash_attention ? 1 : 0,
      settings_.placement.n_gpu_layers.value_or(-1), threads_.decode, threads_.batch, row.pp, row.tg, row.n_kv,
      row.t_pp_s, row.speed_pp(), row.t_tg_s, row.speed_tg());
  if (settings_.bench.memory) text += strf(", \"rss_hwm_mib\": %.3f, \"vram_delta_mib\": null", peak_rss_mib());
  if (limit)
    text +=
        strf(", \"pp_share_of_peak\": %.4f, \"tg_share_of_read\": %.4f", pp_share(row, *limit), tg_share(row, *limit));
  if (more_) text += more_(row);
  output_.line(text + " }");
}

}  // namespace sweep
