#include "common/chat/reply_parser.h"

#include <algorithm>

#include "common/chat/syntax/stops.h"

namespace common::chat {

using syntax::Ahead;
using syntax::Lookahead;
using syntax::Step;

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
      open_at(text.substr(i), opening.continues);
      return;
    }
  }
  has_content_ = opening.continues;
}

void ReplyParser::open_at(std::string_view text, bool continues) {
  silent_ = continues || !options_.reasoning;
  out_.mute(silent_);
  buffer_ = text;
  run(false);
  silent_ = false;
  out_.mute(false);
  // What a continued message holds already is not said again.
  if (continues) shown_ = read_ = buffer_.size();
  if (continues) settle_part(read_);
  // Reasoning that stays in the content keeps the mark that the prompt opened it with.
  if (in_reasoning() && !options_.reasoning && !continues) {
    out_.say(syntax::Field::content, format_->think_start);
    settle_part(read_);
  }
}

std::vector<ReplyDelta> ReplyParser::push(std::string_view text) {
  buffer_ += text;
  run(false);
  return take_deltas();
}

std::vector<ReplyDelta> ReplyParser::finish() {
  drops_rest_ = options_.only_calls && options_.calls;
  run(true);
  return take_deltas();
}

std::vector<ReplyDelta> ReplyParser::take_deltas() {
  buffer_.erase(0, begin_);
  read_ -= begin_;
  shown_ -= begin_;
  begin_ = 0;
  return out_.take_deltas();
}

// Everything is decided with one more byte in sight at a time, so that how many bytes have arrived decides nothing.
void ReplyParser::run(bool last) {
  const auto advance = [this](bool at_end) { return matcher_ ? read_part(at_end) : scan(at_end); };
  do {
    while (shown_ < buffer_.size()) {
      ++shown_;
      while (advance(false) == Advance::on) {
      }
    }
  } while (last && advance(true) == Advance::on);
}

std::string_view ReplyParser::window() const {
  return std::string_view(buffer_).substr(read_, shown_ - read_);
}

Ahead ReplyParser::part_at(std::size_t at, bool last, const ReplyPart*& part) const {
  const std::string_view text = window();
  bool start_known = false;
  bool start = false;
  for (const ReplyPart* candidate : parts_) {
    if (candidate->at_start_only) {
      if (!start_known) {
        start_known = true;
        start = !has_content_ && std::all_of(text.data(), text.data() + at, syntax::is_space);
      }
      if (!start) continue;
    }
    Lookahead ahead{text.substr(at), last};
    const Ahead found = candidate->syntax->look(ahead);
    if (found == Ahead::no) continue;
    part = candidate;
    return found;  // a later one must not be taken while this one is still possible
  }
  return Ahead::no;
}

ReplyParser::Advance ReplyParser::scan(bool last) {
  const std::string_view text = window();
  const ReplyPart* part = nullptr;
  Ahead found = Ahead::no;
  std::size_t at = say_raw_;
  for (; at < text.size(); ++at) {
    if (!may_begin_[static_cast<unsigned char>(text[at])]) continue;
    found = part_at(at, last, part);
    if (found != Ahead::no) break;
  }
  at = std::min(at, text.size());
  say_content(at, found == Ahead::yes ? part : nullptr, last && found == Ahead::no);
  if (found != Ahead::yes) return Advance::wait;
  begin_part(*part);
  return Advance::on;
}

// The first `n` bytes are content, but for white space at their edges that only sets parts apart.
void ReplyParser::say_content(std::size_t n, const ReplyPart* next, bool last) {
  const std::string_view text = window().substr(0, n);
  std::size_t begin = 0;
  if (drop_space_)
    while (begin < n && begin >= say_raw_ && syntax::is_space(text[begin])) ++begin;
  std::size_t end = n;
  const bool part_may_follow =
      std::any_of(parts_.begin(), parts_.end(), [&](const ReplyPart* p) { return !p->at_start_only || !has_content_; });
  if (part_may_follow && !last)
    end = std::max(begin + syntax::without_final_space(text.substr(begin)), std::min(say_raw_, n));
  const std::string_view said = text.substr(begin, end - begin);
  // White space behind it stays until it is clear what follows.
  begin_ += end;
  say_raw_ -= std::min(say_raw_, end);
  space_ = next != nullptr ? n - end : 0;
  read_ = begin_ + space_;
  if (said.empty() || drops_rest_) return;
  drop_space_ = false;
  if (!std::all_of(said.begin(), said.end(), syntax::is_space)) has_content_ = true;
  out_.say(syntax::Field::content, said);
}

void ReplyParser::begin_part(const ReplyPart& part) {
  part_ = &part;
  matcher_ = part.syntax->match();
  part_has_output_ = false;
  shown_ = read_;
}

/// What the part has read up to `end` is final.
void ReplyParser::settle_part(std::size_t end) {
  begin_ = end;
  space_ = 0;
  part_has_output_ = true;
}

ReplyParser::Advance ReplyParser::read_part(bool last) {
  syntax::Input in{window(), last};
  const bool raw = part_->kind == ReplyPart::Kind::reasoning && !options_.reasoning;
  out_.reading(&in);
  out_.clear_committed();
  out_.mute(raw || silent_);
  const Step step = matcher_->step(in, out_);
  out_.reading(nullptr);
  out_.mute(silent_);
  const std::size_t begun = read_;
  read_ += in.taken;
  if (raw && in.taken > 0) {
    out_.say(syntax::Field::content, std::string_view(buffer_).substr(begun, in.taken));
    settle_part(read_);
  } else if (const auto committed = out_.committed(); committed && !raw) {
    settle_part(begun + *committed);
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
  begin_ = read_;
  space_ = 0;
  if (part_->kind == ReplyPart::Kind::call) has_content_ = true;
  if (part_->kind != ReplyPart::Kind::mark && (part_->kind == ReplyPart::Kind::call || options_.reasoning))
    drop_space_ = true;
}

// What the part has already said stands. Of the rest, a piece that the end of the text cut off belonged to the part;
// everything else is read again as content.
void ReplyParser::give_up_part(bool text_ended) {
  matcher_.reset();
  out_.abandon_call();
  if (part_->kind == ReplyPart::Kind::call) has_content_ = has_content_ || part_has_output_;
  if (text_ended && part_has_output_) {
    begin_ = read_ = shown_ = buffer_.size();
    return;
  }
  // So that the same part is not found in the same place again, its first character is said without a look.
  if (begin_ < read_ || !part_has_output_) say_raw_ = space_ + 1;
  space_ = 0;
  read_ = shown_ = begin_;
}

}  // namespace common::chat
