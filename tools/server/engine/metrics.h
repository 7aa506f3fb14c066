#pragma once

#include <cstdint>

namespace server {

/// Totals since the start; the engine adds, GET /metrics prints. Engine thread writes, others copy under the engine's
/// lock.
struct Metrics {
  std::uint64_t prompt_tokens = 0;
  double prompt_ms = 0;
  std::uint64_t predicted_tokens = 0;
  double predicted_ms = 0;
  std::uint64_t n_decode = 0;       // steps
  std::uint64_t n_busy_slots = 0;   // sum over steps of slots with work
  std::uint64_t n_decode_rows = 0;  // sum over steps of rows that decode
  std::uint64_t n_tokens_max = 0;   // most tokens seen in a slot
  std::uint64_t n_requests = 0;
  std::uint64_t n_cancelled = 0;
  std::uint64_t n_failed = 0;
};

}  // namespace server
