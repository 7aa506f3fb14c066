#include "ggml/roofline.h"

#include "cpu/probe.h"

namespace ggml {

struct Roofline::Impl {
  const cpu::KernelTable& table;
  int n_threads;
  cpu::ReadProbe read;
};

Roofline::Roofline(const std::string& isa, int n_threads) {
  const cpu::KernelTable& table = cpu::select_table(isa);
  impl_ = std::make_unique<Impl>(Impl{table, n_threads, cpu::ReadProbe(table, n_threads)});
}

Roofline::~Roofline() = default;

double Roofline::read_bytes_per_s() {
  constexpr double kShare = 0.25;  // long enough to be steady, short beside the work it is compared with
  return impl_->read.run(kShare);
}

double Roofline::int8_ops_per_s() {
  return cpu::int8_peak(impl_->table, impl_->n_threads);
}

}  // namespace ggml
