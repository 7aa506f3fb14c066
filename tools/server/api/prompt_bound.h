#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "llama/vocab.h"

namespace server {

/// How many tokens a text has at least, told by its bytes: what cannot fit is refused without the memory and time that
/// its tokens would take. Immutable.
class PromptBound {
 public:
  explicit PromptBound(const llama::Vocab& vocab);
  /// 0 where nothing can be said: vocabularies that drop or join text.
  [[nodiscard]] std::size_t least_tokens(std::string_view text) const;

 private:
  std::array<bool, 256> counts_{};  // bytes that end up in a token, whatever stands around them
  std::size_t longest_ = 0;         // the most such bytes that one token can hold; 0: not known
};

}  // namespace server
