#include <utility>

#include "common/grammar/syntax.h"

namespace common::grammar {
namespace {

class LeftRecursion {
 public:
  explicit LeftRecursion(const Syntax& syntax)
      : rules_(syntax.rules), nullable_(rules_.size(), false), first_(rules_.size()) {}

  void check() {
    find_nullable();
    for (std::size_t r = 0; r < rules_.size(); ++r) collect_first(rules_[r].body, first_[r]);
    find_cycle();
  }

 private:
  [[nodiscard]] bool is_nullable(const Item& item) const {
    if (item.min == 0) return true;
    switch (item.kind) {
      case ItemKind::literal:
        return item.text.empty();
      case ItemKind::group:
        return is_nullable(item.body);
      case ItemKind::rule:
        return nullable_[static_cast<std::size_t>(item.rule)];
      case ItemKind::characters:
      case ItemKind::token:
        return false;
    }
    return false;
  }
  [[nodiscard]] bool is_nullable(const Alternatives& body) const {
    for (const Sequence& sequence : body) {
      bool all = true;
      for (const Item& item : sequence) all = all && is_nullable(item);
      if (all) return true;
    }
    return false;
  }

  static void collect_uses(const Alternatives& body, std::vector<std::size_t>& uses) {
    for (const Sequence& sequence : body) {
      for (const Item& item : sequence) {
        if (item.kind == ItemKind::rule) uses.push_back(static_cast<std::size_t>(item.rule));
        if (item.kind == ItemKind::group) collect_uses(item.body, uses);
      }
    }
  }

  /// A rule is looked at again only when one that it uses has turned out nullable.
  void find_nullable() {
    std::vector<std::vector<std::size_t>> users(rules_.size());
    std::vector<std::size_t> work;
    for (std::size_t r = 0; r < rules_.size(); ++r) {
      std::vector<std::size_t> uses;
      collect_uses(rules_[r].body, uses);
      for (const std::size_t used : uses) {
        if (users[used].empty() || users[used].back() != r) users[used].push_back(r);
      }
      work.push_back(r);
    }
    while (!work.empty()) {
      const std::size_t r = work.back();
      work.pop_back();
      if (nullable_[r] || !is_nullable(rules_[r].body)) continue;
      nullable_[r] = true;
      work.insert(work.end(), users[r].begin(), users[r].end());
    }
  }

  /// Rules with which a text of `body` may begin.
  void collect_first(const Alternatives& body, std::vector<const Item*>& first) const {
    for (const Sequence& sequence : body) {
      for (const Item& item : sequence) {
        if (item.max == 0) continue;
        if (item.kind == ItemKind::rule) first.push_back(&item);
        if (item.kind == ItemKind::group) collect_first(item.body, first);
        if (!is_nullable(item)) break;
      }
    }
  }

  /// Depth first without recursion: a chain of rules may be as long as the text allows.
  void find_cycle() const {
    enum class Mark : std::uint8_t { fresh, open, done };
    std::vector<Mark> marks(rules_.size(), Mark::fresh);
    std::vector<std::pair<std::size_t, std::size_t>> path;  // rule, next of its first_
    for (std::size_t start = 0; start < rules_.size(); ++start) {
      if (marks[start] != Mark::fresh) continue;
      path.emplace_back(start, 0);
      marks[start] = Mark::open;
      while (!path.empty()) {
        const std::size_t rule = path.back().first;
        if (path.back().second == first_[rule].size()) {
          marks[rule] = Mark::done;
          path.pop_back();
          continue;
        }
        const Item& item = *first_[rule][path.back().second++];
        const auto next = static_cast<std::size_t>(item.rule);
        if (marks[next] == Mark::open) {
          syntax_error(item.at, "left recursion: the rule '" + rules_[next].name +
                                    "' comes back to itself here before it has matched any text");
        }
        if (marks[next] == Mark::fresh) {
          marks[next] = Mark::open;
          path.emplace_back(next, 0);
        }
      }
    }
  }

  const std::vector<Rule>& rules_;
  std::vector<bool> nullable_;
  std::vector<std::vector<const Item*>> first_;
};

}  // namespace

void check_left_recursion(const Syntax& syntax) {
  LeftRecursion(syntax).check();
}

}  // namespace common::grammar
