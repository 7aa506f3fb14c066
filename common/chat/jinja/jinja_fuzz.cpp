// Any bytes as a template, rendered over a context that looks like a chat. Errors are fine, anything else is not.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/chat/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto context = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "h\u00e9llo \ud83d\ude80"},
                 {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, true]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true,
    "d": {"a": 1, "b": {"c": 2}}, "l": [1, 2, 3, 4], "s": "a b  c", "x": 2, "tree": [{"kids": [{"kids": []}]}]})");
  common::jinja::RenderOptions options;
  options.limits.steps = 200'000;
  options.limits.output_bytes = std::size_t{1} << 20;
  options.limits.memory_bytes = std::size_t{16} << 20;
  options.now = std::tm{};
  try {
    const common::jinja::Template t(std::string_view(reinterpret_cast<const char*>(data), size), options.limits);
    (void)t.render(context, options);
  } catch (const common::jinja::TemplateError&) {
  }
  return 0;
}
