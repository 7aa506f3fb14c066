#include "trie.h"

#include <algorithm>

#include "ggml/error.h"

namespace llama {

Trie::Trie(std::vector<Entry> entries) {
  root_.fill(-1);
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.text < b.text; });

  // Breadth first over ranges of the sorted texts that share a prefix, so that the edges of a node lie together and
  // deep texts need no recursion.
  struct Range {
    std::size_t begin, end, depth;
    std::int32_t node;  // -1: the root
  };
  std::vector<Range> queue{{0, entries.size(), 0, -1}};
  for (std::size_t q = 0; q < queue.size(); ++q) {
    const Range range = queue[q];
    std::size_t i = range.begin;
    if (range.node >= 0) {
      Node& node = nodes_[static_cast<std::size_t>(range.node)];
      node.first_edge = static_cast<std::uint32_t>(edges_.size());
      if (entries[i].text.size() == range.depth) node.value = entries[i].value;
    }
    while (i < range.end && entries[i].text.size() == range.depth) {
      TANDEM_ASSERT(range.depth > 0, "a trie holds no empty text");
      ++i;
    }
    while (i < range.end) {
      const char byte = entries[i].text[range.depth];
      std::size_t end = i + 1;
      while (end < range.end && entries[end].text[range.depth] == byte) ++end;
      const auto node = static_cast<std::int32_t>(nodes_.size());
      nodes_.emplace_back();
      if (range.node < 0) {
        root_[static_cast<unsigned char>(byte)] = node;
      } else {
        edges_.push_back({static_cast<unsigned char>(byte), node});
        ++nodes_[static_cast<std::size_t>(range.node)].n_edges;
      }
      queue.push_back({i, end, range.depth + 1, node});
      i = end;
    }
  }
}

std::int32_t Trie::child(std::int32_t node, unsigned char byte) const noexcept {
  if (node < 0) return root_[byte];
  const Node& n = nodes_[static_cast<std::size_t>(node)];
  const auto first = edges_.begin() + n.first_edge;
  const auto last = first + n.n_edges;
  const auto it = std::lower_bound(first, last, byte, [](const Edge& e, unsigned char b) { return e.byte < b; });
  return it != last && it->byte == byte ? it->node : -1;
}

}  // namespace llama
