#pragma once

#include <string>

#include "synth/synth.h"
#include "value_text.h"

namespace gguf_tool {

enum class Command : std::uint8_t { help, inspect, list_presets, synthesise };

struct Options {
  Command command = Command::help;
  std::string help;  // for Command::help: the text to print
  std::vector<std::string> files;
  bool json = false;
  Detail detail = Detail::abbreviated;
  SynthRequest synth;
};

/// Reads the command line. Throws ggml::Error(invalid_argument) naming the wrong argument, and for an unknown option
/// the nearest known one.
[[nodiscard]] Options parse_options(int argc, const char* const* argv);

}  // namespace gguf_tool
