#include "ggml/trace.h"

#include <algorithm>
#include <utility>

#include "ggml/log.h"

namespace ggml {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += strf("\\u%04x", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out;
}

}  // namespace

void Trace::add(TraceSpan span) {
  const std::scoped_lock lock(mutex_);
  spans_.push_back(std::move(span));
}

std::vector<TraceSpan> Trace::take() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(spans_, {});
}

double Trace::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

std::string ChromeTraceWriter::head() {
  return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
}

std::string ChromeTraceWriter::tail() {
  return "\n]}\n";
}

std::size_t ChromeTraceWriter::row_of(const std::string& lane, std::string& text) {
  const auto known = std::find(lanes_.begin(), lanes_.end(), lane);
  const auto row = static_cast<std::size_t>(known - lanes_.begin()) + 1;
  if (known != lanes_.end()) return row;
  lanes_.push_back(lane);
  text += strf("%s\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":%zu,\"args\":{\"name\":\"%s\"}}",
               empty_ ? "" : ",", row, escaped(lane).c_str());
  empty_ = false;
  return row;
}

std::string ChromeTraceWriter::events(std::span<const TraceSpan> spans) {
  constexpr double kMicro = 1e6;
  std::string text;
  for (const TraceSpan& span : spans) {
    const std::size_t row = row_of(span.lane, text);
    text += strf(",\n{\"ph\":\"X\",\"name\":\"%s\",\"pid\":1,\"tid\":%zu,\"ts\":%.3f,\"dur\":%.3f}",
                 escaped(span.name).c_str(), row, span.begin * kMicro, std::max(0.0, span.end - span.begin) * kMicro);
  }
  return text;
}

std::string chrome_trace(std::span<const TraceSpan> spans) {
  ChromeTraceWriter writer;
  return ChromeTraceWriter::head() + writer.events(spans) + ChromeTraceWriter::tail();
}

}  // namespace ggml
