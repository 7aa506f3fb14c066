#pragma once

#include <atomic>
#include <string>

#include "common/args/settings.h"

namespace gguf_tool {

using SynthRequest = common::SynthSettings;

/// Writes a model of a preset's exact shape with random weights. Throws ggml::Error; stops with `cancelled` soon after
/// `stop` becomes true. Prints progress to stderr and one line of result to stdout.
void synthesise(const SynthRequest& request, const std::atomic<bool>& stop);

/// Prints the mixes, and a table of the presets and their sizes in the given mix.
void print_presets(const std::string& mix);

}  // namespace gguf_tool
