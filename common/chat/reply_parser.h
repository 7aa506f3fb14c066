#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/chat/reply.h"
#include "common/chat/reply_format.h"
#include "common/chat/reply_opening.h"
#include "common/chat/syntax/output.h"
#include "common/chat/tools.h"

namespace common::chat {

struct ParseOptions {
  bool calls = true;      // false: calls stay in the content
  bool reasoning = true;  // false: reasoning stays in the content, with its marks
  /// A grammar lets nothing but calls follow the reasoning: what the end of the text leaves undecided was one.
  bool only_calls = false;
};

/// What a parser needs to know; shared by the answers to a request.
struct ReplyReading {
  std::shared_ptr<const ReplyFormat> format;
  std::shared_ptr<const ToolSet> tools;  // null or empty: nothing is a call
  ParseOptions options;
  ReplyOpening opening;
};

/// Reads a model's output as it arrives. For every format, whatever the model writes:
/// - The reply does not depend on where the text was cut, for the format's elements are shown it a byte at a time, as
///   if every byte had arrived alone.
/// - What has been given out as a delta is final: the reply is the sum of the deltas.
/// - No byte is lost by a part that fails: what it read behind the last byte for which something was given out is
///   read again, as content. Only what the end of the text cuts off still belongs to a part that has begun to speak.
/// Never throws for what a model writes: what does not fit the format is content. Thread-compatible.
class ReplyParser {
 public:
  explicit ReplyParser(const ReplyReading& reading);
  ReplyParser(const ReplyParser&) = delete;
  ReplyParser& operator=(const ReplyParser&) = delete;

  std::vector<ReplyDelta> push(std::string_view text);
  /// Ends the reply; what was held back is decided now.
  std::vector<ReplyDelta> finish();
  [[nodiscard]] const Reply& reply() const { return out_.reply(); }

  [[nodiscard]] bool in_reasoning() const { return in(ReplyPart::Kind::reasoning); }
  [[nodiscard]] bool in_call() const { return in(ReplyPart::Kind::call); }
  /// The text of the present part since its last output, as far as it has been read and beyond. For starting a grammar
  /// at a call.
  [[nodiscard]] std::string part_text() const { return buffer_.substr(begin_ + space_); }

 private:
  enum class Advance : std::uint8_t { on, wait };

  [[nodiscard]] bool in(ReplyPart::Kind kind) const { return matcher_ && part_->kind == kind; }
  void open(const ReplyOpening& opening);
  void open_at(std::string_view text, bool continues);
  void run(bool last);
  std::vector<ReplyDelta> take_deltas();
  [[nodiscard]] std::string_view window() const;
  Advance scan(bool last);
  Advance read_part(bool last);
  syntax::Ahead part_at(std::size_t at, bool last, const ReplyPart*& part) const;
  void say_content(std::size_t n, const ReplyPart* next, bool last);
  void begin_part(const ReplyPart& part);
  void settle_part(std::size_t end);
  void end_part();
  void give_up_part(bool text_ended);

  const std::shared_ptr<const ReplyFormat> format_;
  const std::shared_ptr<const ToolSet> tools_;
  const ParseOptions options_;
  std::vector<const ReplyPart*> parts_;  // those in use
  std::array<bool, 256> may_begin_{};    // bytes with which a part can begin
  syntax::Output out_;
  // [begin_, read_) has been read by the present part, but it has put out nothing for it: white space in front of the
  // part, and text since its last output. [read_, shown_) has been looked at; what follows has not.
  std::string buffer_;
  std::size_t begin_ = 0, read_ = 0, shown_ = 0;
  std::size_t space_ = 0;  // white space behind begin_, in front of the part; content again if it turns out to be none
  const ReplyPart* part_ = nullptr;
  std::unique_ptr<syntax::Matcher> matcher_;
  bool part_has_output_ = false;
  bool silent_ = false;       // reading what the prompt holds already
  bool has_content_ = false;  // or calls: parts of the start are over
  bool drop_space_ = false;   // white space behind a part is no content
  bool drops_rest_ = false;   // the text has ended, and what is left of it is a piece of a call
  std::size_t say_raw_ = 0;   // bytes behind read_ that are content whatever they look like
};

}  // namespace common::chat
