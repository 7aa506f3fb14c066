#include "grammar_test_support.h"

#include <algorithm>

#include "common/grammar/matcher.h"
#include "ggml/error.h"
#include "test_vocab.h"

namespace common::grammar::testing {

llama::Vocab vocab_of(const std::vector<std::string>& pieces) {
  return llama::Vocab::load(llama::testing::spm_metadata(pieces), "test");
}

namespace {

const std::shared_ptr<const GrammarVocab>& tiny_vocab() {
  static const llama::Vocab vocab = vocab_of({"a"});
  static const auto shared = std::make_shared<const GrammarVocab>(vocab);
  return shared;
}

}  // namespace

bool accepts(const Grammar& grammar, std::string_view text) {
  MaskEngine engine(grammar.automaton(), tiny_vocab()->trie());
  Matcher matcher(engine);
  return matcher.accept_text(text) && matcher.may_end();
}

bool accepts(const std::string& gbnf, std::string_view text) {
  return accepts(*Grammar::parse(gbnf), text);
}

std::string error_of(const std::string& gbnf, const llama::Vocab* vocab) {
  try {
    (void)Grammar::parse(gbnf, vocab);
  } catch (const ggml::Error& error) {
    return error.message();
  }
  return {};
}

Reference::Reference(const Syntax& syntax) {
  rules_.resize(syntax.rules.size());
  root_ = static_cast<std::size_t>(syntax.root);
  for (std::size_t r = 0; r < syntax.rules.size(); ++r) {
    Body body;
    for (const Sequence& sequence : syntax.rules[r].body) {
      std::vector<Element> elements;
      for (const Item& item : sequence) add_item(elements, item);
      body.push_back(std::move(elements));
    }
    rules_[r] = std::move(body);
  }
}

std::size_t Reference::add_rule(const Alternatives& alternatives) {
  const std::size_t index = rules_.size();
  rules_.emplace_back();
  Body body;
  for (const Sequence& sequence : alternatives) {
    std::vector<Element> elements;
    for (const Item& item : sequence) add_item(elements, item);
    body.push_back(std::move(elements));
  }
  rules_[index] = std::move(body);
  return index;
}

Reference::Element Reference::element(const Item& item) {
  Element e;
  if (item.kind == ItemKind::characters) {
    e.ranges = item.ranges;
    return e;
  }
  e.is_rule = true;
  if (item.kind == ItemKind::rule) {
    e.rule = static_cast<std::size_t>(item.rule);
  } else if (item.kind == ItemKind::group) {
    e.rule = add_rule(item.body);
  } else {
    // A literal as a rule of single characters.
    std::vector<Element> elements;
    for (std::size_t i = 0; i < item.text.size();) {
      const auto lead = static_cast<unsigned char>(item.text[i]);
      const std::size_t n = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
      std::uint32_t code = n == 1 ? lead : lead & (0x7Fu >> n);
      for (std::size_t k = 1; k < n; ++k) code = code << 6 | (static_cast<unsigned char>(item.text[i + k]) & 0x3F);
      Element character;
      character.ranges = {{code, code}};
      elements.push_back(character);
      i += n;
    }
    e.rule = rules_.size();
    rules_.push_back({std::move(elements)});
  }
  return e;
}

void Reference::add_item(std::vector<Element>& out, const Item& item) {
  if (item.max == 0) return;
  const Element once = element(item);
  for (int i = 0; i < item.min; ++i) out.push_back(once);
  if (item.max == kNoLimit) {
    Element more;  // S' ::= S S' |
    more.is_rule = true;
    more.rule = rules_.size();
    rules_.push_back({{once, more}, {}});
    out.push_back(more);
    return;
  }
  std::optional<Element> inner;  // (S (S ...)?)?
  for (int i = item.min; i < item.max; ++i) {
    Element optional;
    optional.is_rule = true;
    optional.rule = rules_.size();
    std::vector<Element> body{once};
    if (inner.has_value()) body.push_back(*inner);
    rules_.push_back({std::move(body), {}});
    inner = optional;
  }
  if (inner.has_value()) out.push_back(*inner);
}

void Reference::expand(Stack stack, std::set<Stack>& seen, std::set<Stack>& out) const {
  // Frames at their end are left.
  while (!stack.empty() && stack.back().index == rules_[stack.back().rule][stack.back().alternative].size()) {
    stack.pop_back();
  }
  if (!seen.insert(stack).second) return;
  if (seen.size() > kMaxStacks) throw TooAmbiguous();
  if (stack.empty() || !at(stack.back()).is_rule) {
    out.insert(std::move(stack));
    return;
  }
  const std::size_t rule = at(stack.back()).rule;
  ++stack.back().index;
  // A frame with nothing left to do need not be kept.
  if (stack.back().index == rules_[stack.back().rule][stack.back().alternative].size()) stack.pop_back();
  for (std::size_t a = 0; a < rules_[rule].size(); ++a) {
    Stack next = stack;
    next.push_back({rule, a, 0});
    expand(std::move(next), seen, out);
  }
}

Reference::State Reference::start() const {
  State state;
  std::set<Stack> seen;
  for (std::size_t a = 0; a < rules_[root_].size(); ++a) expand({{root_, a, 0}}, seen, state.stacks);
  return state;
}

bool Reference::may_end(const State& state) {
  return state.pending.empty() && state.stacks.count({}) != 0;
}

namespace {

/// The code points that a beginning of a UTF-8 character may become; lo > hi: none.
CodeRange completions(const std::string& bytes, std::size_t& length) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (length == 0) return {1, 0};
  std::uint32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if ((byte & 0xC0) != 0x80) return {1, 0};
    code = code << 6 | (byte & 0x3F);
  }
  const auto shift = static_cast<unsigned>(6 * (length - bytes.size()));
  constexpr std::uint32_t kFirst[] = {0, 0, 0x80, 0x800, 0x10000};
  return {std::max(code << shift, kFirst[length]), std::min((code << shift) | ((1u << shift) - 1), 0x10FFFFu)};
}

}  // namespace

