// Filters whose subject is text.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/chat/jinja/attributes.h"
#include "common/chat/jinja/filters.h"
#include "common/chat/jinja/format.h"
#include "common/chat/jinja/params.h"
#include "common/chat/jinja/repr.h"
#include "common/chat/jinja/text.h"
#include "common/markup.h"

namespace common::jinja {

namespace {
using std::string_view;

template <std::string (*f)(string_view)>
Value map_text(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "filter", args, {});
  return rt.text(f(to_str(rt, v)));
}

// As title_case, but words begin after white space, hyphens and opening brackets only, as the filter defines them.
std::string title_words(string_view s) {
  std::string out, word;
  const auto flush = [&] {
    out += capitalize(word);
    word.clear();
  };
  for (std::size_t i = 0; i < s.size();) {
    const char32_t c = next_code_point(s, i);
    append_utf8(word, c);
    if (is_space(c) || (c < 0x80 && string_view("-({[<").find(static_cast<char>(c)) != string_view::npos)) flush();
  }
  flush();
  return out;
}

Value trim(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "trim", args, {"chars"});
  const std::string s = to_str(rt, v);
  const auto chars = p.string(0);
  if (chars) rt.scan(chars->size());
  return rt.text(std::string(chars ? strip(s, Side::both, *chars) : strip(s, Side::both)));
}

Value replace(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "replace", args, {"old", "new", "count"}, 2);
  Args inner;
  inner.positional = {rt.text(p.text(0, "")), rt.text(p.text(1, ""))};
  if (p.has(2) && !p.get(2).is_none()) inner.positional.push_back(p.get(2));
  return find_text_method("replace")(rt, rt.text(to_str(rt, v)), inner);
}

Value indent(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "indent", args, {"width", "first", "blank"});
  const bool first = p.flag(1, false), blank = p.flag(2, false);
  std::string prefix;
  if (const std::string* s = p.get(0).as_text()) {
    prefix = *s;
  } else {
    prefix.assign(static_cast<std::size_t>(std::clamp<Int>(p.integer(0, 4), 0, 4096)), ' ');
  }
  const std::string text = to_str(rt, v);
  std::string out;
  bool at_first = true;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const string_view line = string_view(text).substr(at, end - at);
    if (!at_first) out += '\n';
    // The first line is left alone unless asked for; empty lines too.
    if (at_first ? first : (blank || !line.empty())) out += prefix;
    out += line;
    at_first = false;
    at = end + 1;
    rt.work(line.size() + prefix.size());
    rt.require(out.size());
  }
  return rt.text(std::move(out));
}

Value center(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "center", args, {"width"});
  Args inner;
  inner.positional = {p.get(0, Value::integer(80))};
  return find_text_method("center")(rt, rt.text(to_str(rt, v)), inner);
}

Value wordcount(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "wordcount", args, {});
  const std::string s = to_str(rt, v);
  Int n = 0;
  bool inside = false;
  for (std::size_t i = 0; i < s.size();) {
    const char32_t c = next_code_point(s, i);
    const bool word = is_alpha(c) || is_numeric(c) || c == '_';
    n += word && !inside ? 1 : 0;
    inside = word;
  }
  return n;
}

Value truncate(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "truncate", args, {"length", "killwords", "end", "leeway"});
  const std::string s = to_str(rt, v), end = p.text(2, "...");
  const Int limit = p.integer(0, 255), leeway = p.integer(3, 5);
  const auto end_length = static_cast<Int>(code_points(end));
  if (limit < end_length) rt.fail("truncate: expected length >= " + to_str(end_length) + ", got " + to_str(limit));
  if (leeway < 0) rt.fail("truncate: expected leeway >= 0, got " + to_str(leeway));
  if (static_cast<Int>(code_points(s)) <= limit + leeway) return rt.text(s);
  std::string head = s.substr(0, byte_offset(s, static_cast<std::size_t>(limit - end_length)));
  if (!p.flag(1, false)) head = head.substr(0, head.rfind(' '));
  return rt.text(head + end);
}

