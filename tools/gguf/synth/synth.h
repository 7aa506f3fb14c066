#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "preset.h"

namespace gguf_tool {

struct SynthRequest {
  std::string preset;
  std::string mix = "q4_k_m";
  std::string output;
  Resize resize;
  std::uint64_t seed = 1;
  double router_skew = 0;  // 0: every expert is chosen about equally often
  bool sparse = false;     // header only; the data are a hole
};

/// Writes a model of a preset's exact shape with random weights. Throws ggml::Error; stops with `cancelled` soon after
/// `stop` becomes true. Prints progress to stderr and one line of result to stdout.
void synthesise(const SynthRequest& request, const std::atomic<bool>& stop);

/// Prints a table of the presets and their sizes in the given mix.
void print_presets(const std::string& mix);

}  // namespace gguf_tool
