#include <algorithm>

#include "common/grammar/syntax.h"

namespace common::grammar {
namespace {

constexpr std::uint32_t kFirstSurrogate = 0xD800;
constexpr std::uint32_t kLastSurrogate = 0xDFFF;

void add_without_surrogates(std::vector<CodeRange>& out, CodeRange range) {
  if (range.lo < kFirstSurrogate) out.push_back({range.lo, std::min(range.hi, kFirstSurrogate - 1)});
  if (range.hi > kLastSurrogate) out.push_back({std::max(range.lo, kLastSurrogate + 1), range.hi});
}

}  // namespace

std::vector<CodeRange> normalized(std::vector<CodeRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const CodeRange& a, const CodeRange& b) { return a.lo < b.lo; });
  std::vector<CodeRange> merged;
  for (const CodeRange& range : ranges) {
    if (!merged.empty() && range.lo <= merged.back().hi + 1) {
      merged.back().hi = std::max(merged.back().hi, range.hi);
    } else {
      merged.push_back(range);
    }
  }
  std::vector<CodeRange> out;
  for (const CodeRange& range : merged) add_without_surrogates(out, range);
  return out;
}

std::vector<CodeRange> complement(const std::vector<CodeRange>& ranges) {
  std::vector<CodeRange> out;
  std::uint32_t next = 0;
  for (const CodeRange& range : ranges) {
    if (range.lo > next) add_without_surrogates(out, {next, range.lo - 1});
    next = range.hi + 1;
  }
  if (next <= kLastCode) add_without_surrogates(out, {next, kLastCode});
  return out;
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto byte = [&](std::uint32_t value) { out += static_cast<char>(static_cast<unsigned char>(value)); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xC0 | code >> 6);
    byte(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    byte(0xE0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  } else {
    byte(0xF0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3F));
    byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  }
}

}  // namespace common::grammar
