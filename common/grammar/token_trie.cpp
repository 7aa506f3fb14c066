#include "common/grammar/token_trie.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "llama/vocab.h"

namespace common::grammar {

TokenTrie::TokenTrie(const llama::Vocab& vocab) : n_tokens_(vocab.n_tokens()) {
  constexpr std::size_t kMaxBytes = std::numeric_limits<std::uint16_t>::max();
  std::vector<std::pair<std::string_view, llama::Token>> pieces;
  pieces.reserve(static_cast<std::size_t>(n_tokens_));
  for (llama::Token t = 0; t < n_tokens_; ++t) {
    const std::string_view piece = vocab.piece(t, llama::SpecialText::show);
    if (piece.empty() || piece.front() == '\0' || piece.size() > kMaxBytes || vocab.is_eog(t)) continue;
    pieces.emplace_back(piece, t);
  }
  std::sort(pieces.begin(), pieces.end());

  twins_.assign(static_cast<std::size_t>(n_tokens_), -1);
  all_.assign((static_cast<std::size_t>(n_tokens_) + 31) / 32, 0);
  std::vector<std::uint32_t> path{0};  // nodes from the root to the last text's end
  nodes_.emplace_back();
  std::string_view last;
  const auto close = [&](std::size_t depth) {
    for (; path.size() > depth + 1; path.pop_back())
      nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
  };
  for (const auto& [piece, token] : pieces) {
    const std::size_t n_common = static_cast<std::size_t>(
        std::mismatch(last.begin(), last.end(), piece.begin(), piece.end()).first - last.begin());
    close(n_common);
    for (std::size_t i = n_common; i < piece.size(); ++i) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      Node node;
      node.depth = static_cast<std::uint16_t>(i + 1);
      node.byte = static_cast<std::uint8_t>(piece[i]);
      nodes_.push_back(node);
    }
    Node& node = nodes_[path.back()];
    if (node.token >= 0) {
      twins_[static_cast<std::size_t>(token)] = node.token;
      node.has_twins = true;
    }
    node.token = token;
    all_[static_cast<std::size_t>(token) / 32] |= 1u << (token % 32);
    max_depth_ = std::max(max_depth_, static_cast<int>(piece.size()));
    last = piece;
  }
  close(0);
  nodes_[0].end = static_cast<std::uint32_t>(nodes_.size());
}

}  // namespace common::grammar
