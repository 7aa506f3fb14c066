#include "sweep.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <span>
#include <vector>

#include "ggml/error.h"
#include "ggml/log.h"

namespace sweep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Sweep {
 public:
  Sweep(llama::Context& context, const SweepParams& params)
      : context_(context),
        params_(params),
        seq_(context.create_sequence()),
        n_vocab_(context.model().info().n_vocab),
        pp_(context.params().n_ubatch),
        tg_(params.n_predict > 0 ? params.n_predict : pp_ / 4) {}

  void run(const std::function<void(const Row&)>& report) {
    std::srand(1);  // where the generator starts by itself: one sweep after another draws the same tokens
    if (params_.warmup_batch) {
      prompt();
      context_.truncate(seq_, 0);
    }
    int reported = 0;
    for (int round = 0; round == 0 || reported < params_.least_rows; ++round) reported += run_round(round, report);
  }

 private:
  /// Fills the cache once; returns how many rows it reported.
  int run_round(int round, const std::function<void(const Row&)>& report) {
    int number = 0, reported = 0;
    for (int n_kv = 0; n_kv < context_.params().n_ctx; n_kv += pp_, ++number) {
      check_room(n_kv);
      const bool measured = number % std::max(1, params_.stride) == 0;
      const int repetitions = n_kv == 0 ? std::max(1, params_.repetitions) : 1;
      Row row{.round = round, .pp = pp_, .tg = tg_, .n_kv = n_kv};
      for (int i = 0; i < repetitions; ++i) {
        context_.truncate(seq_, n_kv);
        row.t_tg_s += measured ? generate(row.tg_bytes) : skip_generation();
      }
      for (int i = 0; i < repetitions; ++i) {
        context_.truncate(seq_, n_kv);
        row.t_pp_s += prompt();
      }
      row.t_tg_s /= repetitions;
      row.t_pp_s /= repetitions;
      row.tg_bytes /= repetitions;
      if (!measured) continue;
      report(row);
      ++reported;
    }
    return reported;
  }

  void check_room(int n_kv) const {
    const int n_ctx = context_.params().n_ctx, wanted = std::max(pp_, tg_);
    if (n_ctx - n_kv >= wanted) return;
    throw ggml::Error(ggml::ErrorCode::exceeds_limit,
                      ggml::strf("the row at N_KV %d needs %d tokens of context, %d are left of %d", n_kv, wanted,
                                 n_ctx - n_kv, n_ctx),
                      tg_ > pp_ ? ggml::strf("choose -n no larger than -ub, which is %d", pp_)
                                : ggml::strf("choose -c as a multiple of -ub, which is %d", pp_));
  }

  // The C library's unseeded generator: scripts compare runs, so every run and every program must draw the same tokens.
  llama::Token next_token() { return std::rand() % n_vocab_; }  // NOLINT(cert-msc50-cpp)

  double generate(double& bytes) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < tg_; ++i) {
      const llama::Token token = next_token();
      const llama::StepSequence row{seq_, {&token, 1}, llama::Outputs::last, nullptr};
      context_.run({{&row, 1}});
      bytes += context_.stats().weight_bytes + context_.stats().kv_bytes;
    }
    return seconds_since(start);
  }

  double skip_generation() {
    for (int i = 0; i < tg_; ++i) next_token();
    return 0;
  }

  double prompt() {
    tokens_.resize(static_cast<std::size_t>(pp_));
    std::generate(tokens_.begin(), tokens_.end(), [this] { return next_token(); });
    const Clock::time_point start = Clock::now();
    const auto n_batch = static_cast<std::size_t>(context_.params().n_batch);
    for (std::size_t at = 0; at < tokens_.size(); at += n_batch) {
      const std::size_t n = std::min(n_batch, tokens_.size() - at);
      const bool last = at + n == tokens_.size();
      const llama::StepSequence rows{seq_, std::span(tokens_).subspan(at, n),
                                     last ? llama::Outputs::last : llama::Outputs::none, nullptr};
      context_.run({{&rows, 1}});
    }
    return seconds_since(start);
  }

  llama::Context& context_;
  const SweepParams& params_;
  const llama::SeqId seq_;
  const int n_vocab_;
  const int pp_, tg_;
  std::vector<llama::Token> tokens_;
};

}  // namespace

void run_sweep(llama::Context& context, const SweepParams& params, const std::function<void(const Row&)>& report) {
  Sweep(context, params).run(report);
}

}  // namespace sweep
