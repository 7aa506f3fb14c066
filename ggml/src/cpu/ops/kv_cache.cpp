#include "cpu/ops/kv_cache.h"

#include <cmath>

namespace ggml::cpu {

float alibi_slope(float max_bias, int n_head, int head) noexcept {
  if (max_bias <= 0.0f) return 0.0f;
  int n2 = 1;
  while (n2 * 2 <= n_head) n2 *= 2;
  const double m0 = std::exp2(-static_cast<double>(max_bias) / n2);
  const double m1 = std::exp2(-static_cast<double>(max_bias) / 2.0 / n2);
  return static_cast<float>(head < n2 ? std::pow(m0, head + 1) : std::pow(m1, 2 * (head - n2) + 1));
}

void KvAppender::append(const Args& args, std::int64_t worker, std::int64_t n_workers) const noexcept {
  const int heads = layout_.n_head_kv;
  // Items are dealt round robin over (row, head), so that one row's heads are spread too.
  std::int64_t item = 0;
  for (int s = 0; s < args.n_spans; ++s) {
    const AttnSpan& span = args.spans[s];
    const std::int64_t n_items = std::int64_t{span.n_rows} * heads;
    for (std::int64_t i = (worker - item % n_workers + n_workers) % n_workers; i < n_items; i += n_workers) {
      const int r = static_cast<int>(i / heads);
      const int head = static_cast<int>(i % heads);
      const int cell = span.first_cell + r;
      std::byte* block = args.cache.block(span, cell / kKvBlockTokens);
      if (block == nullptr) continue;
      const std::int64_t row = (std::int64_t{span.first_row} + r) * heads + head;
      const int token = cell % kKvBlockTokens;
      KvCache::store(k_kernels_, args.cache.k(), block, head, token, args.k + row * layout_.dk);
      if (layout_.dv > 0) KvCache::store(v_kernels_, args.cache.v(), block, head, token, args.v + row * layout_.dv);
    }
    item += n_items;
  }
}

}  // namespace ggml::cpu