std::optional<Reference::State> Reference::after(const State& state, std::string_view bytes) const {
  State now = state;
  for (const char byte : bytes) {
    now.pending += byte;
    std::size_t length = 0;
    const CodeRange possible = completions(now.pending, length);
    if (possible.lo > possible.hi) return std::nullopt;
    const bool whole = now.pending.size() == length;
    std::set<Stack> next;
    std::set<Stack> seen;
    bool any = false;
    for (const Stack& stack : now.stacks) {
      if (stack.empty()) continue;
      const std::vector<CodeRange>& ranges = at(stack.back()).ranges;
      const bool fits = std::any_of(ranges.begin(), ranges.end(),
                                    [&](const CodeRange& r) { return r.lo <= possible.hi && possible.lo <= r.hi; });
      if (!fits) continue;
      any = true;
      if (!whole) continue;
      Stack moved = stack;
      ++moved.back().index;
      expand(std::move(moved), seen, next);
    }
    if (!any) return std::nullopt;
    if (whole) {
      now.stacks = std::move(next);
      now.pending.clear();
    }
  }
  return now;
}

namespace {

class GrammarWriter {
 public:
  explicit GrammarWriter(std::mt19937& random) : random_(random) {}

  std::string run() {
    n_rules_ = 1 + pick(4);
    std::string out;
    for (int r = 0; r < n_rules_; ++r) out += name(r) + " ::= " + alternatives(0) + "\n";
    return out;
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  static std::string name(int rule) { return rule == 0 ? "root" : "r" + std::to_string(rule); }

  std::string alternatives(int depth) {
    std::string out = sequence(depth);
    for (int n = pick(3); n > 0; --n) out += " | " + sequence(depth);
    return out;
  }
  std::string sequence(int depth) {
    std::string out;
    for (int n = pick(8) == 0 ? 0 : 1 + pick(3); n > 0; --n) out += (out.empty() ? "" : " ") + item(depth);
    return out;
  }
  std::string item(int depth) {
    static const char* const kAtoms[] = {"\"a\"", "\"b\"",   "\"ab\"", "\"é\"", "\"{\"",          "\"ba\"", "[ab]",
                                         "[^a]",  "[a-c{}]", ".",      "[é-ü]", "[^\\x00-\\x7F]", "\"🚀b\"", "\"\""};
    static const char* const kRepeats[] = {"", "", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "{0,3}", "{0}"};
    std::string out;
    const int kind = pick(10);
    if (kind < 3) {
      out = name(pick(n_rules_));
    } else if (kind == 3 && depth < 3) {
      out = "(" + alternatives(depth + 1) + ")";
    } else {
      out = kAtoms[pick(static_cast<int>(std::size(kAtoms)))];
    }
    return out + kRepeats[pick(static_cast<int>(std::size(kRepeats)))];
  }

  std::mt19937& random_;
  int n_rules_ = 1;
};

}  // namespace

std::string random_grammar(std::mt19937& random) {
  return GrammarWriter(random).run();
}

}  // namespace common::grammar::testing
