#include "partition.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace llama {

struct SpecialPartition::Hit {
  std::size_t length = 0;
  Token token = kNoToken;
  std::size_t position = 0;
  // The order in which hits claim their bytes, as if each token in turn were searched through the whole text.
  [[nodiscard]] bool before(const Hit& other) const {
    return std::tie(other.length, token, position) < std::tie(length, other.token, other.position);
  }
};

namespace {

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

Trie trie_of(const VocabData& data, bool control_too) {
  std::vector<Trie::Entry> entries;
  for (Token t = 0; t < data.n_tokens(); ++t) {
    const TokenType type = data.type(t);
    const bool control = type == TokenType::control || type == TokenType::unknown;
    if (type == TokenType::user_defined || (control_too && control)) entries.push_back({data.text(t), t});
  }
  for (const std::string& alias : data.aliases) entries.push_back({alias, data.index.find(alias)});
  return Trie(std::move(entries));
}

// Which bytes are spoken for, and the hits that got theirs.
class Claims {
 public:
  Claims(const VocabData& data, std::string_view text) : data_(data), text_(text), taken_(text.size(), false) {}

  [[nodiscard]] bool taken(std::size_t i) const { return taken_[i]; }

  // Takes the bytes for a token; white space that the token strips vanishes with it.
  void take(std::size_t begin, std::size_t length, Token token) {
    std::size_t end = begin + length;
    std::size_t from = begin;
    const Strip strip = data_.strips.empty() ? Strip{} : data_.strips[static_cast<std::size_t>(token)];
    while (strip.left && from > 0 && !taken_[from - 1] && is_space(text_[from - 1])) --from;
    while (strip.right && end < text_.size() && !taken_[end] && is_space(text_[end])) ++end;
    std::fill(taken_.begin() + static_cast<std::ptrdiff_t>(from), taken_.begin() + static_cast<std::ptrdiff_t>(end),
              true);
    spans_.push_back({from, end, token});
  }

  [[nodiscard]] std::vector<Fragment> fragments() {
    std::sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    std::vector<Fragment> out;
    std::size_t done = 0;
    for (const Span& span : spans_) {
      if (span.begin > done) out.push_back({text_.substr(done, span.begin - done), kNoToken});
      out.push_back({{}, span.token});
      done = span.end;
    }
    if (done < text_.size()) out.push_back({text_.substr(done), kNoToken});
    return out;
  }

 private:
  struct Span {
    std::size_t begin, end;
    Token token;
  };
  const VocabData& data_;
  std::string_view text_;
  std::vector<bool> taken_;
  std::vector<Span> spans_;
};

}  // namespace

SpecialPartition::SpecialPartition(const VocabData& data)
    : data_(data), all_(trie_of(data, true)), user_defined_(trie_of(data, false)) {}

// The longest hit at every position; shorter ones there are looked up only when the longest turns out to be blocked.
std::vector<SpecialPartition::Hit> SpecialPartition::find(const Trie& trie, std::string_view text) const {
  std::vector<Hit> hits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!trie.starts_with(static_cast<unsigned char>(text[i]))) continue;
    const Trie::Match match = trie.longest(text.substr(i));
    if (match.length > 0) hits.push_back({match.length, match.value, i});
  }
  return hits;
}

std::vector<Fragment> SpecialPartition::split(std::string_view text, bool parse_special) const {
  if (text.empty()) return {};
  const Trie& trie = parse_special ? all_ : user_defined_;
  std::vector<Hit> hits;
  if (!trie.empty()) hits = find(trie, text);
  if (hits.empty()) return {{text, kNoToken}};

  std::sort(hits.begin(), hits.end(), [](const Hit& a, const Hit& b) { return a.before(b); });
  const auto later = [](const Hit& a, const Hit& b) { return b.before(a); };
  std::priority_queue<Hit, std::vector<Hit>, decltype(later)> retries(later);  // shorter hits in place of blocked ones
  Claims claims(data_, text);
  for (std::size_t next = 0; next < hits.size() || !retries.empty();) {
    const bool retry = !retries.empty() && (next == hits.size() || retries.top().before(hits[next]));
    const Hit hit = retry ? retries.top() : hits[next];
    if (retry) {
      retries.pop();
    } else {
      ++next;
    }
    if (claims.taken(hit.position)) continue;
    // What was claimed so far is at least as long as this hit, so it covers one of the hit's ends if it overlaps.
    if (claims.taken(hit.position + hit.length - 1)) {
      const Trie::Match shorter = trie.longest(text.substr(hit.position, hit.length - 1));
      if (shorter.length > 0) retries.push({shorter.length, shorter.value, hit.position});
      continue;
    }
    claims.take(hit.position, hit.length, hit.token);
  }
  return claims.fragments();
}

}  // namespace llama
