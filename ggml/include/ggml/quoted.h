#pragma once

#include <string>
#include <string_view>

namespace ggml::gguf {

/// `text` in single quotes for a message: everything but printable ASCII as \xNN, cut after 80 bytes. Names in files
/// are hostile too: they must not move a terminal's cursor or fill a log.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace ggml::gguf
