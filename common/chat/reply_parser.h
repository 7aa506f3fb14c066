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
};

/// What a parser needs to know; shared by the answers to a request.
struct ReplyReading {
  std::shared_ptr<const ReplyFormat> format;
  std::shared_ptr<const ToolSet> tools;  // null or empty: nothing is a call
  ParseOptions options;
  ReplyOpening opening;
};

/// Reads a model's output as it arrives. What has been given out as a delta is final: the reply is the sum of the
/// deltas, wherever the text was cut. Never throws for what a model writes: what does not fit the format is content.
/// Thread-compatible.
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
  /// The text of the present part, as far as it has been read and beyond. For starting a grammar at a call.
  [[nodiscard]] std::string part_text() const { return part_text_ + buffer_; }

 private:
  enum class Advance : std::uint8_t { on, wait };

  [[nodiscard]] bool in(ReplyPart::Kind kind) const { return matcher_ && part_->kind == kind; }
  void open(const ReplyOpening& opening);
  void run(bool last);
  Advance scan(bool last);
  Advance read_part(bool last);
  syntax::Ahead part_at(std::size_t at, bool last, const ReplyPart*& part) const;
  void say_content(std::size_t n, const ReplyPart* next, bool last);
  void begin_part(const ReplyPart& part);
  void end_part();
  void give_up_part(bool text_ended);

  const std::shared_ptr<const ReplyFormat> format_;
  const std::shared_ptr<const ToolSet> tools_;
  const ParseOptions options_;
  std::vector<const ReplyPart*> parts_;  // those in use
  std::array<bool, 256> may_begin_{};    // bytes with which a part can begin
  syntax::Output out_;
  std::string buffer_;  // not read yet
  const ReplyPart* part_ = nullptr;
  std::unique_ptr<syntax::Matcher> matcher_;
  std::string part_text_;   // what was read of the part since its last output
  std::string part_space_;  // white space in front of the part, which is content again if it turns out to be none
  bool part_has_output_ = false;
  bool silent_ = false;       // reading what the prompt holds already
  bool has_content_ = false;  // or calls: parts of the start are over
  bool drop_space_ = false;   // white space behind a part is no content
  std::size_t say_raw_ = 0;   // bytes at the front that are content whatever they look like
};

}  // namespace common::chat
