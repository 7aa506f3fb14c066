#include "common/chat/jinja/runtime.h"

namespace common::jinja {

namespace {
const char* frame_address() {
  return static_cast<const char*>(__builtin_frame_address(0));
}
}  // namespace

TemplateError::TemplateError(Origin origin, SourcePos pos, std::string detail)
    : ggml::Error(origin == Origin::limit ? ggml::ErrorCode::exceeds_limit : ggml::ErrorCode::invalid_argument,
                  "line " + std::to_string(pos.line) + ", column " + std::to_string(pos.column) + ": " + detail),
      origin_(origin),
      pos_(pos),
      detail_(std::move(detail)) {}

Runtime::Runtime(const Limits& limits, std::size_t context_bytes, std::tm now, bool lax)
    : limits_(limits),
      now_(now),
      lax_(lax),
      max_steps_(limits.steps + context_bytes * 4),
      max_bytes_(limits.memory_bytes + context_bytes * 8),
      stack_base_(frame_address()) {}

void Runtime::fail(std::string message) const {
  throw TemplateError(TemplateError::Origin::runtime, pos_, std::move(message));
}

void Runtime::fail_limit(std::string message) const {
  throw TemplateError(TemplateError::Origin::limit, pos_, std::move(message));
}

void Runtime::raise(std::string message) const {
  throw TemplateError(TemplateError::Origin::raised, pos_, std::move(message));
}

void Runtime::out_of_steps() const {
  fail_limit("the template did more than " + std::to_string(max_steps_) + " steps of work");
}

void Runtime::require(std::size_t bytes) const {
  if (bytes > max_bytes_ || live_bytes_ > max_bytes_ - bytes)
    fail_limit("the template needs more than " + std::to_string(max_bytes_) + " bytes of memory");
}

void Runtime::charge(std::size_t bytes) {
  require(bytes);
  live_bytes_ += bytes;
}

void Runtime::check_stack() const {
  const char* here = frame_address();
  const auto used = here < stack_base_ ? stack_base_ - here : here - stack_base_;
  if (static_cast<std::size_t>(used) > limits_.stack_bytes)
    fail_limit("the template nests too deeply (more than " + std::to_string(limits_.stack_bytes) + " bytes of stack)");
}

Value Runtime::text(std::string s) {
  work(s.size());
  return Value(Str(std::make_shared<const StrData>(std::move(s), this)));
}

Value Runtime::sequence(SequenceKind kind, std::vector<Value> items, std::string label) {
  charge(items.size() * sizeof(Value) + sizeof(Sequence));
  work(items.size() * sizeof(Value));
  sequences_.push_back(std::make_unique<Sequence>());
  Sequence* s = sequences_.back().get();
  s->kind = kind;
  s->items = std::move(items);
  s->label = std::move(label);
  return Value(s);
}

Dict* Runtime::dict() {
  charge(sizeof(Dict));
  step();
  dicts_.push_back(std::make_unique<Dict>());
  return dicts_.back().get();
}

std::uint32_t Runtime::next_random() {
  random_ = random_ * 1664525u + 1013904223u;
  return random_ >> 8;
}

}  // namespace common::jinja
