#include "common/chat/reply_parser.h"

#include <algorithm>

#include "common/chat/syntax/stops.h"

namespace common::chat {

using syntax::Ahead;
using syntax::Lookahead;
using syntax::Step;

namespace {
/// Bytes of the UTF-8 character at the front, as its first byte says.
std::size_t character_size(std::string_view text) {
  const auto c = static_cast<unsigned char>(text.front());
  const std::size_t size = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
  return std::min(size, text.size());
}
}  // namespace

ReplyParser::ReplyParser(const ReplyReading& reading)
    : format_(reading.format), tools_(reading.tools), options_(reading.options), out_(tools_.get()) {
  const bool calls = options_.calls && tools_ != nullptr && !tools_->empty();
  for (const ReplyPart& part : format_->parts)
    if (part.kind != ReplyPart::Kind::call || calls) parts_.push_back(&part);
  for (int c = 0; c < 256; ++c) {
    const char text = static_cast<char>(c);
    for (const ReplyPart* part : parts_) {
      Lookahead at{{&text, 1}, false};
      if (part->syntax->look(at) != Ahead::no) may_begin_[static_cast<std::size_t>(c)] = true;
    }
  }
  open(reading.opening);
}

// The opening is read from the first part that begins in it, so that reasoning which the prompt opened is reasoning.
void ReplyParser::open(const ReplyOpening& opening) {
  const std::string_view text = opening.text;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const ReplyPart* part : parts_) {
      // A call that looks like any text (JSON) does not begin in a prompt.
      if (part->kind == ReplyPart::Kind::call && part->at_start_only) continue;
      Lookahead at{text.substr(i), false};
      if (part->syntax->look(at) == Ahead::no) continue;
      silent_ = opening.continues || !options_.reasoning;
      out_.mute(silent_);
      buffer_ = text.substr(i);
      run(false);
      silent_ = false;
      out_.mute(false);
      if (opening.continues) buffer_.clear();
      // Reasoning that stays in the content keeps the mark that the prompt opened it with.
      if (in_reasoning() && !options_.reasoning && !opening.continues)
        out_.say(syntax::Field::content, format_->think_start);
      return;
    }
  }
  has_content_ = opening.continues;
}

std::vector<ReplyDelta> ReplyParser::push(std::string_view text) {
  buffer_ += text;
  run(false);
  return out_.take_deltas();
}

std::vector<ReplyDelta> ReplyParser::finish() {
  run(true);
  return out_.take_deltas();
}

void ReplyParser::run(bool last) {
  while ((matcher_ ? read_part(last) : scan(last)) == Advance::on) {
  }
}

Ahead ReplyParser::part_at(std::size_t at, bool last, const ReplyPart*& part) const {
  const std::string_view text = std::string_view(buffer_).substr(at);
  bool start_known = false;
  bool start = false;
  for (const ReplyPart* candidate : parts_) {
    if (candidate->at_start_only) {
      if (!start_known) {
        start_known = true;
        start = !has_content_ &&
                std::all_of(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(at), syntax::is_space);
      }
      if (!start) continue;
    }
    Lookahead ahead{text, last};
    const Ahead found = candidate->syntax->look(ahead);
    if (found == Ahead::no) continue;
    part = candidate;
    return found;  // a later one must not be taken while this one is still possible
  }
  return Ahead::no;
}

ReplyParser::Advance ReplyParser::scan(bool last) {
  const ReplyPart* part = nullptr;
  Ahead found = Ahead::no;
  std::size_t at = say_raw_;
  for (; at < buffer_.size(); ++at) {
    if (!may_begin_[static_cast<unsigned char>(buffer_[at])]) continue;
    found = part_at(at, last, part);
    if (found != Ahead::no) break;
  }
  at = std::min(at, buffer_.size());
  say_content(at, found == Ahead::yes ? part : nullptr, last && found == Ahead::no);
  if (found != Ahead::yes) return Advance::wait;
  begin_part(*part);
  return Advance::on;
}

// The first `n` bytes are content, but for white space at their edges that only sets parts apart.
void ReplyParser::say_content(std::size_t n, const ReplyPart* next, bool last) {
  std::size_t begin = 0;
  if (drop_space_)
    while (begin < n && begin >= say_raw_ && syntax::is_space(buffer_[begin])) ++begin;
  const std::string_view text = std::string_view(buffer_).substr(begin, n - begin);
  std::size_t size = text.size();
  const bool part_may_follow =
      std::any_of(parts_.begin(), parts_.end(), [&](const ReplyPart* p) { return !p->at_start_only || !has_content_; });
  const bool holds = part_may_follow && !last;
  if (holds) size = std::max(syntax::without_final_space(text), std::min(say_raw_, text.size()));
  const std::string said(text.substr(0, size));
  if (next != nullptr) part_space_ = text.substr(size);
  // In front of a part the white space goes with the text; else it stays until it is clear what follows.
  const std::size_t consumed = next != nullptr ? n : begin + size;
  buffer_.erase(0, consumed);
  say_raw_ -= std::min(say_raw_, consumed);
  if (said.empty()) return;
  drop_space_ = false;
  if (!std::all_of(said.begin(), said.end(), syntax::is_space)) has_content_ = true;
  out_.say(syntax::Field::content, said);
}

void ReplyParser::begin_part(const ReplyPart& part) {
  part_ = &part;
  matcher_ = part.syntax->match();
  part_text_.clear();
  part_has_output_ = false;
}

ReplyParser::Advance ReplyParser::read_part(bool last) {
  syntax::Input in{buffer_, last};
  const bool raw = part_->kind == ReplyPart::Kind::reasoning && !options_.reasoning;
  out_.reading(&in);
  out_.clear_committed();
  out_.mute(raw || silent_);
  const Step step = matcher_->step(in, out_);
  out_.reading(nullptr);
  const std::string taken = buffer_.substr(0, in.taken);
  buffer_.erase(0, in.taken);
  if (raw) {
    out_.mute(silent_);
    out_.say(syntax::Field::content, taken);
    part_has_output_ = true;
  } else if (const auto committed = out_.committed()) {
    part_has_output_ = true;
    part_text_ = taken.substr(*committed);
  } else {
    part_text_ += taken;
  }
  if (step == Step::done) {
    end_part();
    return Advance::on;
  }
  if (step == Step::failed || last) {
    give_up_part(step != Step::failed);
    return Advance::on;
  }
  return Advance::wait;
}

void ReplyParser::end_part() {
  matcher_.reset();
  part_text_.clear();
  if (part_->kind == ReplyPart::Kind::call) has_content_ = true;
  if (part_->kind != ReplyPart::Kind::mark && (part_->kind == ReplyPart::Kind::call || options_.reasoning))
    drop_space_ = true;
}

// What the part has already said stands. Of the rest, a piece that the end of the text cut off belonged to the part;
// everything else is content.
void ReplyParser::give_up_part(bool text_ended) {
  matcher_.reset();
  out_.abandon_call();
  if (part_->kind == ReplyPart::Kind::call) has_content_ = has_content_ || part_has_output_;
  if (text_ended && part_has_output_) {
    buffer_.clear();
    part_text_.clear();
    return;
  }
  // So that the same part is not found in the same place again, its first character is said without a look.
  buffer_.insert(0, part_text_);
  if ((!part_text_.empty() || !part_has_output_) && !buffer_.empty()) say_raw_ = character_size(buffer_);
  if (!part_has_output_) {
    buffer_.insert(0, part_space_);
    say_raw_ += part_space_.size();
  }
  part_text_.clear();
}

}  // namespace common::chat
