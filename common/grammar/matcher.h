#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "common/grammar/mask_engine.h"

namespace llama {
class Vocab;
}

namespace common::grammar {

/// The stacks in which a text may stand in a grammar. Copies are independent. Thread-compatible; takes the engine's
/// lock.
class Matcher {
 public:
  /// At the beginning of the text. `engine` must outlive it.
  explicit Matcher(MaskEngine& engine);

  /// Advances by these bytes. False, with nothing changed, when the grammar does not allow them.
  /// This and the others throw Error(exceeds_limit) when the grammar asks for too much.
  [[nodiscard]] bool accept_text(std::string_view bytes);
  /// Advances by a token: by its text, by a token element, or to the end of the text. Same answer as accept_text().
  [[nodiscard]] bool accept_token(llama::Token token, const llama::Vocab& vocab);
  /// Writes the mask of the next token.
  void fill(std::span<std::uint32_t> words, const llama::Vocab& vocab);
  /// Whether the text may end here.
  [[nodiscard]] bool may_end();

 private:
  [[nodiscard]] std::vector<StackId> after_text(std::string_view bytes);
  void add_token_elements(std::span<std::uint32_t> words, const llama::Vocab& vocab);
  [[nodiscard]] bool ends_here();

  MaskEngine* engine_;
  StackPool pool_;
  std::vector<StackId> stacks_;  // sorted
};

}  // namespace common::grammar
