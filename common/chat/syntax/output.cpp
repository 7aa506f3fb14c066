#include "common/chat/syntax/output.h"

#include <nlohmann/json.hpp>
#include <random>

namespace common::chat::syntax {

namespace {
std::string quoted(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}
}  // namespace

Output::Output(const ToolSet* tools) : tools_(tools) {}

void Output::say(Field field, std::string_view text) {
  if (text.empty() || muted_) return;
  commit();
  (field == Field::content ? reply_.content : reply_.reasoning) += text;
  const auto kind = field == Field::content ? ReplyDelta::Kind::content : ReplyDelta::Kind::reasoning;
  if (!deltas_.empty() && deltas_.back().kind == kind) {
    deltas_.back().text += text;
  } else {
    deltas_.push_back({kind, 0, std::string(text), {}, {}});
  }
}

void Output::begin_call() {
  abandon_call();
  in_call_ = true;
}

bool Output::name(std::string name, Names names) {
  tool_ = tools_ != nullptr ? tools_->find(name) : nullptr;
  name_ = std::move(name);
  return !name_.empty() && (names == Names::any || tool_ != nullptr);
}

void Output::announce() {
  if (announced_) return;
  announced_ = true;
  if (id_.empty()) id_ = made_up_id();
  reply_.calls.push_back({id_, name_, {}});
  deltas_.push_back(
      {ReplyDelta::Kind::call_begin, static_cast<int>(reply_.calls.size()) - 1, std::string(), id_, name_});
}

void Output::arguments(std::string_view json) {
  if (json.empty() || name_.empty()) return;
  announce();
  commit();
  reply_.calls.back().arguments += json;
  const int index = static_cast<int>(reply_.calls.size()) - 1;
  using Kind = ReplyDelta::Kind;
  // Calls come one after the other, so the last delta is this call's or of something before it.
  if (!deltas_.empty() && (deltas_.back().kind == Kind::call_begin || deltas_.back().kind == Kind::call_arguments) &&
      deltas_.back().index == index) {
    deltas_.back().text += json;
  } else {
    deltas_.push_back({Kind::call_arguments, index, std::string(json), {}, {}});
  }
}

void Output::parameter(std::string_view key) {
  key_ = key;
  std::string text = in_parameters_ ? "," : "{";
  in_parameters_ = true;
  arguments(text.append(quoted(key)).append(":"));
}

void Output::end_parameters() {
  arguments(in_parameters_ ? "}" : "{}");
  in_parameters_ = false;
}

void Output::end_call() {
  if (in_call_ && !name_.empty() && !announced_) arguments("{}");
  commit();
  abandon_call();
}

void Output::abandon_call() {
  in_call_ = announced_ = in_parameters_ = false;
  name_.clear();
  id_.clear();
  key_.clear();
  tool_ = nullptr;
}

std::string Output::made_up_id() {
  static constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::mt19937_64 generator{std::random_device{}()};
  std::string id;
  for (int i = 0; i < 32; ++i) id += kLetters[generator() % kLetters.size()];
  return id;
}

}  // namespace common::chat::syntax