// Breaks at white space, and inside words longer than the width.
void wrap_line(Runtime& rt, std::string& out, string_view line, std::size_t width, bool break_long,
               string_view newline) {
  std::size_t column = 0;
  bool first_word = true;
  for (std::size_t i = 0; i < line.size();) {
    std::size_t space_end = i;
    while (space_end < line.size() && line[space_end] == ' ') ++space_end;
    std::size_t word_end = std::min(line.find(' ', space_end), line.size());
    string_view space = line.substr(i, space_end - i), word = line.substr(space_end, word_end - space_end);
    i = word_end;
    if (word.empty()) break;
    std::size_t n = code_points(word);
    if (!first_word && column + space.size() + n > width) {
      rt.append(out, newline);
      column = 0;
      space = {};
    }
    out += space;
    column += space.size();
    while (break_long && column + n > width) {
      const std::size_t room = std::max<std::size_t>(width - std::min(column, width - 1), 1);
      const std::size_t bytes = byte_offset(word, room);
      out += word.substr(0, bytes);
      rt.append(out, newline);
      word.remove_prefix(bytes);
      n -= room;
      column = 0;
      rt.work(word.size());
    }
    out += word;
    column += n;
    first_word = false;
    rt.require(out.size());
  }
}

Value wordwrap(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "wordwrap", args, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  const std::string s = to_str(rt, v), newline = p.text(2, "\n");
  const Int width = p.integer(0, 79);
  if (width <= 0) rt.fail("wordwrap: invalid width " + to_str(width) + " (must be > 0)");
  std::string out;
  bool first = true;
  for (std::size_t at = 0; at < s.size() || first;) {
    const std::size_t end = std::min(s.find('\n', at), s.size());
    if (!first) rt.append(out, newline);
    first = false;
    const auto columns = static_cast<std::size_t>(std::min<Int>(width, Int{1} << 30));
    wrap_line(rt, out, string_view(s).substr(at, end - at), columns, p.flag(1, true), newline);
    at = end + 1;
    if (end == s.size()) break;
  }
  return rt.text(std::move(out));
}

std::string escape_html(string_view s) {
  return escape_markup(s, "&#34;", "&#39;");
}

// Nothing is escaped on output, so text that is marked safe is simply text.
Value safe(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "safe", args, {});
  return v.as_text() ? v : rt.text(to_str(rt, v));
}

std::string strip_tags(string_view s) {
  std::string text;
  for (std::size_t i = 0; i < s.size();) {
    const bool comment = s.substr(i, 4) == "<!--";
    if (s[i] == '<') {
      const std::size_t close = s.find(comment ? string_view("-->") : string_view(">"), i);
      if (close != string_view::npos) {
        i = close + (comment ? 3 : 1);
        continue;
      }
      text += s.substr(i);  // nothing closes: the rest is text
      break;
    }
    text += s[i++];
  }
  // White space collapses to single blanks, entities become characters.
  std::string out;
  bool gap = false;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (is_space(c)) {
      gap = !out.empty();
      continue;
    }
    if (gap) out += ' ';
    gap = false;
    append_utf8(out, c);
  }
  constexpr std::pair<string_view, string_view> kEntities[] = {{"&lt;", "<"},    {"&gt;", ">"},  {"&#34;", "\""},
                                                               {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
  for (const auto& [entity, character] : kEntities) out = replace_all(out, entity, character);
  return out;
}

void append_url(std::string& out, string_view s, string_view also_safe) {
  for (const char c : s) {
    const auto b = static_cast<unsigned char>(c);
    const bool plain = b < 0x80 && (is_alpha(b) || is_digit(b) || string_view("_.-~").find(c) != string_view::npos ||
                                    also_safe.find(c) != string_view::npos);
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += "0123456789ABCDEF"[b >> 4];
      out += "0123456789ABCDEF"[b & 15];
    }
  }
}

Value urlencode(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "urlencode", args, {});
  std::string out;
  if (v.as_text() || (!v.as_dict() && !v.as_sequence())) {
    append_url(out, to_str(rt, v), "/");
    return rt.text(std::move(out));
  }
  std::vector<Value> pairs;
  if (const Dict* d = v.as_dict()) {
    for (const auto& [key, value] : d->entries()) pairs.push_back(rt.tuple({key, value}));
  } else {
    pairs = iterate(rt, v);
  }
  for (const Value& pair : pairs) {
    const std::vector<Value> two = iterate(rt, pair);
    if (two.size() != 2) rt.fail("urlencode: pairs of key and value expected");
    if (!out.empty()) out += '&';
    append_url(out, to_str(rt, two[0]), "");
    out += '=';
    append_url(out, to_str(rt, two[1]), "");
  }
  return rt.text(std::move(out));
}

