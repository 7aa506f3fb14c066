#include "cpu/ops/expert_groups.h"

#include <algorithm>

namespace ggml::cpu {

void ExpertGroups::build(const Pairs& pairs) noexcept {
  const std::int64_t n_pairs = pairs.n_tokens * pairs.n_used;
  const int n_local = pairs.expert_end - pairs.expert_begin;
  const auto local = [&](std::int64_t pair) {
    const std::int32_t id = pairs.ids[pair];
    return id >= pairs.expert_begin && id < pairs.expert_end ? id - pairs.expert_begin : -1;
  };
  // Count per expert in begin_, turn counts into first positions, drop the experts without pairs.
  std::fill(begin_, begin_ + n_local + 1, 0);
  for (std::int64_t pair = 0; pair < n_pairs; ++pair) {
    const std::int32_t e = local(pair);
    if (e >= 0) ++begin_[e];
  }
  std::int32_t next = 0;
  for (int e = 0; e < n_local; ++e) {
    const std::int32_t count = begin_[e];
    begin_[e] = next;
    next += count;
  }
  head_[1] = next;
  for (std::int64_t pair = 0; pair < n_pairs; ++pair) {
    const std::int32_t e = local(pair);
    position_[pair] = e < 0 ? -1 : begin_[e]++;
    if (e >= 0) token_[position_[pair]] = static_cast<std::int32_t>(pair / pairs.n_used);
  }
  // begin_[e] is now the end of expert e, which is the begin of the next one.
  int n_groups = 0;
  std::int32_t begin = 0;
  for (int e = 0; e < n_local; ++e) {
    const std::int32_t end = begin_[e];
    if (end == begin) continue;
    expert_[n_groups] = pairs.expert_begin + e;
    begin_[n_groups++] = begin;
    begin = end;
  }
  begin_[n_groups] = begin;
  head_[0] = n_groups;
}

}  // namespace ggml::cpu
