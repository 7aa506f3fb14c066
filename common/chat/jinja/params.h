#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/chat/jinja/runtime.h"
#include "common/chat/jinja/value.h"

namespace common::jinja {

/// The arguments of a built-in function, matched to its parameter names as Python does: positional first, then by name.
class Params {
 public:
  /// Fails the rendering on surplus, unknown and doubled arguments, and when one of the first `required` is missing.
  Params(Runtime& rt, std::string_view function, Args& args, std::initializer_list<std::string_view> names,
         std::size_t required = 0);

  [[nodiscard]] bool has(std::size_t i) const { return values_[i].has_value(); }
  /// Undefined when absent.
  [[nodiscard]] Value get(std::size_t i) const { return values_[i].value_or(Value()); }
  [[nodiscard]] Value get(std::size_t i, Value otherwise) const { return values_[i].value_or(std::move(otherwise)); }
  /// Beyond 2^120 on either side all are alike, so that sums with lengths and with each other stay exact.
  [[nodiscard]] Int integer(std::size_t i, Int otherwise) const;
  [[nodiscard]] bool flag(std::size_t i, bool otherwise) const { return has(i) ? get(i).truthy() : otherwise; }
  /// str() of the argument.
  [[nodiscard]] std::string text(std::size_t i, std::string_view otherwise) const;
  /// Text that must be a str; none counts as absent.
  [[nodiscard]] std::optional<std::string> string(std::size_t i) const;

 private:
  Runtime& rt_;
  std::string function_;
  std::vector<std::string_view> names_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace common::jinja