// Words that are web addresses become links.
Value urlize(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "urlize", args, {"trim_url_limit", "nofollow", "target", "rel", "extra_schemes"});
  const std::string s = to_str(rt, v);
  const Int limit = p.integer(0, -1);
  const std::string rel = p.flag(1, false) ? "nofollow noopener" : "noopener";
  const auto target = p.string(2);
  const std::string target_attribute = target ? " target=\"" + escape_html(*target) + "\"" : "";
  std::string out;
  for (std::size_t i = 0; i < s.size();) {
    const std::size_t end = std::min(s.find_first_of(" \t\r\n", i), s.size());
    if (end == i) {
      out += s[i++];
      continue;
    }
    string_view word = string_view(s).substr(i, end - i);
    i = end;
    string_view tail;
    while (!word.empty() && string_view(".,;:!?)>").find(word.back()) != string_view::npos) {
      tail = string_view(s).substr(end - tail.size() - 1, tail.size() + 1);
      word.remove_suffix(1);
    }
    const bool full = word.substr(0, 7) == "http://" || word.substr(0, 8) == "https://";
    if (!full && word.substr(0, 4) != "www.") {
      out += escape_html(word);
    } else {
      const std::string url = escape_html(word);
      out.append("<a href=\"").append(full ? "" : "https://").append(url);
      out.append("\" rel=\"").append(rel).append("\"");
      rt.append(out, target_attribute);
      std::string shown = url;
      if (limit >= 0 && static_cast<Int>(code_points(url)) > limit)
        shown = url.substr(0, byte_offset(url, static_cast<std::size_t>(limit))) + "...";
      out += ">" + shown + "</a>";
    }
    out += escape_html(tail);
  }
  return rt.text(std::move(out));
}

Value xmlattr(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "xmlattr", args, {"autospace"});
  const Dict* d = v.as_dict();
  if (!d) rt.fail("xmlattr: a mapping is required, not " + std::string(v.type_name()));
  std::string out;
  for (const auto& [key, value] : d->entries()) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!out.empty()) out += ' ';
    out += escape_html(to_str(rt, key)) + "=\"" + escape_html(to_str(rt, value)) + "\"";
  }
  if (!out.empty() && p.flag(0, true)) out.insert(0, 1, ' ');
  return rt.text(std::move(out));
}

Value format(Runtime& rt, const Value& v, Args& args) {
  if (!args.positional.empty() && !args.named.empty())
    rt.fail("can't handle positional and keyword arguments at the same time");
  Value mapping;
  if (!args.named.empty()) {
    Dict* d = rt.dict();
    for (auto& [name, value] : args.named) d->set(rt, rt.text(name), value);
    mapping = d;
  }
  return percent_format(rt, to_str(rt, v), args.positional, mapping);
}

Value filesizeformat(Runtime& rt, const Value& v, Args& args) {
  Params p(rt, "filesizeformat", args, {"binary"});
  const bool binary = p.flag(0, false);
  double bytes = 0;
  Int i = 0;
  if (v.to_int(i)) {
    bytes = static_cast<double>(i);
  } else if (const double* d = v.as_float()) {
    bytes = *d;
  } else {
    rt.fail("filesizeformat: a number is required, not " + std::string(v.type_name()));
  }
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return rt.text("1 Byte");
  char buffer[64];
  if (bytes < base) {
    std::snprintf(buffer, sizeof buffer, "%.0f Bytes", std::trunc(std::max(bytes, -1e30)));
    return rt.text(buffer);
  }
  constexpr const char* kPrefixes = "kMGTPEZY";
  double unit = base;
  int at = 0;
  while (at < 7 && bytes >= unit * base) {
    unit *= base;
    ++at;
  }
  const char prefix = binary && at == 0 ? 'K' : kPrefixes[at];
  std::snprintf(buffer, sizeof buffer, "%.1f %c%s", std::min(bytes / unit, 1e30), prefix, binary ? "iB" : "B");
  return rt.text(buffer);
}
}  // namespace

const FilterTable& text_filters() {
  static const FilterTable table = {
      {"upper", map_text<to_upper>},
      {"lower", map_text<to_lower>},
      {"capitalize", map_text<capitalize>},
      {"title", map_text<title_words>},
      {"trim", trim},
      {"replace", replace},
      {"indent", indent},
      {"center", center},
      {"wordcount", wordcount},
      {"truncate", truncate},
      {"wordwrap", wordwrap},
      {"e", map_text<escape_html>},
      {"escape", map_text<escape_html>},
      {"forceescape", map_text<escape_html>},
      {"safe", safe},
      {"striptags", map_text<strip_tags>},
      {"urlencode", urlencode},
      {"urlize", urlize},
      {"xmlattr", xmlattr},
      {"format", format},
      {"filesizeformat", filesizeformat},
  };
  return table;
}

}  // namespace common::jinja
