#include "common/chat/jinja/template.h"

#include <nlohmann/json.hpp>

#include "common/chat/jinja/ast.h"
#include "common/chat/jinja/interpreter.h"
#include "common/chat/jinja/json.h"
#include "common/chat/jinja/runtime.h"

namespace common::jinja {

namespace {
std::tm local_time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  localtime_r(&now, &out);
  return out;
}
}  // namespace

Template::Template(std::string_view source, const Limits& limits)
    : parsed_(std::make_shared<const ParsedTemplate>(parse_template(source, limits))) {}

std::string Template::render(const nlohmann::ordered_json& context, const RenderOptions& options) const {
  Runtime rt(options.limits, json_bytes(context), options.now ? *options.now : local_time_now(), options.lax);
  Interpreter interpreter(*parsed_, context, rt);
  return interpreter.run();
}

}  // namespace common::jinja
