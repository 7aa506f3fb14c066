#pragma once

#include <vector>

#include "trie.h"
#include "vocab_data.h"

namespace llama {

/// Finds special tokens in text. The longest token takes precedence wherever it occurs in the whole text, then the next
/// shorter one in what is left, and so on; not the leftmost. Immutable and thread-safe.
class SpecialPartition {
 public:
  explicit SpecialPartition(const VocabData& data);

  /// Cuts `text` into raw stretches (never empty) and special tokens. Without `parse_special` only user-defined tokens
  /// count. Time is linear in text.size(), whatever the number of special tokens.
  [[nodiscard]] std::vector<Fragment> split(std::string_view text, bool parse_special) const;

 private:
  struct Hit;
  [[nodiscard]] std::vector<Hit> find(const Trie& trie, std::string_view text) const;

  const VocabData& data_;
  Trie all_;
  Trie user_defined_;
};

}  // namespace llama
