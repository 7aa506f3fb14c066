#include "mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "../nearest.h"
#include "ggml/error.h"
#include "random_blocks.h"

namespace gguf_tool {
namespace {

struct Fallback {
  std::string_view type;
  std::string_view next;
};

constexpr Mix kMixes[] = {
#define MIX(...) Mix{__VA_ARGS__},
#define FALLBACK(...)
#include "mixes.def"
#undef MIX
#undef FALLBACK
};

constexpr Fallback kFallbacks[] = {
#define MIX(...)
#define FALLBACK(...) Fallback{__VA_ARGS__},
#include "mixes.def"
#undef MIX
#undef FALLBACK
};

ggml::DType writable_type(std::string_view name) {
  const std::optional<ggml::DType> type = ggml::type_from_name(name);
  if (!type || !RandomBlocks::can_fill(*type)) {
    throw ggml::Error(ggml::ErrorCode::unsupported,
                      fmt::format("this model needs tensors of type {}, which cannot be written yet", name),
                      "choose another --mix or --preset");
  }
  return *type;
}

}  // namespace

std::span<const Mix> mixes() {
  return kMixes;
}

bool can_write(const Mix& mix) {
  return std::ranges::all_of(std::array{mix.weights, mix.high, mix.head, mix.embedding}, [](std::string_view name) {
    const std::optional<ggml::DType> type = ggml::type_from_name(name);
    return type && RandomBlocks::can_fill(*type);
  });
}

const Mix& find_mix(std::string_view name) {
  const auto* found = std::ranges::find(kMixes, name, &Mix::name);
  if (found != std::end(kMixes)) return *found;
  std::vector<std::string> names;
  for (const Mix& mix : kMixes) names.emplace_back(mix.name);
  throw ggml::Error(ggml::ErrorCode::invalid_argument,
                    fmt::format("there is no mix \"{}\"{}", name, suggestion(name, names)),
                    fmt::format("mixes: {}", fmt::join(names, " ")));
}

ggml::DType type_for_matrix(std::string_view type, std::int64_t row, std::int64_t rows) {
  ggml::DType chosen = writable_type(type);
  const auto fits = [&](const ggml::TypeInfo& info) {
    return row % info.block_weights == 0 && rows % info.rows_per_group == 0;
  };
  while (!fits(ggml::type_info(chosen))) {
    const auto* next = std::ranges::find(kFallbacks, ggml::type_info(chosen).name, &Fallback::type);
    chosen = writable_type(next != std::end(kFallbacks) ? next->next : std::string_view("F16"));
  }
  return chosen;
}

}  // namespace gguf_tool
