#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/chat/reply.h"
#include "common/chat/syntax/element.h"
#include "common/chat/tools.h"

namespace common::chat::syntax {

/// Where elements put what they read: the message so far, and the deltas since the last look. Nothing that was put here
/// is ever taken back.
class Output {
 public:
  explicit Output(const ToolSet* tools);

  void say(Field field, std::string_view text);
  void begin_call();
  /// False when only offered tools count and this is none.
  [[nodiscard]] bool name(std::string name, Names names);
  void id(std::string id) { id_ = std::move(id); }
  /// More of the arguments' JSON text. The first piece makes the call known to the client.
  void arguments(std::string_view json);
  /// Arguments given one by one: `{` or a comma, the key and a colon.
  void parameter(std::string_view key);
  void end_parameters();
  void end_call();

  [[nodiscard]] bool has_name() const { return !name_.empty(); }
  /// The tool of the call; null between calls and for a name that was not offered.
  [[nodiscard]] const Tool* tool() const { return tool_; }
  [[nodiscard]] const std::string& key() const { return key_; }
  [[nodiscard]] bool call_announced() const { return announced_; }

  /// The element that is being read reads from here; what is put marks how far it has become final.
  void reading(const Input* in) { in_ = in; }
  /// Input::taken at the last output since reading(); nothing when there was none.
  [[nodiscard]] std::optional<std::size_t> committed() const { return committed_; }
  void clear_committed() { committed_.reset(); }
  /// What has been read so far belongs to what was put out, as a closing mark does.
  void settle() { commit(); }
  /// While set, what is said is dropped (its source text is shown instead).
  void mute(bool on) { muted_ = on; }
  /// Leaves a call that did not end as it should.
  void abandon_call();

  [[nodiscard]] const Reply& reply() const { return reply_; }
  [[nodiscard]] std::vector<ReplyDelta> take_deltas() { return std::exchange(deltas_, {}); }

 private:
  void commit() { committed_ = in_ != nullptr ? in_->taken : 0; }
  void announce();
  [[nodiscard]] std::string made_up_id();

  const ToolSet* tools_;  // may be null
  const Tool* tool_ = nullptr;
  const Input* in_ = nullptr;
  std::optional<std::size_t> committed_;
  Reply reply_;
  std::vector<ReplyDelta> deltas_;
  std::string name_, id_, key_;
  bool in_call_ = false, announced_ = false, in_parameters_ = false, muted_ = false;
};

}  // namespace common::chat::syntax
