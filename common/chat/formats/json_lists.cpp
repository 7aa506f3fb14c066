// Formats in which the calls are one JSON list between two marks.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
ReplyFormat describe_apertus(const TemplateView&) {
  ReplyFormat format;
  add_thinking(format, "<|inner_prefix|>", {"<|inner_suffix|>"});
  JsonCall shape;
  shape.key_is_name = true;
  add_call(format, seq(text("<|tools_prefix|>"), cut(), space(), json_call_list(std::move(shape)), space(),
                       closing("<|tools_suffix|>")));
  return format;
}

// The first words of the reasoning, which the prompt may already hold, are a part of it.
ReplyFormat describe_apriel(const TemplateView&) {
  ReplyFormat format;
  format.think_start = "Here are my reasoning steps:\n";
  format.think_ends = {"[BEGIN FINAL RESPONSE]"};
  format.parts.push_back(
      {ReplyPart::Kind::reasoning,
       seq(said_literal(Field::reasoning, format.think_start), cut(),
           said(Field::reasoning, {"[BEGIN FINAL RESPONSE]", "<tool_calls>"}), closing("[BEGIN FINAL RESPONSE]")),
       true});
  JsonCall shape = name_and_arguments();
  shape.members.push_back({"id", JsonCall::Role::id});
  shape.id_pattern = "[a-zA-Z0-9_-]{1,36}";
  shape.id_optional = true;
  add_call(format, seq(text("<tool_calls>"), cut(), space(), json_call_list(std::move(shape)), space(),
                       closing("</tool_calls>")));
  add_mark(format, text("[BEGIN FINAL RESPONSE]"));
  add_mark(format, text("[END FINAL RESPONSE]"));
  return format;
}

ReplyFormat describe_nemotron(const TemplateView&) {
  ReplyFormat format;
  add_thinking(format, "<think>", {"</think>"});
  add_call(format, seq(text("<TOOLCALL>"), cut(), space(), json_call_list(name_and_arguments()), space(),
                       closing("</TOOLCALL>")));
  return format;
}

ReplyFormat describe_granite(const TemplateView& source) {
  ReplyFormat format;
  add_thinking_if_known(format, source);
  add_call(format, seq(text("<|tool_call|>"), cut(), space(), json_call_list(name_and_arguments())));
  if (source.has("<response>")) {
    add_mark(format, text("<response>"));
    add_mark(format, text("</response>"));
  }
  return format;
}

ReplyFormat describe_firefunction(const TemplateView&) {
  ReplyFormat format;
  add_call(format,
           seq(text("functools["), cut(), space(),
               calls(json_call(name_and_arguments()), seq(space(), text(","), space())), space(), closing("]")));
  return format;
}
}  // namespace

const Format k_apertus{"Apertus", [](const TemplateView& t) { return t.has("<|tools_prefix|>"); }, describe_apertus};
const Format k_apriel{"Apriel", [](const TemplateView& t) { return t.has("<tool_calls>["); }, describe_apriel};
const Format k_nemotron_v2{"Nemotron V2", [](const TemplateView& t) { return t.has("<TOOLCALL>"); }, describe_nemotron};
const Format k_granite3{"Granite", [](const TemplateView& t) { return t.has("<|tool_call|>"); }, describe_granite};
const Format k_firefunction{"FireFunction v2", [](const TemplateView& t) { return t.has(" functools["); },
                            describe_firefunction};

}  // namespace common::chat::formats
