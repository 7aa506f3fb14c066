// DeepSeek: R1 and V3 with fenced JSON, V3.1 with bare JSON, V3.2 and V4 with tags.
#include "common/chat/formats/format.h"

namespace common::chat::formats {

namespace {
constexpr const char* kCalls = "<｜tool▁calls▁begin｜>";
constexpr const char* kCallsEnd = "<｜tool▁calls▁end｜>";
constexpr const char* kCall = "<｜tool▁call▁begin｜>";
constexpr const char* kCallEnd = "<｜tool▁call▁end｜>";
constexpr const char* kSeparator = "<｜tool▁sep｜>";

ReplyFormat describe_r1(const TemplateView& source) {
  ReplyFormat format;
  add_thinking_if_known(format, source);
  const ElementPtr one =
      call(seq(text(kCall), cut(), space(), text("function"), text(kSeparator), name({"\n"}), text("\n"), space(),
               text("```json"), space(), json_arguments(), space(), closing("```"), space(), closing(kCallEnd)));
  add_call(format, section_or_calls(kCalls, one, kCallsEnd));
  return format;
}

ReplyFormat describe_v3_1(const TemplateView& source) {
  ReplyFormat format;
  add_thinking_if_known(format, source);
  const ElementPtr one = call(seq(text(kCall), cut(), space(), name({kSeparator}), text(kSeparator), space(),
                                  json_arguments(), space(), closing(kCallEnd)));
  add_call(format, section_or_calls(kCalls, one, kCallsEnd));
  return format;
}

ReplyFormat describe_dsml(const TemplateView& source) {
  ReplyFormat format;
  const std::string word = source.has("function_calls>") ? "function_calls>" : "tool_calls>";
  const std::string begin = "<｜DSML｜" + word;
  add_thinking(format, "<think>", {"</think>", begin});
  const std::string close = "</｜DSML｜parameter>";
  const auto typed = [&](const char* is_text, ValueIs is) {
    return seq(text(is_text), value({.is = is, .stop = close}));
  };
  const ElementPtr one_parameter =
      seq(text("<｜DSML｜parameter name=\""), key({"\""}), text("\" string=\""),
          choice({typed("true\">", ValueIs::text), typed("false\">", ValueIs::json)}), text(close));
  const ElementPtr one = call(seq(text("<｜DSML｜invoke name=\""), name({"\""}), text("\">"), parameters(one_parameter),
                                  space(), closing("</｜DSML｜invoke>")));
  add_call(format, section(begin, one, "</｜DSML｜" + word));
  return format;
}
}  // namespace

const Format k_dsml{"DeepSeek V3.2", [](const TemplateView& t) { return t.has("dsml_token") && t.has("DSML"); },
                    describe_dsml};
const Format k_deepseek_r1{"DeepSeek R1", [](const TemplateView& t) { return t.has(kCalls) && t.has("```json"); },
                           describe_r1};
const Format k_deepseek_v3_1{"DeepSeek V3.1", [](const TemplateView& t) { return t.has(kCalls); }, describe_v3_1};

}  // namespace common::chat::formats
