#include "common/grammar/grammar_builder.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/grammar/schema_rules.h"
#include "common/grammar/syntax.h"
#include "ggml/error.h"
#include "ggml/log.h"
#include "llama/utf8.h"

namespace common::grammar {

using ggml::Error;
using ggml::ErrorCode;
using ggml::strf;

namespace {

constexpr std::size_t kMaxNameBytes = 64;

std::string clean_name(std::string_view name) {
  std::string clean;
  for (const char c : name) {
    if (is_name_char(c)) {
      clean += c;
    } else if (clean.empty() || clean.back() != '-') {
      clean += '-';
    }
    if (clean.size() == kMaxNameBytes) break;
  }
  return clean.empty() ? "rule" : clean;
}

/// Whether a repetition behind the expression takes hold of all of it: a name, or one literal or class.
bool is_atom(const std::string& e) {
  if (e.empty()) return false;
  if (e.front() == '"' || e.front() == '[') {
    const char close = e.front() == '"' ? '"' : ']';
    for (std::size_t i = 1; i < e.size(); ++i) {
      if (e[i] == '\\') {
        ++i;
      } else if (e[i] == close) {
        return i + 1 == e.size();
      }
    }
    return false;
  }
  return std::all_of(e.begin(), e.end(), is_name_char);
}

/// The code points of valid UTF-8.
std::vector<std::uint32_t> code_points(std::string_view text) {
  std::vector<std::uint32_t> codes;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    std::uint32_t code = more == 0 ? lead : lead & (0x3Fu >> more);
    ++i;
    for (int k = 0; k < more; ++k) code = code << 6 | (static_cast<unsigned char>(text[i++]) & 0x3F);
    codes.push_back(code);
  }
  return codes;
}

/// The stops as an Aho-Corasick automaton over code points.
class StopAutomaton {
 public:
  explicit StopAutomaton(std::span<const std::string> stops) {
    nodes_.emplace_back();
    for (const std::string& stop : stops) {
      std::size_t at = 0;
      for (const std::uint32_t code : code_points(stop)) {
        alphabet_.insert(code);
        const auto [it, is_new] = nodes_[at].next.try_emplace(code, nodes_.size());
        at = it->second;
        if (is_new) nodes_.emplace_back();
      }
      nodes_[at].is_stop = true;
    }
    link();
  }

  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  [[nodiscard]] bool is_stop(std::size_t node) const { return nodes_[node].is_stop; }
  [[nodiscard]] const std::set<std::uint32_t>& alphabet() const { return alphabet_; }
  [[nodiscard]] std::size_t step(std::size_t node, std::uint32_t code) const {
    while (true) {
      const auto it = nodes_[node].next.find(code);
      if (it != nodes_[node].next.end()) return it->second;
      if (node == 0) return 0;
      node = nodes_[node].fallback;
    }
  }

 private:
  struct Node {
    std::map<std::uint32_t, std::size_t> next;
    std::size_t fallback = 0;
    bool is_stop = false;
  };
  void link() {
    std::vector<std::size_t> order{0};
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t node = order[i];
      for (const auto& [code, child] : nodes_[node].next) {
        nodes_[child].fallback = node == 0 ? 0 : step(nodes_[node].fallback, code);
        nodes_[child].is_stop = nodes_[child].is_stop || nodes_[nodes_[child].fallback].is_stop;
        order.push_back(child);
      }
    }
  }
  std::vector<Node> nodes_;
  std::set<std::uint32_t> alphabet_;
};

std::string class_of(std::span<const std::uint32_t> codes, bool negated) {
  std::vector<CodeRange> ranges;
  ranges.reserve(codes.size());
  for (const std::uint32_t code : codes) ranges.push_back({code, code});
  return class_text(ranges, negated);
}

}  // namespace

std::string class_text(const std::vector<CodeRange>& ranges, bool negated) {
  std::string out = negated ? "[^" : "[";
  const auto add = [&](std::uint32_t code) {
    if (code < 0x20 || code == 0x7F) {
      out += strf("\\x%02X", code);
    } else if (code == '\\' || code == ']' || code == '[' || code == '"') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '-' || code == '^') {
      out += strf("\\x%02X", code);
    } else if (code > 0x7E && (code < 0xA1 || code > 0xFFFF)) {
      out += strf("\\U%08X", code);
    } else {
      append_utf8(out, code);
    }
  };
  for (const CodeRange& range : ranges) {
    add(range.lo);
    if (range.hi == range.lo) continue;
    if (range.hi > range.lo + 1) out += '-';
    add(range.hi);
  }
  return out + "]";
}

