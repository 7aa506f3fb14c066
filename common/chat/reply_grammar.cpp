#include "common/chat/reply_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/chat/syntax/grammar_writer.h"
#include "common/grammar/grammar.h"
#include "ggml/error.h"

namespace common::chat {

namespace {
using Builder = grammar::GrammarBuilder;
using syntax::Ahead;
using syntax::GrammarWriter;
using syntax::Lookahead;

const ToolSet kNone;

/// Reasoning in front of the answer: one block where it stands at the start, any number where it may stand anywhere.
std::string reasoning(const ReplyFormat& format, GrammarWriter& writer) {
  std::vector<std::string> parts;
  for (const ReplyPart& part : format.parts) {
    if (part.kind != ReplyPart::Kind::reasoning) continue;
    const std::optional<std::string> one = part.syntax->grammar(writer);
    if (!one) continue;
    const std::string block = writer.builder().rule("reasoning", Builder::sequence({*one, writer.space()}));
    parts.push_back(part.at_start_only ? Builder::optional(block) : Builder::repeat(block, 0));
  }
  return parts.empty() ? Builder::literal("") : Builder::sequence(parts);
}

std::string calls(const ReplyFormat& format, GrammarWriter& writer) {
  std::vector<std::string> alternatives;
  for (const ReplyPart& part : format.parts) {
    if (part.kind != ReplyPart::Kind::call) continue;
    if (std::optional<std::string> one = part.syntax->grammar(writer)) alternatives.push_back(std::move(*one));
  }
  return writer.builder().rule("calls", Builder::any_of(alternatives));
}

void check_names(const ReplyFormat& format, const ToolSet& tools) {
  for (const std::string& reserved : format.reserved_names) {
    const Tool* tool = tools.find(reserved);
    if (tool == nullptr) continue;
    throw ggml::Error(ggml::ErrorCode::invalid_argument,
                      "Field 'tools[" + std::to_string(tool->index()) + "].function.name': \"" + reserved +
                          "\" is the answer itself in this model's format of calls (" + format.name +
                          "); give the tool another name");
  }
}

std::string part_of(const syntax::ElementPtr& element, GrammarWriter& writer) {
  return element ? element->grammar(writer).value_or(Builder::literal("")) : Builder::literal("");
}

/// `answer` between what the format has around answers.
std::string framed(const ReplyFormat& format, bool thinking, const std::string& answer, GrammarWriter& writer) {
  return Builder::sequence({thinking ? reasoning(format, writer) : Builder::literal(""),
                            part_of(format.answer_open, writer), answer, part_of(format.answer_close, writer)});
}
}  // namespace

std::optional<ReplyGrammar> reply_grammar(const ReplyFormat& format, const ReplyDemand& demand) {
  const bool any_tools = demand.tools != nullptr && !demand.tools->empty() && demand.choice != ToolChoice::none;
  if (any_tools) check_names(format, *demand.tools);
  Builder builder;
  GrammarWriter writer(builder, demand.tools != nullptr ? *demand.tools : kNone, demand.parallel);
  ReplyGrammar out;
  if (demand.schema != nullptr) {
    const std::string answer = builder.schema("answer", *demand.schema);
    builder.set_root(framed(format, demand.thinking, answer, writer));
  } else if (!any_tools) {
    return std::nullopt;
  } else if (demand.choice == ToolChoice::required) {
    if (!format.has_calls())
      throw ggml::Error(
          ggml::ErrorCode::invalid_argument,
          "Field 'tool_choice': the chat template of this model has no format for calls (" + format.name + ")",
          "leave tool_choice out, or give the server a template with tools");
    builder.set_root(
        Builder::sequence({demand.thinking ? reasoning(format, writer) : Builder::literal(""), calls(format, writer)}));
  } else {
    if (!format.has_calls()) return std::nullopt;
    // Made for formats that cannot start it, too: a schema that is wrong is the client's error with any model.
    builder.set_root(calls(format, writer));
    out.lazy = true;
  }
  out.gbnf = builder.text();
  if (out.lazy && !format.lazy_grammar) return std::nullopt;
  return out;
}

std::optional<std::string> answer_frame(const ReplyFormat& format, bool thinking) {
  const bool thinks = thinking && std::any_of(format.parts.begin(), format.parts.end(), [](const ReplyPart& part) {
                        return part.kind == ReplyPart::Kind::reasoning;
                      });
  if (!thinks && !format.answer_open && !format.answer_close) return std::nullopt;
  Builder builder;
  GrammarWriter writer(builder, kNone, false);
  builder.set_root(framed(format, thinks, builder.rule(grammar::Grammar::kFramed, Builder::literal("")), writer));
  return builder.text();
}

std::string opening_in_grammar(const ReplyFormat& format, const ReplyOpening& opening) {
  const std::string_view text = opening.text;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const ReplyPart& part : format.parts) {
      if (part.kind == ReplyPart::Kind::mark || (part.kind == ReplyPart::Kind::call && part.at_start_only)) continue;
      Lookahead at{text.substr(i), false};
      if (part.syntax->look(at) != Ahead::no) return std::string(text.substr(i));
    }
  }
  return {};
}

}  // namespace common::chat
