#include "attention_check.h"

#include "ggml/log.h"
#include "shape_check.h"

namespace ggml::attention_check {

namespace check = shape_check;

void params(const OpInputs& in, const AttentionParams& p) {
  const KvLayout& kv = p.kv;
  const bool has_values = p.v_of_k > 0 ? kv.dv == 0 && p.v_of_k <= kv.dk : kv.dv > 0;
  check::require(in, kv.n_head_kv > 0 && kv.dk > 0 && has_values && p.n_head > 0 && p.n_head % kv.n_head_kv == 0,
                 strf("%d query heads over %d key heads of %d and %d elements", p.n_head, kv.n_head_kv, kv.dk, kv.dv));
  check::require(in, kv.supported(),
                 strf("cache types %s and %s cannot hold heads of %d and %d elements",
                      std::string(type_info(kv.k_type).name).c_str(), std::string(type_info(kv.v_type).name).c_str(),
                      kv.dk, kv.dv));
  check::require(in, p.window_kind == WindowKind::none || p.window > 0,
                 strf("attention window of %d tokens", p.window));
}

void keys_and_values(const OpInputs& in, std::size_t i, const KvLayout& kv) {
  const Tensor& k = check::values(in, i, "k");
  const Tensor& v = check::values(in, i + 1, "v");
  check::expect_shape(in, k, "k", Shape(kv.dk, kv.n_head_kv, k.shape[2]));
  if (kv.dv > 0) check::expect_shape(in, v, "v", Shape(kv.dv, kv.n_head_kv, k.shape[2]));
}

void cache_inputs(const OpInputs& in, std::size_t i) {
  (void)check::integers(in, i, "pool");
  const Tensor& spans = check::integers(in, i + 1, "spans");
  check::expect_extent(in, spans, "spans", 0, static_cast<std::int64_t>(sizeof(AttnSpan) / sizeof(std::int32_t)));
  (void)check::integers(in, i + 2, "block_table");
}

std::vector<TensorDesc> result(const OpInputs& in, const AttentionParams& p) {
  const Tensor& q = check::values(in, 0, "q");
  check::expect_shape(in, q, "q", Shape(p.kv.dk, p.n_head, q.shape[2]));
  if (p.has_sinks) {
    const Shape per_head(p.n_head);
    check::vector(in, 0, "sinks", std::span(&per_head, 1));
  }
  const std::int64_t dv = p.v_of_k > 0 ? p.v_of_k : p.kv.dv;
  return {{DType::f32, Shape(dv * p.n_head, q.shape[2]), q.rows}};
}

}  // namespace ggml::attention_check
