#include "table.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "ggml/error.h"
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

}  // namespace

Table::Table(const common::Settings& settings, const llama::Context& context, int n_threads, int n_threads_batch)
    : settings_(settings),
      context_(context.params()),
      n_threads_(n_threads),
      n_threads_batch_(n_threads_batch),
      copy_(nullptr, std::fclose) {
  const std::string& path = settings.bench.output_file;
  if (path.empty()) return;
  copy_.reset(std::fopen(path.c_str(), "w"));
  if (copy_ == nullptr)
    throw ggml::Error(ggml::ErrorCode::io, strf("cannot write %s: %s", path.c_str(), std::strerror(errno)));
}

Table::~Table() = default;

void Table::line(const std::string& text) {
  const auto write = [&](std::FILE* stream, const std::string& name) {
    std::fprintf(stream, "%s\n", text.c_str());
    if (std::fflush(stream) != 0 || std::ferror(stream) != 0)
      throw ggml::Error(ggml::ErrorCode::io, strf("cannot write %s: %s", name.c_str(), std::strerror(errno)));
  };
  write(stderr, "standard error");
  if (copy_ != nullptr) write(copy_.get(), settings_.bench.output_file);
}

void Table::header() {
  if (settings_.bench.format == common::SweepFormat::jsonl) return;
  std::fprintf(stderr,
               "\nmain: n_kv_max = %d, n_batch = %d, n_ubatch = %d, flash_attn = %d, n_gpu_layers = %d, n_threads = "
               "%d, n_threads_batch = %d\n\n",
               context_.n_ctx, context_.n_batch, context_.n_ubatch, context_.flash_attention ? 1 : 0,
               settings_.placement.n_gpu_layers.value_or(-1), n_threads_, n_threads_batch_);
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
  line(head);
  line(rule);
}

void Table::row(const Row& row, const std::optional<Roofline>& limit) {
  const double speed_pp = row.pp / row.t_pp_s;
  const double speed_tg = row.tg / row.t_tg_s;
  const double pp_share = limit ? share(row.pp_ops, row.t_pp_s, limit->int8_ops_per_s) : 0;
  const double tg_share = limit ? share(row.tg_bytes, row.t_tg_s, limit->bytes_per_s) : 0;
  if (settings_.bench.format == common::SweepFormat::jsonl) {
    std::string text = strf(
        "{\"n_kv_max\": %d, \"n_batch\": %d, \"n_ubatch\": %d, \"flash_attn\": %d, \"n_gpu_layers\": %d, "
        "\"n_threads\": %d, "
        "\"n_threads_batch\": %d, \"pp\": %d, \"tg\": %d, \"n_kv\": %d, \"t_pp\": %f, \"speed_pp\": %f, \"t_tg\": %f, "
        "\"speed_tg\": %f",
        context_.n_ctx, context_.n_batch, context_.n_ubatch, context_.flash_attention ? 1 : 0,
        settings_.placement.n_gpu_layers.value_or(-1), n_threads_, n_threads_batch_, row.pp, row.tg, row.n_kv,
        row.t_pp_s, speed_pp, row.t_tg_s, speed_tg);
    if (settings_.bench.memory) text += strf(", \"rss_hwm_mib\": %.3f, \"vram_delta_mib\": null", peak_rss_mib());
    if (limit) text += strf(", \"pp_share_of_peak\": %.4f, \"tg_share_of_read\": %.4f", pp_share, tg_share);
    line(text + " }");
    return;
  }
  std::string text = strf("|%6d | %6d | %6d | %8.3f | %8.2f | %8.3f | %8.2f |", row.pp, row.tg, row.n_kv, row.t_pp_s,
                          speed_pp, row.t_tg_s, speed_tg);
  if (settings_.bench.memory) text += strf(" %10.1f | %10s |", peak_rss_mib(), "n/a");
  if (limit) text += strf(" %9.3f | %9.3f |", pp_share, tg_share);
  line(text);
}

}  // namespace sweep
