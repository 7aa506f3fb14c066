#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace common::chat::syntax {

/// How far a text is certain to stand before the first of some marks.
struct Clear {
  std::size_t size = 0;  // bytes in front of the mark, or of what may become one
  bool stopped = false;  // a mark begins there
};

/// `last`: nothing follows the text, so an unfinished mark is none.
[[nodiscard]] Clear clear_before(std::string_view text, const std::vector<std::string>& stops, bool last);

/// How much white space at the end of a text is held back until it is known whether something follows. A longer run is
/// let through but for its end, so that what is held stays small.
inline constexpr std::size_t kMaxHeldSpace = 64;

/// The text's size without the white space at its end (at most kMaxHeldSpace of it).
[[nodiscard]] std::size_t without_final_space(std::string_view text);

}  // namespace common::chat::syntax
