#include "cpu/ops/registry.h"
#include "ggml/sampler_chain.h"

namespace ggml::cpu {
namespace {

/// Runs each row's sampler chain; rows are independent, so each is one item.
class Sample final : public BoundOp {
 public:
  Sample(const BindContext& c, const Node& node, Carver& carver)
      : logits_(c.data<const float>(node.src[0])),
        rows_(c.data<const SampleRow>(node.src[1])),
        adjust_(c.data<const SampleAdjust>(node.src[2])),
        masks_(c.data<const std::uint32_t>(node.src[3])),
        results_(c.data<SampleResult>(node.dst[0])),
        n_vocab_(static_cast<std::size_t>(c.tensor(node.src[0]).shape[0])),
        mask_words_(static_cast<std::size_t>(c.tensor(node.src[3]).shape[0])),
        n_logits_(c.live_rows(node.src[0], c.tensor(node.src[0]).shape[0])),
        n_rows_(c.live_rows(node.src[1], c.tensor(node.src[1]).shape[0])),
        scratch_bytes_(sampler_scratch_bytes(n_vocab_)),
        scratch_(carver, c.n_workers(), static_cast<std::int64_t>(scratch_bytes_)) {}

  void run(Team& team, const StepCounts& counts) const noexcept override {
    const std::int64_t n_logits = n_logits_.of(counts);
    team.for_chunks(n_rows_.of(counts), 1, [&](std::int64_t i, std::int64_t) {
      const SampleRow& row = rows_[i];
      SampleResult result{};
      result.token = -1;
      if (row.logits_row >= 0 && row.logits_row < n_logits) {
        run_sampler_chain(row, input_of(row), {scratch_.of(team), scratch_bytes_}, result);
      }
      results_[i] = result;
    });
  }

 private:
  [[nodiscard]] SamplerInput input_of(const SampleRow& row) const noexcept {
    SamplerInput in;
    in.logits = {logits_ + static_cast<std::size_t>(row.logits_row) * n_vocab_, n_vocab_};
    if (row.adjust_end > row.adjust_begin) {
      in.adjust = {adjust_ + row.adjust_begin, static_cast<std::size_t>(row.adjust_end - row.adjust_begin)};
    }
    if (row.mask_row >= 0) in.allowed = {masks_ + static_cast<std::size_t>(row.mask_row) * mask_words_, mask_words_};
    return in;
  }

  const float* logits_;
  const SampleRow* rows_;
  const SampleAdjust* adjust_;
  const std::uint32_t* masks_;
  SampleResult* results_;
  const std::size_t n_vocab_, mask_words_;
  const LiveRows n_logits_, n_rows_;
  const std::size_t scratch_bytes_;
  PerWorker<std::byte> scratch_;
};

}  // namespace

const OpImpl kSample{"sample", accepts_always, bind_as<Sample>};
const OpImpl kPick{"pick", accepts_always, bind_as<Sample>};

}  // namespace ggml::cpu
