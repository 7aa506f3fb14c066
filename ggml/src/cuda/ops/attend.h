#pragma once

#include "cuda/bound_op.h"
#include "cuda/kernels/attention.h"

namespace ggml::cuda {

/// Softmax attention over the blocks, by the kernel that suits the step's size and the cache.
class Attend {
 public:
  struct Tensors {
    const float* q = nullptr;
    const float* sinks = nullptr;
    float* y = nullptr;
    RowCount tokens;
    KvInputs in;
    int max_spans = 0;
  };
  Attend(const BindContext& context, const AttentionParams& params, const Tensors& tensors, Carver& carver);
  /// Leaves the result in this form too, which must be one that attention_rounds_result() allows.
  void set_rounded(const RoundedOutput& to) { a_.rounded = to; }
  void launch(cudaStream_t stream) const;

 private:
  enum class Kernel : std::uint8_t { few_rows, prompt, latent_prompt, any };
  void choose_kernel(const BindContext& context, bool has_sinks);

  AttentionArgs a_;
  Kernel kernel_ = Kernel::any;
  int max_spans_ = 0;
};

/// pool, spans and block table are consecutive sources from `first` on.
[[nodiscard]] KvInputs cache_inputs(const BindContext& context, const Node& node, std::size_t first);

}  // namespace ggml::cuda
