#include <algorithm>
#include <utility>
#include <vector>

#include "ggml/simulated.h"

namespace ggml {

double SimulatedTime::host() const {
  const std::scoped_lock lock(mutex_);
  return host_;
}

void SimulatedTime::host_reaches(double seconds) {
  const std::scoped_lock lock(mutex_);
  host_ = std::max(host_, seconds);
}

void SimulatedTime::add(Span span) {
  trace_->add(std::move(span));
}

std::vector<SimulatedTime::Span> SimulatedTime::take_trace() {
  std::vector<Span> trace = trace_->take();
  std::stable_sort(trace.begin(), trace.end(), [](const Span& a, const Span& b) { return a.lane < b.lane; });
  return trace;
}

}  // namespace ggml
