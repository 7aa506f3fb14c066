#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ggml/log.h"
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
  const std::scoped_lock lock(mutex_);
  trace_.push_back(std::move(span));
}

std::vector<SimulatedTime::Span> SimulatedTime::take_trace() {
  const std::scoped_lock lock(mutex_);
  std::vector<Span> trace = std::exchange(trace_, {});
  std::stable_sort(trace.begin(), trace.end(), [](const Span& a, const Span& b) { return a.lane < b.lane; });
  return trace;
}

std::string chrome_trace(std::span<const SimulatedTime::Span> spans) {
  // Names are those of lanes and nodes: printable, without quotes.
  std::vector<std::string> lanes;
  std::string events;
  for (const SimulatedTime::Span& span : spans) {
    auto lane = std::find(lanes.begin(), lanes.end(), span.lane);
    if (lane == lanes.end()) {
      lane = lanes.insert(lanes.end(), span.lane);
      events += strf(R"({"ph":"M","name":"thread_name","pid":1,"tid":%zu,"args":{"name":"%s"}},)"
                     "\n",
                     lanes.size(), span.lane.c_str());
    }
    events += strf(R"({"ph":"X","name":"%s","pid":1,"tid":%td,"ts":%.3f,"dur":%.3f},)"
                   "\n",
                   span.name.c_str(), lane - lanes.begin() + 1, span.begin * 1e6, (span.end - span.begin) * 1e6);
  }
  if (events.size() > 1) events.resize(events.size() - 2);
  return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" + events + "\n]}\n";
}

}  // namespace ggml
