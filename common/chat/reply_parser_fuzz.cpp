#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/chat/reply_parser.h"
#include "common/chat/reply_samples.h"
#include "ggml/log.h"

// Any bytes as what a model writes, in every format. Whatever comes: the deltas add up to the reply, the reply is the
// same wherever the text is cut, and there are no calls where none are wanted. The first byte chooses the format, the
// second how it is read, the third the cuts.

namespace {

using namespace common::chat;

void require(bool condition) {
  if (!condition) std::abort();
}

void add(Reply& sum, const std::vector<ReplyDelta>& deltas) {
  for (const ReplyDelta& delta : deltas) {
    switch (delta.kind) {
      case ReplyDelta::Kind::reasoning:
        sum.reasoning += delta.text;
        break;
      case ReplyDelta::Kind::content:
        sum.content += delta.text;
        break;
      case ReplyDelta::Kind::call_begin:
        require(delta.index == static_cast<int>(sum.calls.size()) && !delta.id.empty() && !delta.name.empty());
        sum.calls.push_back({delta.id, delta.name, delta.text});
        break;
      case ReplyDelta::Kind::call_arguments:
        require(delta.index == static_cast<int>(sum.calls.size()) - 1);
        sum.calls.back().arguments += delta.text;
        break;
    }
  }
}

bool same(const Reply& a, const Reply& b, bool ids) {
  if (a.content != b.content || a.reasoning != b.reasoning || a.calls.size() != b.calls.size()) return false;
  for (std::size_t i = 0; i < a.calls.size(); ++i) {
    if (a.calls[i].name != b.calls[i].name || a.calls[i].arguments != b.calls[i].arguments) return false;
    if (ids && a.calls[i].id != b.calls[i].id) return false;  // made-up ones differ between parsers
  }
  return true;
}

/// Reads the text in pieces of 1 to `longest` bytes; 0: at once.
Reply parse(const ReplyReading& reading, std::string_view text, std::size_t longest, std::uint32_t random) {
  ReplyParser parser(reading);
  Reply sum;
  while (!text.empty()) {
    random = random * 1664525U + 1013904223U;
    const std::size_t size =
        longest == 0 ? text.size() : std::min<std::size_t>(1 + (random >> 8) % longest, text.size());
    add(sum, parser.push(text.substr(0, size)));
    text.remove_prefix(size);
  }
  add(sum, parser.finish());
  require(same(sum, parser.reply(), true));
  return sum;
}

/// Of every sample; made once, for making them takes longer than reading a reply.
const std::vector<ReplyReading>& readings() {
  static const std::vector<ReplyReading> all = [] {
    std::vector<ReplyReading> made;
    for (const ReplySample& sample : reply_samples()) made.push_back(format_of(sample));
    return made;
  }();
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  ggml::set_log_level(ggml::LogLevel::error);
  constexpr std::size_t kHeader = 3;
  if (size < kHeader) return 0;
  ReplyReading reading = readings()[bytes[0] % readings().size()];
  const unsigned how = bytes[1];
  if ((how & 1U) != 0) reading.options.calls = false;
  if ((how & 2U) != 0) reading.options.reasoning = false;
  if ((how & 4U) != 0) reading.opening.text.clear();
  reading.opening.continues = (how & 8U) != 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes) + kHeader, size - kHeader);

  const Reply whole = parse(reading, text, 0, 0);
  require(same(whole, parse(reading, text, 1, 0), false));
  require(same(whole, parse(reading, text, 2 + bytes[2] % 8, bytes[2]), false));
  require(reading.options.calls || whole.calls.empty());
  return 0;
}
