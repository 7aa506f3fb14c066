#pragma once

#include <string>
#include <string_view>

namespace llama {

/// Unicode normal form C of valid UTF-8. Returns `text` itself where nothing changes, else a view of `storage`, which
/// it fills. Linear but for the sorting of one run of combining marks.
[[nodiscard]] std::string_view to_nfc(std::string_view text, std::string& storage);

}  // namespace llama
