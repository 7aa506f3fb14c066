#pragma once

#include <memory>
#include <string>

namespace ggml {

/// What this machine's memory and arithmetic can do at best with the same threads, measured beside the work that is
/// compared with it: the bandwidth of shared machines swings within minutes. Thread-compatible.
class Roofline {
 public:
  /// `isa` as in CpuOptions. Throws Error(out_of_memory) when there is no room for the probe's buffer (at least 1 GiB).
  Roofline(const std::string& isa, int n_threads);
  ~Roofline();
  Roofline(const Roofline&) = delete;
  Roofline& operator=(const Roofline&) = delete;

  /// Bytes per second of streaming reads; a short probe over a part of the buffer.
  [[nodiscard]] double read_bytes_per_s();
  /// Operations per second (a multiply and an add are two) of 8-bit multiply-accumulates.
  [[nodiscard]] double int8_ops_per_s();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ggml
