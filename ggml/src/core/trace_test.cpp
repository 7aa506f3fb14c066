#include "ggml/trace.h"

#include <gtest/gtest.h>

namespace ggml {
namespace {

TEST(Trace, IsADocumentWithARowForEachLane) {
  const TraceSpan spans[] = {{"CPU", "a .. b", 0.0, 1e-6}, {"CUDA0", "c", 1e-6, 3e-6}, {"CPU", "d", 3e-6, 4.5e-6}};
  EXPECT_EQ(chrome_trace(spans),
            "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
            "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":1,\"args\":{\"name\":\"CPU\"}},\n"
            "{\"ph\":\"X\",\"name\":\"a .. b\",\"pid\":1,\"tid\":1,\"ts\":0.000,\"dur\":1.000},\n"
            "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":2,\"args\":{\"name\":\"CUDA0\"}},\n"
            "{\"ph\":\"X\",\"name\":\"c\",\"pid\":1,\"tid\":2,\"ts\":1.000,\"dur\":2.000},\n"
            "{\"ph\":\"X\",\"name\":\"d\",\"pid\":1,\"tid\":1,\"ts\":3.000,\"dur\":1.500}\n"
            "]}\n");
}

TEST(Trace, OfNothingIsADocumentToo) {
  EXPECT_EQ(chrome_trace({}), "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n]}\n");
}

TEST(Trace, WrittenPieceByPieceIsTheSameDocument) {
  const TraceSpan spans[] = {{"CPU", "a", 0.0, 1e-6}, {"CUDA0", "b", 1e-6, 3e-6}, {"CPU", "c", 3e-6, 4e-6}};
  ChromeTraceWriter writer;
  std::string text = ChromeTraceWriter::head();
  for (const TraceSpan& span : spans) text += writer.events({&span, 1});
  text += writer.events({});
  EXPECT_EQ(text + ChromeTraceWriter::tail(), chrome_trace(spans));
}

TEST(Trace, NamesCannotBreakTheDocument) {
  const TraceSpan span{"a\"lane", "back\\slash\nand line", 0, 0};
  const std::string text = chrome_trace({&span, 1});
  EXPECT_NE(text.find(R"(a\"lane)"), std::string::npos) << text;
  EXPECT_NE(text.find(R"(back\\slash\u000aand line)"), std::string::npos) << text;
}

TEST(Trace, GivesAwayWhatItHeldOnce) {
  Trace trace;
  trace.add({"CPU", "a", 0, 1});
  EXPECT_EQ(trace.take().size(), 1u);
  EXPECT_TRUE(trace.take().empty());
}

}  // namespace
}  // namespace ggml
