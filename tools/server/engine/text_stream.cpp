#include "engine/text_stream.h"

#include <algorithm>
#include <utility>

namespace server {
namespace {

/// Bytes at the end of `text` that are a proper beginning of `stop`.
std::size_t partial_match(std::string_view text, std::string_view stop) {
  for (std::size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(std::vector<std::string> stop_strings) : stops_(std::move(stop_strings)) {
  std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
}

TextStream::Outcome TextStream::push(std::string_view piece) {
  Outcome outcome;
  const std::string arrived = characters_.push(piece);
  outcome.incomplete_character = !characters_.held().empty();
  for (const char c : arrived) {
    if (c == '\n') {
      has_new_line_ = true;
      line_.clear();
    } else if (has_new_line_ && line_.find_first_not_of(" \t") == std::string::npos) {
      line_ += c;
    }
  }
  pending_ += arrived;
  // The search is put off while a character is incomplete, so that a stop string is compared with whole characters
  // only.
  if (outcome.incomplete_character) return outcome;

  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    // None lies wholly in what was searched before.
    const std::size_t at = pending_.find(stop, n_searched_ - std::min(n_searched_, stop.size() - 1));
    if (at < first) {
      first = at;
      outcome.stopping_word = stop;
    }
  }
  if (first != std::string::npos) {
    outcome.text = pending_.substr(0, first);
    pending_.clear();
    n_searched_ = 0;
    return outcome;
  }
  std::size_t held = 0;
  for (const std::string& stop : stops_) held = std::max(held, partial_match(pending_, stop));
  outcome.text = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, pending_.size() - held);
  n_searched_ = pending_.size();
  return outcome;
}

std::string TextStream::finish() {
  characters_.clear();
  n_searched_ = 0;
  return std::exchange(pending_, {});
}

int TextStream::indentation() const {
  if (!has_new_line_) return -1;
  const std::size_t spaces = line_.find_first_not_of(" \t");
  return spaces == std::string::npos ? -1 : static_cast<int>(spaces);
}

}  // namespace server
