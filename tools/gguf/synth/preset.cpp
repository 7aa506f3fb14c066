#include "preset.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../nearest.h"
#include "ggml/error.h"

namespace gguf_tool {
namespace {

constexpr ArchTraits kArchs[] = {
#define ARCH(arch_name, ...) ArchTraits{.name = arch_name __VA_OPT__(, ) __VA_ARGS__},
#include "archs.def"
#undef ARCH
};

constexpr Preset kPresets[] = {
#define PRESET(preset_name, arch_name, ...) Preset{.name = preset_name, .arch = arch_name, __VA_ARGS__},
#include "presets.def"
#undef PRESET
};

[[noreturn]] void refuse(const std::string& message, const std::string& hint = {}) {
  throw ggml::Error(ggml::ErrorCode::invalid_argument, message, hint);
}

int checked(const char* option, int value, int least, int most) {
  if (value < least || value > most) refuse(fmt::format("{} is {}, must be from {} to {}", option, value, least, most));
  return value;
}

void check_groups(const Preset& preset) {
  const ExpertGroups groups = preset.groups.value_or(ExpertGroups{});
  if (groups.count <= 1) return;
  const bool whole = preset.experts % groups.count == 0 && preset.experts >= 2 * groups.count;
  if (!whole || preset.used > preset.experts / groups.count * groups.used) {
    refuse(
        fmt::format("{} has {} expert groups of which {} are used: --experts must be a multiple of {} and allow {} "
                    "experts in {} groups",
                    preset.name, groups.count, groups.used, groups.count, preset.used, groups.used));
  }
}

}  // namespace

const ArchTraits& Preset::traits() const {
  const auto* found = std::ranges::find(kArchs, arch, &ArchTraits::name);
  TANDEM_ASSERT(found != std::end(kArchs), "every preset names a row of archs.def");
  return *found;
}

std::span<const Preset> presets() {
  return kPresets;
}

Preset find_preset(std::string_view name, const Resize& resize) {
  constexpr int kMostLayers = 10000;
  constexpr int kMostExperts = 65536;
  constexpr int kLeastVocab = 256 + 3;  // the bytes and three special tokens
  constexpr int kMostVocab = 1 << 24;
  const auto* found = std::ranges::find(kPresets, name, &Preset::name);
  if (found == std::end(kPresets)) {
    std::vector<std::string> names;
    for (const Preset& preset : kPresets) names.emplace_back(preset.name);
    refuse(fmt::format("there is no preset \"{}\"{}", name, suggestion(name, names)),
           "`llama-gguf synth --list` shows all presets");
  }
  Preset preset = *found;
  if (resize.layers) preset.layers = checked("--layers", *resize.layers, 1, kMostLayers);
  if (resize.vocab) preset.vocab = checked("--vocab", *resize.vocab, kLeastVocab, kMostVocab);
  if (resize.experts) {
    if (preset.experts == 0) refuse(fmt::format("--experts: {} has no experts", name));
    preset.experts = checked("--experts", *resize.experts, 1, kMostExperts);
  }
  // A cut hybrid keeps one attention layer, a cut model one layer with experts.
  preset.attention_interval = std::min(preset.attention_interval, preset.layers);
  if (preset.dense) preset.dense = std::min(*preset.dense, preset.layers - 1);
  preset.used = std::min(preset.used, preset.experts);
  check_groups(preset);
  return preset;
}

}  // namespace gguf_tool
