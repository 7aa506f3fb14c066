#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace common {

/// The canonical name ("top_k", "typ_p", "temperature", ...) of a sampler called `name` in any of its spellings:
/// any case, `-` for `_` or no separator, and the usual synonyms such as nucleus. Nothing for another word.
[[nodiscard]] std::optional<std::string> sampler_by_name(std::string_view name);
/// The canonical name behind a letter of --sampler-seq.
[[nodiscard]] std::optional<std::string> sampler_by_letter(char letter);

}  // namespace common
