#include "trie.h"

#include <algorithm>

#include "ggml/error.h"
#include "ggml/log.h"

namespace llama {

/// Finds places for the children of nodes. Free slots are a list in the order in which they came to be.
class TrieBuilder {
 public:
  explicit TrieBuilder(std::vector<Trie::Node>& nodes) : nodes_(nodes) {
    add_block();
    take(Trie::kRoot, Trie::kNone);
  }

  /// Gives `parent` a child for each of `labels`, which are distinct and not none.
  void place(std::uint32_t parent, std::string_view labels) {
    const std::uint32_t base = find_base(labels);
    nodes_[parent].base = base;
    for (const char label : labels) take(base ^ byte(label), parent);
  }

 private:
  static constexpr std::uint32_t kEnd = Trie::kNone;
  struct Link {
    std::uint32_t prev = kEnd;
    std::uint32_t next = kEnd;
    bool free = true;
  };
  static std::uint32_t byte(char c) { return static_cast<unsigned char>(c); }

  // One child fits into the oldest hole. Several are tried in the newer ones only, and not too often: the holes that
  // they leave are for the single ones, of which there are many more.
  std::uint32_t find_base(std::string_view labels) {
    constexpr int kTries = 64;
    if (labels.size() == 1) {
      if (first_ == kEnd) add_block();
      return first_ ^ byte(labels.front());
    }
    int tries = 0;
    for (std::uint32_t slot = recent_; slot != kEnd && tries < kTries; slot = links_[slot].next, ++tries) {
      const std::uint32_t base = slot ^ byte(labels.front());
      if (std::all_of(labels.begin(), labels.end(), [&](char c) { return links_[base ^ byte(c)].free; })) return base;
    }
    recent_ = add_block();
    return recent_;
  }

  std::uint32_t add_block() {
    constexpr std::size_t kBlock = 256;
    const std::size_t begin = nodes_.size();
    if (begin + kBlock > Trie::kNone / 2) {
      throw ggml::Error(ggml::ErrorCode::exceeds_limit,
                        ggml::strf("the texts of the vocabulary have more than %zu different beginnings", begin));
    }
    nodes_.resize(begin + kBlock);
    links_.resize(begin + kBlock);
    for (auto slot = static_cast<std::uint32_t>(begin); slot < nodes_.size(); ++slot) {
      links_[slot].prev = last_;
      (last_ == kEnd ? first_ : links_[last_].next) = slot;
      last_ = slot;
    }
    if (recent_ == kEnd) recent_ = static_cast<std::uint32_t>(begin);
    return static_cast<std::uint32_t>(begin);
  }

  void take(std::uint32_t slot, std::uint32_t parent) {
    Link& link = links_[slot];
    (link.prev == kEnd ? first_ : links_[link.prev].next) = link.next;
    (link.next == kEnd ? last_ : links_[link.next].prev) = link.prev;
    if (recent_ == slot) recent_ = link.next;
    link.free = false;
    nodes_[slot].parent = parent;
  }

  std::vector<Trie::Node>& nodes_;
  std::vector<Link> links_;
  std::uint32_t first_ = kEnd;
  std::uint32_t last_ = kEnd;
  std::uint32_t recent_ = kEnd;  // where the search for several places begins
};

Trie::Trie(std::vector<Entry> entries) : empty_(entries.empty()) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.text < b.text; });
  TrieBuilder builder(nodes_);

  // Breadth first over ranges of the sorted texts that share a prefix: nodes with many children come first, while there
  // is room, and deep texts need no recursion.
  struct Range {
    std::size_t begin, end, depth;
    std::uint32_t node;
  };
  std::vector<Range> queue{{0, entries.size(), 0, kRoot}};
  std::string labels;
  for (std::size_t q = 0; q < queue.size(); ++q) {
    const Range range = queue[q];
    std::size_t i = range.begin;
    if (i < range.end && entries[i].text.size() == range.depth) {
      TANDEM_ASSERT(range.depth > 0, "a trie holds no empty text");
      nodes_[range.node].value = entries[i].value;
    }
    while (i < range.end && entries[i].text.size() == range.depth) ++i;
    labels.clear();
    const std::size_t first_child = queue.size();
    while (i < range.end) {
      const char label = entries[i].text[range.depth];
      std::size_t end = i + 1;
      while (end < range.end && entries[end].text[range.depth] == label) ++end;
      labels += label;
      queue.push_back({i, end, range.depth + 1, kRoot});
      i = end;
    }
    if (labels.empty()) continue;
    builder.place(range.node, labels);
    for (std::size_t k = 0; k < labels.size(); ++k) {
      queue[first_child + k].node = nodes_[range.node].base ^ static_cast<unsigned char>(labels[k]);
    }
  }
  for (unsigned byte = 0; byte < first_.size(); ++byte) {
    first_[byte] = child(kRoot, static_cast<unsigned char>(byte)) != kNone;
  }
}

}  // namespace llama
