#include <cstring>

#include "cuda/ops/registry.h"
#include "ggml/sampler_chain.h"

namespace ggml::cuda {
namespace {

/// A tensor that the host reads or writes between graphs: in place where it lies in host memory, else through a pinned
/// copy.
class HostView {
 public:
  HostView() = default;
  HostView(const BindContext& c, TensorId id) : device_(c.data<std::byte>(id)) {
    const Tensor& t = c.tensor(id);
    bytes_ = tensor_bytes(t.type, t.shape);
    if (device_ == nullptr) return;
    cudaPointerAttributes attributes{};
    CUDA_CHECK(cudaPointerGetAttributes(&attributes, device_));
    host_ = attributes.type == cudaMemoryTypeHost ? device_ : c.pinned(bytes_);
  }
  void fetch() const {
    if (host_ != device_) CUDA_CHECK(cudaMemcpy(host_, device_, bytes_, cudaMemcpyDeviceToHost));
  }
  void store() const {
    if (host_ != device_) CUDA_CHECK(cudaMemcpy(device_, host_, bytes_, cudaMemcpyHostToDevice));
  }
  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(host_);
  }

 private:
  std::byte* device_ = nullptr;
  std::byte* host_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The sampler chain, run by the host on the logits of each row.
class Sample final : public BoundOp {
 public:
  Sample(const BindContext& c, const Node& node, Carver&)
      : n_vocab_(static_cast<std::size_t>(c.tensor(node.src[0]).shape[0])),
        mask_words_(static_cast<std::size_t>(c.tensor(node.src[3]).shape[0])),
        logits_rows_(c.rows_of(node.src[0])),
        sample_rows_(c.rows_of(node.src[1])),
        logits_capacity_(c.tensor(node.src[0]).shape[1]),
        rows_capacity_(c.tensor(node.src[1]).shape[1]),
        logits_(c, node.src[0]),
        rows_(c, node.src[1]),
        adjust_(c, node.src[2]),
        masks_(c, node.src[3]),
        results_(c, node.dst[0]),
        scratch_(sampler_scratch_bytes(n_vocab_)) {}

  void launch(cudaStream_t) const override {}
  [[nodiscard]] bool runs_on_host() const override { return true; }

  void run_on_host(const StepCounts& counts) const override {
    for (const HostView* view : {&logits_, &rows_, &adjust_, &masks_, &results_}) view->fetch();
    const std::int64_t n_logits = count(logits_rows_, logits_capacity_, counts);
    const std::int64_t n_rows = count(sample_rows_, rows_capacity_, counts);
    for (std::int64_t i = 0; i < n_rows; ++i) {
      const SampleRow& row = rows_.as<const SampleRow>()[i];
      SampleResult result{};
      result.token = -1;
      if (row.logits_row >= 0 && row.logits_row < n_logits) run_sampler_chain(row, input_of(row), scratch_, result);
      results_.as<SampleResult>()[i] = result;
    }
    results_.store();
  }

 private:
  static std::int64_t count(Rows rows, std::int64_t capacity, const StepCounts& counts) {
    return rows == Rows::tokens ? counts.n_tokens : rows == Rows::outputs ? counts.n_outputs : capacity;
  }
  [[nodiscard]] SamplerInput input_of(const SampleRow& row) const {
    SamplerInput in;
    in.logits = {logits_.as<const float>() + static_cast<std::size_t>(row.logits_row) * n_vocab_, n_vocab_};
    if (row.adjust_end > row.adjust_begin) {
      in.adjust = {adjust_.as<const SampleAdjust>() + row.adjust_begin,
                   static_cast<std::size_t>(row.adjust_end - row.adjust_begin)};
    }
    if (row.mask_row >= 0) {
      in.allowed = {masks_.as<const std::uint32_t>() + static_cast<std::size_t>(row.mask_row) * mask_words_,
                    mask_words_};
    }
    return in;
  }

  std::size_t n_vocab_, mask_words_;
  Rows logits_rows_, sample_rows_;
  std::int64_t logits_capacity_, rows_capacity_;
  HostView logits_, rows_, adjust_, masks_, results_;
  mutable std::vector<std::byte> scratch_;  // one thread at a time runs a program
};

}  // namespace

const OpImpl kSample{"sample (host)", accepts_always, bind_as<Sample>};
const OpImpl kPick{"pick (host)", accepts_always, bind_as<Sample>};

}  // namespace ggml::cuda
