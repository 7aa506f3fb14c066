#include "core/heads_tap.h"

#include <vector>

namespace ggml {

void show_heads_tap(Observer& observer, const Weight& weight, std::span<const float> rows, int n_head, bool shared) {
  if (weight.shape[2] != n_head || n_head == 1) return observer.on_slot(weight, rows, {});
  const auto k = static_cast<std::size_t>(weight.shape[0]), heads = static_cast<std::size_t>(n_head);
  const std::size_t pairs = rows.size() / k * (shared ? heads : 1);
  std::vector<float> seen;
  std::vector<std::int32_t> matrices;
  seen.reserve(pairs * k);
  matrices.reserve(pairs);
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    const auto row = rows.subspan((shared ? pair / heads : pair) * k, k);
    seen.insert(seen.end(), row.begin(), row.end());
    matrices.push_back(static_cast<std::int32_t>(pair % heads));
  }
  observer.on_slot(weight, seen, matrices);
}

}  // namespace ggml
