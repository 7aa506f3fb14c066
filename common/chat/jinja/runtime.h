#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/chat/jinja/template.h"
#include "common/chat/jinja/value.h"

namespace common::jinja {

/// State of one rendering that every operation needs: where it is (for messages), what it has used, and the containers
/// it made. One thread at a time.
class Runtime {
 public:
  Runtime(const Limits& limits, std::size_t context_bytes, std::tm now, bool lax = false);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  [[noreturn]] void fail(std::string message) const;
  [[noreturn]] void fail_limit(std::string message) const;
  [[noreturn]] void raise(std::string message) const;  // raise_exception()

  /// One unit of work; fails when the rendering has done too much.
  void step() {
    if (++steps_ > max_steps_) out_of_steps();
  }
  /// Work on `bytes` of text or of elements, moved as a whole.
  void work(std::size_t bytes) {
    steps_ += bytes / 64;
    step();
  }
  /// Work that looks at `bytes` of text one by one, as searches do.
  void scan(std::size_t bytes) {
    steps_ += bytes / 8;
    step();
  }
  /// Appends to a text in the making. For pieces that recur: they may be far larger than what they stand for.
  void append(std::string& out, std::string_view piece) {
    work(piece.size());
    require(out.size() + piece.size());
    out += piece;
  }
  void charge(std::size_t bytes);
  void release(std::size_t bytes) noexcept { live_bytes_ -= bytes; }
  /// Fails when `bytes` more would not fit: ask before making something large.
  void require(std::size_t bytes) const;
  /// Fails when the C++ stack has grown too far below the start of the rendering.
  void check_stack() const;

  Value text(std::string s);
  Value sequence(SequenceKind kind, std::vector<Value> items, std::string label = {});
  Value list(std::vector<Value> items) { return sequence(SequenceKind::list, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(SequenceKind::tuple, std::move(items)); }
  Value generator(std::vector<Value> items) { return sequence(SequenceKind::generator, std::move(items)); }
  Dict* dict();
  template <class T, class... A>
  T* object(A&&... args) {
    charge(sizeof(T) + 32);
    auto owned = std::make_unique<T>(std::forward<A>(args)...);
    T* raw = owned.get();
    objects_.push_back(std::move(owned));
    return raw;
  }

  void set_pos(SourcePos pos) { pos_ = pos; }
  [[nodiscard]] SourcePos pos() const { return pos_; }
  [[nodiscard]] const Limits& limits() const { return limits_; }
  [[nodiscard]] const std::tm& now() const { return now_; }
  [[nodiscard]] bool lax() const { return lax_; }
  /// For `random` and lipsum(): the same sequence in every rendering.
  std::uint32_t next_random();

 private:
  [[noreturn]] void out_of_steps() const;

  const Limits limits_;
  const std::tm now_;
  const bool lax_;
  const std::uint64_t max_steps_;
  const std::size_t max_bytes_;
  const char* stack_base_;
  SourcePos pos_;
  std::uint64_t steps_ = 0;
  std::size_t live_bytes_ = 0;
  std::uint32_t random_ = 12345;
  // Containers may refer to each other in cycles (l.append(l)), so they are freed together at the end, not counted.
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<std::unique_ptr<Dict>> dicts_;
  std::vector<std::unique_ptr<Object>> objects_;
};

}  // namespace common::jinja
