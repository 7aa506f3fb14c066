#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpu/kernels/kernels.h"

/// What this machine can do at best, measured: the yardsticks of the benchmarks and of `--roofline`.
///
/// Bandwidth and clock of shared machines swing within minutes, so a probe is an object that is run again beside each
/// measurement; only ratios taken at the same time mean something.
namespace ggml::cpu {

/// Streaming read bandwidth of `threads` threads over a buffer of at least 1 GiB and 8 times the last-level cache.
class ReadProbe {
 public:
  /// Allocates and touches the buffer. Throws Error(out_of_memory) with the size when there is none.
  ReadProbe(const KernelTable& table, int threads);
  /// Bytes per second of one pass over `share` of the buffer (the parts take turns); at least 64 MiB are read.
  [[nodiscard]] double run(double share = 1);
  [[nodiscard]] std::size_t buffer_bytes() const { return bytes_; }

 private:
  void choose_form();

  const KernelTable* table_;
  int threads_;
  std::size_t form_ = 0;  // of the table's stream_read the fastest here
  std::unique_ptr<std::byte[]> buffer_;
  std::byte* data_ = nullptr;  // the first whole page of it
  std::size_t bytes_ = 0;
  std::size_t next_ = 0;  // where the next partial pass begins
};

/// Operations per second (a multiply and an add are two) of `threads` threads doing nothing but the 8-bit
/// multiply-accumulates of the table's GEMM, for about `seconds`.
[[nodiscard]] double int8_peak(const KernelTable& table, int threads, double seconds = 0.05);

/// Best of `passes` whole passes of a ReadProbe, bytes per second.
[[nodiscard]] double read_bandwidth(const KernelTable& table, int threads, int passes = 3);

/// Bytes of the last-level cache; 32 MiB when the system does not tell.
[[nodiscard]] std::size_t last_level_cache_bytes() noexcept;

}  // namespace ggml::cpu