std::string GrammarBuilder::literal(std::string_view text) {
  if (!llama::is_valid_utf8(text)) throw Error(ErrorCode::invalid_argument, "grammar: a literal is not valid UTF-8");
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += strf("\\x%02X", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string GrammarBuilder::sequence(std::span<const std::string> items) {
  std::string out;
  for (const std::string& item : items) {
    if (item.empty()) continue;
    if (!out.empty()) out += ' ';
    out += item;
  }
  return out;
}

std::string GrammarBuilder::sequence(std::initializer_list<std::string> items) {
  return sequence(std::span<const std::string>(items.begin(), items.size()));
}

std::string GrammarBuilder::any_of(std::span<const std::string> alternatives) {
  if (alternatives.empty()) throw Error(ErrorCode::internal, "grammar: a choice between no alternatives");
  if (alternatives.size() == 1) return alternatives.front();
  std::string out = "(";
  for (const std::string& alternative : alternatives) {
    if (out.size() > 1) out += " | ";
    out += alternative.empty() ? "\"\"" : alternative;
  }
  return out + ")";
}

std::string GrammarBuilder::any_of(std::initializer_list<std::string> alternatives) {
  return any_of(std::span<const std::string>(alternatives.begin(), alternatives.size()));
}

std::string GrammarBuilder::repeat(const std::string& item, int min, int max) {
  if (item.empty() || max == 0) return {};
  const std::string inner = is_atom(item) ? item : "(" + item + ")";
  if (min == 1 && max == 1) return item;
  if (min == 0 && max == 1) return inner + "?";
  if (min == 0 && max == kUnlimited) return inner + "*";
  if (min == 1 && max == kUnlimited) return inner + "+";
  if (max == kUnlimited) return strf("%s{%d,}", inner.c_str(), min);
  if (min == max) return strf("%s{%d}", inner.c_str(), min);
  return strf("%s{%d,%d}", inner.c_str(), min, max);
}

std::string GrammarBuilder::token(int id) {
  return strf("<[%d]>", id);
}

std::string GrammarBuilder::unused_name(const std::string& wanted) {
  const auto is_free = [&](const std::string& name) {
    return name != "root" && name.substr(0, 5) != "json-" && rules_.find(name) == rules_.end();
  };
  if (is_free(wanted)) return wanted;
  if (wanted.substr(0, 5) == "json-") return unused_name("x-" + wanted);
  int& number = next_number_[wanted];
  std::string name;
  do {
    name = strf("%s-%d", wanted.c_str(), ++number);
  } while (!is_free(name));
  return name;
}

std::string GrammarBuilder::rule(std::string_view name, std::string_view body) {
  std::string wanted = clean_name(name);
  const auto known = rules_.find(wanted);
  if (known != rules_.end() && known->second == body && wanted != "root" && wanted.substr(0, 5) != "json-")
    return wanted;
  std::string used = unused_name(wanted);
  spend(used.size() + body.size());
  rules_[used] = body;
  return used;
}

void GrammarBuilder::spend(std::size_t bytes) {
  n_bytes_ += bytes;
  if (n_bytes_ > kMaxGrammarBytes)
    throw Error(ErrorCode::exceeds_limit, strf("grammar: its rules are longer than %zu bytes", kMaxGrammarBytes));
}

std::string GrammarBuilder::declare(std::string_view name) {
  std::string used = unused_name(clean_name(name));
  spend(used.size());
  rules_[used] = "";
  return used;
}

void GrammarBuilder::define(const std::string& declared, std::string_view body) {
  const auto it = rules_.find(declared);
  if (it == rules_.end()) throw Error(ErrorCode::internal, "grammar: the rule " + declared + " was not declared");
  spend(body.size());
  it->second = body;
}

void GrammarBuilder::set_root(std::string_view body) {
  rules_["root"] = body;
}

std::string GrammarBuilder::text() const {
  std::string out;
  const auto add = [&](const std::string& name, const std::string& body) { out += name + " ::= " + body + "\n"; };
  const auto root = rules_.find("root");
  if (root != rules_.end()) add(root->first, root->second);
  for (const auto& [name, body] : rules_) {
    if (name != "root") add(name, body);
  }
  return out;
}

std::string GrammarBuilder::text_until(std::string_view name, std::span<const std::string> stops) {
  if (stops.empty()) throw Error(ErrorCode::invalid_argument, "grammar: text needs something at which it stops");
  for (const std::string& stop : stops) {
    if (stop.empty() || !llama::is_valid_utf8(stop))
      throw Error(ErrorCode::invalid_argument, "grammar: text cannot stop at an empty string or at invalid UTF-8");
  }
  const StopAutomaton automaton(stops);
  std::vector<std::string> names(automaton.size());
  for (std::size_t node = 0; node < names.size(); ++node) {
    if (!automaton.is_stop(node)) names[node] = declare(name);
  }
  const std::vector<std::uint32_t> alphabet(automaton.alphabet().begin(), automaton.alphabet().end());
  for (std::size_t node = 0; node < names.size(); ++node) {
    if (automaton.is_stop(node)) continue;
    std::vector<std::uint32_t> special;  // characters that do not lead back to the beginning
    std::map<std::size_t, std::vector<std::uint32_t>> by_target;
    for (const std::uint32_t code : alphabet) {
      const std::size_t target = automaton.step(node, code);
      if (target == 0) continue;
      special.push_back(code);
      if (!automaton.is_stop(target)) by_target[target].push_back(code);
    }
    std::string body = "| " + class_of(special, true) + " " + names[0];
    for (const auto& [target, codes] : by_target) body += " | " + class_of(codes, false) + " " + names[target];
    define(names[node], body);
  }
  return names[0];
}

std::string GrammarBuilder::schema(std::string_view name, const nlohmann::ordered_json& schema,
                                   const Notation* notation) {
  return SchemaRules(*this, schema, clean_name(name), notation).root();
}

std::string GrammarBuilder::schema_part(std::string_view name, const nlohmann::ordered_json& document,
                                        const std::string& pointer, const Notation* notation) {
  return SchemaRules(*this, document, clean_name(name), notation).part(pointer);
}

std::string GrammarBuilder::json_space() {
  return json_rule("json-space", R"(| " " | "\n"{1,2} [ \t]{0,20})");
}

std::string GrammarBuilder::json_rule(const std::string& name, std::string_view body) {
  rules_[name] = body;
  return name;
}

std::string GrammarBuilder::json_string() {
  return JsonRules(*this).string();
}

std::string GrammarBuilder::json_value() {
  return JsonRules(*this).value();
}

std::string GrammarBuilder::json_object() {
  return JsonRules(*this).object();
}

std::string schema_to_gbnf(const nlohmann::ordered_json& schema) {
  GrammarBuilder builder;
  builder.set_root(builder.schema("schema", schema));
  return builder.text();
}

}  // namespace common::grammar
