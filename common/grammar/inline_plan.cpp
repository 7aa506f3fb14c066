#include <algorithm>

#include "common/grammar/automaton.h"

namespace common::grammar {
namespace {

// A copy saves a stack frame; a shared rule saves states, and masks that are expensive to compute when it loops over
// many characters (the text of a string). So loops are shared, and everything else that is small is copied.
constexpr std::int64_t kSmallRuleNodes = 40;
constexpr std::int64_t kSingleUseNodes = 20'000;
constexpr int kMaxDepth = 300;  // bounds the recursion over nested copies
constexpr std::int64_t kManyNodes = std::int64_t{1} << 40;

void collect_rules(const Alternatives& body, std::int64_t times,
                   std::vector<std::pair<std::size_t, std::int64_t>>& out) {
  for (const Sequence& sequence : body) {
    for (const Item& item : sequence) {
      const std::int64_t copies =
          std::min(kManyNodes, times * std::max(1, item.max == kNoLimit ? item.min + 1 : item.max));
      if (item.kind == ItemKind::rule) out.emplace_back(static_cast<std::size_t>(item.rule), copies);
      if (item.kind == ItemKind::group) collect_rules(item.body, copies, out);
    }
  }
}

}  // namespace

InlinePlan::InlinePlan(const Syntax& syntax) {
  find_order(syntax);
  std::vector<std::size_t> sorted(syntax.rules.size());
  for (std::size_t r = 0; r < sorted.size(); ++r) sorted[order_[r]] = r;
  for (const std::size_t r : sorted) {
    Cost& cost = costs_[r];
    const Cost body = cost_of(r, syntax.rules[r].body);
    cost.nodes = body.nodes;
    cost.depth = body.depth;
    cost.has_loop = body.has_loop;
    const bool small = cost.nodes <= kSmallRuleNodes && !cost.has_loop;
    const bool single = cost.uses == 1 && cost.nodes <= kSingleUseNodes;
    cost.may_inline = (small || single) && cost.depth < kMaxDepth && static_cast<int>(r) != syntax.root;
  }
}

void InlinePlan::find_order(const Syntax& syntax) {
  const std::size_t n = syntax.rules.size();
  order_.assign(n, 0);
  costs_.assign(n, {});
  std::vector<std::vector<std::size_t>> uses(n);
  for (std::size_t r = 0; r < n; ++r) {
    std::vector<std::pair<std::size_t, std::int64_t>> list;
    collect_rules(syntax.rules[r].body, 1, list);
    for (const auto& [used, times] : list) {
      uses[r].push_back(used);
      costs_[used].uses = std::min(kManyNodes, costs_[used].uses + times);
    }
  }
  std::vector<bool> seen(n, false);
  std::vector<std::pair<std::size_t, std::size_t>> path;
  std::uint32_t next_place = 0;
  const auto visit = [&](std::size_t start) {
    if (seen[start]) return;
    seen[start] = true;
    path.emplace_back(start, 0);
    while (!path.empty()) {
      const std::size_t rule = path.back().first;
      if (path.back().second == uses[rule].size()) {
        order_[rule] = next_place++;
        path.pop_back();
        continue;
      }
      const std::size_t used = uses[rule][path.back().second++];
      if (seen[used]) continue;
      seen[used] = true;
      path.emplace_back(used, 0);
    }
  };
  visit(static_cast<std::size_t>(syntax.root));
  for (std::size_t r = 0; r < n; ++r) visit(r);
}

InlinePlan::Cost InlinePlan::cost_of(std::size_t user, const Alternatives& body) const {
  Cost total;
  for (const Sequence& sequence : body) {
    for (const Item& item : sequence) {
      const Cost one = cost_of(user, item);
      total.nodes = std::min(kManyNodes, total.nodes + one.nodes);
      total.depth = std::max(total.depth, one.depth);
      total.has_loop = total.has_loop || one.has_loop;
    }
  }
  ++total.depth;
  return total;
}

InlinePlan::Cost InlinePlan::cost_of(std::size_t user, const Item& item) const {
  Cost one;
  switch (item.kind) {
    case ItemKind::literal:
      one.nodes = static_cast<std::int64_t>(item.text.size());
      break;
    case ItemKind::characters:
      one.nodes = item.ranges.empty() || item.ranges.back().hi < 0x80 ? 1 : 8;
      break;
    case ItemKind::group:
      one = cost_of(user, item.body);
      break;
    case ItemKind::rule: {
      const auto rule = static_cast<std::size_t>(item.rule);
      if (inlines(user, rule)) one = costs_[rule];
      one.nodes = std::max<std::int64_t>(one.nodes, 1);
      break;
    }
    case ItemKind::token:
      one.nodes = 1;
      break;
  }
  const std::int64_t copies = item.max == kNoLimit ? item.min + 1 : item.max;
  one.nodes = std::min(kManyNodes, (one.nodes + 1) * copies);
  one.has_loop = one.has_loop || item.max == kNoLimit;
  one.uses = 0;
  one.may_inline = false;
  return one;
}

}  // namespace common::grammar
