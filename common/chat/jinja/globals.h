#pragma once

#include <string_view>

#include "common/chat/jinja/value.h"

namespace common::jinja {

/// A function that templates see without being told: range, namespace, raise_exception ... Undefined when there is
/// none.
Value find_global(Runtime& rt, std::string_view name);

/// namespace(): the one object whose attributes `set` may assign.
class Namespace final : public Object {
 public:
  explicit Namespace(Dict* attributes) : attributes_(attributes) {}
  [[nodiscard]] std::string_view type_name() const override { return "Namespace"; }
  Value attribute(Runtime& rt, std::string_view name) override;
  bool assign(Runtime& rt, std::string_view name, Value value) override;

 private:
  Dict* attributes_;
};

}  // namespace common::jinja
